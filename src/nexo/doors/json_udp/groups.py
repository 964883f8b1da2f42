"""Consumer groups: a queue bound to the topic. A `get` takes messages on a lease, an `ack` by id
ends it, and what is not acked in time is given to the next who asks."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from nexo.doors.json_udp.datagram import Action
from nexo.doors.json_udp.naming import group_queue, topic_name
from nexo.doors.json_udp.replies import Page, encode_message, success
from nexo.engine import receipts
from nexo.engine.holdings import holdings
from nexo.vocabulary.errors import NexoError, QueueNotFound, StaleReceipt
from nexo.vocabulary.limits import UDP_GET_MESSAGES_MAX, UDP_GROUP_MESSAGES

if TYPE_CHECKING:
    from nexo.doors.json_udp.datagram import Command
    from nexo.doors.json_udp.strangers import Asker
    from nexo.engine.engine import Engine
    from nexo.engine.queue_actor import QueueActor
    from nexo.vocabulary.message import Message


def group_of(engine: Engine, command: Command) -> QueueActor | None:
    """The queue of a group, if there is such a group. A queue that merely has its name is not."""
    topic = engine.topics.get(topic_name(command.topic))
    queue = queue_of(command)
    if topic is None or queue not in topic.info().bound_queues:
        return None
    return engine.queues.get(queue)


async def take_page(actor: QueueActor, command: Command, asker: Asker) -> tuple[bytes, Unfit]:
    """The reply with messages that are this address's until their time is over; and those that
    did not fit, which are to be given back."""
    page = Page(Action.GET, command.topic, command.ref, asker.reply_bytes_max)
    count = min(command.limit or UDP_GROUP_MESSAGES, UDP_GET_MESSAGES_MAX)
    delivery = await actor.pop(
        count,
        bytes_max=max(page.room, 1),
        consumer=asker.name,
        visibility_ms=command.visibility_ms,
        one_ack=True,
    )
    messages = actor.messages(delivery)
    for place, message in enumerate(messages):
        shown = encode_message(
            message.body, message.created_ms, id=message.id, attempts=message.attempts
        )
        if not page.add(shown):
            return page.encode(truncated=True), Unfit(actor, messages[place:])
    is_cut = 0 < len(messages) < count and actor.queue.ready > 0
    return page.encode(truncated=is_cut), Unfit(actor, [])


class Unfit:
    """Messages that were taken and did not fit."""

    def __init__(self, actor: QueueActor, messages: list[Message]) -> None:
        self._actor = actor
        self._messages = messages

    async def give_back(self) -> None:
        """As if never delivered. Should it fail, they come back when their time is over."""
        if self._messages:
            ranges = [(each.lease, each.seq, each.seq + 1) for each in self._messages]
            with contextlib.suppress(NexoError):
                await receipts.give_back(self._actor, ranges)


async def ack(engine: Engine, command: Command, asker: Asker) -> bytes:
    """The work is done; the reply says which ids this address does not hold (any more)."""
    actor = group_of(engine, command)
    if actor is None:
        raise QueueNotFound(f"topic {command.topic!r} has no group {command.group!r}")
    held = holdings(actor, asker.name, command.ids)
    refused = dict.fromkeys(command.ids, StaleReceipt.code)
    ranges = []
    for message_id, (lease, seq) in held.items():
        del refused[message_id]
        ranges.append((lease, seq, seq + 1))
    if ranges:
        outdated = await receipts.ack(actor, ranges)
        codes = {(lease, first): code for lease, first, _, code in outdated}
        refused |= {i: codes[held[i]] for i in held if held[i] in codes}
    more = {"refused": [{"id": i, "code": code} for i, code in refused.items()]} if refused else {}
    return success(Action.ACK, command.topic, command.ref, **more)


def queue_of(command: Command) -> str:
    """The name of the group's queue."""
    assert command.group is not None
    return group_queue(topic_name(command.topic), command.group)
