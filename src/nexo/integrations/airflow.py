"""Airflow on Nexo: a DAG starts when a message comes, by Airflow's common messaging trigger.

    trigger = MessageQueueTrigger(scheme="nexo", queue_name="orders", url="nexo://127.0.0.1:9325")
    orders = Asset("orders", watchers=[AssetWatcher(name="orders", trigger=trigger)])

    with DAG("pack", schedule=[orders]): ...

The payload of the event is a map with `id`, `text`, `queue`, `attempts` and `attributes`; of a body
that is not UTF-8 `text` is None and `base64` is there. A message is acked when the triggerer has
taken its event, so after a crash in between it comes again.
"""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING, Any

from airflow.providers.common.messaging.providers.base_provider import BaseMessageQueueProvider
from airflow.triggers.base import BaseEventTrigger, TriggerEvent

import nexo

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

PREFETCH = 10  # messages that wait in a triggerer; others may have the rest


class NexoTrigger(BaseEventTrigger):
    """An event for each message of a queue. The token is better left to `$NEXO_TOKEN` of the
    triggerer: what is given here is kept in Airflow's database."""

    def __init__(self, queue_name: str, url: str | None = None, token: str | None = None) -> None:
        super().__init__()
        self.queue_name: str = queue_name
        self.url: str | None = url
        self.token: str | None = token

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """How Airflow keeps it, and makes it again."""
        given = {"queue_name": self.queue_name, "url": self.url, "token": self.token}
        return f"{type(self).__module__}.{type(self).__qualname__}", given

    async def run(self) -> AsyncIterator[TriggerEvent]:
        async with nexo.connect_async(self.url, token=self.token) as client:
            queue = client.queue(self.queue_name, create=True)
            async with queue.subscribe(PREFETCH, auto_extend=True) as messages:
                async for message in messages:
                    is_taken = False
                    try:
                        yield TriggerEvent(payload_of(message))
                        is_taken = True
                    finally:  # a trigger that ends may not know what became of its last event
                        if not is_taken:
                            await queue.give_back([message])
                    await message.ack()


class NexoMessageQueueProvider(BaseMessageQueueProvider):
    scheme = "nexo"

    def trigger_class(self) -> type[NexoTrigger]:
        return NexoTrigger


def payload_of(message: nexo.AsyncMessage) -> dict[str, Any]:
    """What travels in Airflow's database, as JSON."""
    found: dict[str, Any] = {
        "id": message.id,
        "text": None,
        "queue": message.queue,
        "attempts": message.attempts,
        "attributes": message.attributes,
    }
    try:
        found["text"] = message.text
    except UnicodeDecodeError:
        found["base64"] = b64encode(message.body).decode()
    return found
