"""Topics and consumer groups: what a datagram calls them, what the broker calls them, and what a
datagram may bring into being.

A group is a queue bound to the topic. A `get` takes messages on a lease, an `ack` by id ends it,
and what is not acked in time is given to the next who asks. A topic comes into being by its first
publish, a group by its first member; no command asks for either by name, so the audit log is told
here, where it happens.

A datagram may name a topic with any text. What is a topic's name elsewhere too stays as it is; any
other text becomes a name that is readable and cannot be mistaken for that of another text.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import re
from functools import lru_cache
from typing import TYPE_CHECKING

from nexo.doors.json_udp.datagram import Action
from nexo.doors.json_udp.replies import Page, encode_message, success
from nexo.engine.peek import held_by
from nexo.vocabulary.errors import (
    InvalidArgument,
    NexoError,
    QueueNotFound,
    RateLimited,
    StaleReceipt,
)
from nexo.vocabulary.limits import (
    NAME_CHARS_MAX,
    UDP_GET_MESSAGES_MAX,
    UDP_GROUP_MESSAGES,
    UDP_RETENTION_MESSAGES,
    UDP_TOPICS_MAX,
)
from nexo.vocabulary.names import RESERVED_PREFIX, check_name
from nexo.vocabulary.settings import TopicSettings
from nexo.vocabulary.start import EARLIEST

if TYPE_CHECKING:
    from nexo.doors.json_udp.access import Access
    from nexo.doors.json_udp.addresses import Asker
    from nexo.doors.json_udp.datagram import Command
    from nexo.engine.engine import Engine
    from nexo.engine.queue_actor import QueueActor
    from nexo.engine.topic_actor import TopicActor
    from nexo.vocabulary.message import Message

SETTINGS = TopicSettings(retention_messages=UDP_RETENTION_MESSAGES)
PREFIX = "udp."
_READABLE_CHARS = 32
_DIGEST_BYTES = 16
# The name of a group's queue must leave room for that of its dead-letter queue.
_GROUP_CHARS_MAX = NAME_CHARS_MAX - len("_dlq")
_STRANGE = re.compile(r"[^A-Za-z0-9_.-]")


class Groups:
    def __init__(self, engine: Engine, access: Access) -> None:
        self._engine = engine
        self._access = access

    async def topic(self, name: str, asker: Asker) -> TopicActor:
        """A topic, created if it is not there."""
        engine = self._engine
        actor = engine.topics.get(name)
        if actor is not None:
            return actor
        if len(engine.topics) >= UDP_TOPICS_MAX:  # not audited: a flood would drown the log
            raise RateLimited(f"the limit of {UDP_TOPICS_MAX} topics is reached", "delete some")
        with self._access.audited(asker.caller, asker.address, "create_topic", name):
            return await engine.create_topic(name, SETTINGS)

    async def join(self, command: Command, asker: Asker) -> None:
        """The group is there, and gets what the topic keeps and what is published from now on."""
        topic = await self.topic(topic_name(command.topic), asker)
        queue = queue_of(command)
        if queue in topic.info().bound_queues:
            return
        if queue in self._engine.queues:
            raise InvalidArgument(f"queue {queue!r} is not a group of topic {topic.name!r}")
        resource = f"{topic.name} {queue}"
        with self._access.audited(asker.caller, asker.address, "bind", resource):
            await self._engine.bind(topic.name, queue, start=EARLIEST, create=True)

    def find(self, command: Command) -> QueueActor | None:
        """The queue of a group, if there is such a group. A queue that merely has its name is
        not."""
        topic = self._engine.topics.get(topic_name(command.topic))
        queue = queue_of(command)
        if topic is None or queue not in topic.info().bound_queues:
            return None
        return self._engine.queues.get(queue)

    async def ack(self, command: Command, asker: Asker) -> bytes:
        """The work is done; the reply says which ids this address does not hold (any more)."""
        actor = self.find(command)
        if actor is None:
            raise QueueNotFound(f"topic {command.topic!r} has no group {command.group!r}")
        held = held_by(actor, asker.name, command.ids)
        refused = dict.fromkeys(command.ids, StaleReceipt.code)
        ranges = []
        for message_id, (lease, seq) in held.items():
            del refused[message_id]
            ranges.append((lease, seq, seq + 1))
        if ranges:
            outdated = await actor.ack_ranges(ranges)
            codes = {(lease, first): code for lease, first, _, code in outdated}
            refused |= {i: codes[held[i]] for i in held if held[i] in codes}
        more = {}
        if refused:
            more["refused"] = [{"id": i, "code": code} for i, code in refused.items()]
        return success(Action.ACK, command.topic, command.ref, **more)


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
                await self._actor.give_back_ranges(ranges)


# -- Names ------------------------------------------------------------------------------------


@lru_cache(maxsize=4_096)
def topic_name(said: str) -> str:
    """The broker's name of a topic. The broker's own topics keep theirs: they can be read."""
    return said if said.startswith(RESERVED_PREFIX) or _is_name(said) else _made(said, said)


@lru_cache(maxsize=4_096)
def group_queue(topic: str, group: str) -> str:
    """The queue of a consumer group: the native client's `subscribe(group=…)` uses the same."""
    plain = f"{topic}.{group}"
    if "." not in group and len(plain) <= _GROUP_CHARS_MAX and _is_name(plain):
        return plain  # what stands behind the last dot is the group
    return _made(plain, f"{topic}\0{group}")


def queue_of(command: Command) -> str:
    """The name of the group's queue."""
    assert command.group is not None
    return group_queue(topic_name(command.topic), command.group)


def _is_name(text: str) -> bool:
    try:
        check_name(text, "topic")
    except InvalidArgument:
        return False
    return True


def _made(text: str, unique: str) -> str:
    readable = _STRANGE.sub("-", text)[:_READABLE_CHARS]
    digest = hashlib.blake2b(unique.encode(), digest_size=_DIGEST_BYTES).digest()
    return f"{PREFIX}{readable}.{base64.b32encode(digest).decode().rstrip('=').lower()}"
