"""Topics as this client reads them: events, where a subscription is, and consumer groups.

A plain subscription follows one topic, or all that match a pattern. The broker keeps nothing about
it, so a broken connection or a restarted broker is only a pause: the next read says again how far
it is. A consumer group is a queue that is bound to the topic.
"""

from __future__ import annotations

import re
from collections import deque
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from nexo.client import requests
from nexo.client.message import Content, HeldMessage, time_of
from nexo.vocabulary.attributes import decode_attributes
from nexo.vocabulary.errors import InvalidArgument, TopicNotFound
from nexo.vocabulary.fields import check_allowed
from nexo.vocabulary.limits import (
    BATCH_MESSAGES_MAX,
    CLIENT_READ_BYTES_MAX,
    CLIENT_READ_MESSAGES,
    INTEGER_MAX,
)
from nexo.vocabulary.names import EVENTS_TOPIC
from nexo.vocabulary.patterns import compiled, is_pattern
from nexo.vocabulary.start import EARLIEST, LATEST, Start
from nexo.wire import calls, commands
from nexo.wire.columns import WirePart, decode_parts
from nexo.wire.frame import Kind, ProtocolError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nexo.client.operation import Request
    from nexo.client.pushes import Push, PushBatch
    from nexo.wire.frame import Frame

    StartAt = Literal["latest", "earliest"] | int | datetime

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_GROUP = re.compile(r"[A-Za-z0-9_-]+")
_read_next = msgspec.msgpack.Decoder(int).decode


class Event(msgspec.Struct, Content, frozen=True, gc=False, eq=False):
    """A struct, because readers of a million a second make as many of them."""

    _topic: str
    _part: WirePart
    _at: int

    @property
    def topic(self) -> str:
        return self._topic

    @property
    def offset(self) -> int:
        """Its position in the topic, counted from 0."""
        return self._part.first + self._at

    @property
    def body(self) -> bytes:
        batch, at = self._part.batch, self._at
        offsets = batch.offsets
        return batch.payload[offsets[at] : offsets[at + 1]]

    @property
    def published_at(self) -> datetime:
        created = self._part.batch.created
        return time_of(self._part.created_ms if created is None else created[self._at])

    @property
    def attributes(self) -> dict[str, str]:
        column = self._part.batch.attributes
        return decode_attributes(column[self._at] if isinstance(column, list) else column)

    def __repr__(self) -> str:
        return f"<Event {self.offset} of {self.topic!r}: {self.body!r:.60}>"


def _read_events(topic: str, answer: Frame) -> tuple[list[Event], int]:
    """The events of a READ's answer, and the offset to go on at."""
    try:
        following = _read_next(answer.head)
    except msgspec.DecodeError as error:
        raise ProtocolError(f"the broker's answer cannot be read: {error}") from None
    return _events(topic, answer.body), following


def _read_followed(answer: Frame) -> tuple[list[Event], dict[str, int]]:
    """The same of a FOLLOW's answer, with an offset for each topic that had any."""
    followed: commands.Followed = commands.unpack(answer.head, commands.Followed)
    events: list[Event] = []
    at = 0
    for each in followed.topics:
        events += _events(each.topic, answer.body[at : at + each.body_bytes])
        at += each.body_bytes
    return events, {each.topic: each.next for each in followed.topics}


def _events(topic: str, body: memoryview) -> list[Event]:
    return [Event(topic, part, at) for part in decode_parts(body) for at in range(part.batch.count)]


def publish(topic: str, body: Any, attributes: dict[str, str] | None) -> Push:
    asked = requests.push(topic, body, 0, None, attributes, None, None)
    asked.lane = (Kind.PUBLISH, topic)
    return asked


def publish_batch(
    topic: str, bodies: Iterable[Any], attributes: dict[str, str] | None
) -> PushBatch | None:
    asked = requests.push_batch(topic, bodies, 0, None, attributes, None, None)
    if asked is not None:
        asked.lane = (Kind.PUBLISH, topic)
    return asked


def read(
    topic: str, offset: int, limit: int, strict: bool, wait_ms: int = 0, time_ms: int | None = None
) -> Request:
    """The result is the events and the offset to go on at."""
    check_allowed("limit", limit, 1, BATCH_MESSAGES_MAX)
    check_allowed("offset", offset, 0, INTEGER_MAX)
    wanted = commands.Read(topic, offset, limit, CLIENT_READ_BYTES_MAX, strict, wait_ms, time_ms)

    def decode(answer: Frame) -> tuple[list[Event], int]:
        return _read_events(topic, answer)

    return requests.LongRequest(Kind.READ, commands.pack(wanted), decode, wait_ms=wait_ms)


def follow(pattern: str, offsets: dict[str, int], limit: int, wait_ms: int) -> Request:
    """The result is the events and the offsets to go on at, of those topics that had any."""
    wanted = commands.pack(commands.Follow(pattern, offsets, limit, CLIENT_READ_BYTES_MAX, wait_ms))
    return requests.LongRequest(Kind.FOLLOW, wanted, _read_followed, wait_ms=wait_ms)


def starts(pattern: str, start: Start) -> Request:
    """The result is where to begin in each topic that the pattern stands for now."""
    return requests.call(calls.Starts(pattern, start))


def bind(topic: str, queue: str, start: Start, where: dict[str, str] | None) -> Request:
    return requests.call(calls.Bind(topic, queue, where, start, create=True))


class TopicReader:
    """Where a subscription begins, and where it is. `events` is what was read and not handed out
    yet. In a cluster `nexo.events` is a topic of each shard, so it is followed as patterns are."""

    def __init__(self, name: str, start: StartAt) -> None:
        self._name = name
        self._start = start_of(start)
        self._is_pattern = is_pattern(name) or name == EVENTS_TOPIC
        if self._is_pattern:
            compiled(name)
        self._offsets: dict[str, int] | None = None
        self.events: deque[Event] = deque()
        if not self._is_pattern and self._start.offset is not None:
            self._offsets = {name: self._start.offset}

    def opening(self) -> Request | None:
        """What has to be asked first; None if nothing has."""
        return None if self._offsets is not None else starts(self._name, self._start)

    def opened(self, offsets: dict[str, int]) -> None:
        if not self._is_pattern and self._name not in offsets:
            raise TopicNotFound(f"there is no topic {self._name!r:.100}", "create it first")
        self._offsets = offsets

    def read(self, wait_ms: int) -> Request:
        """What is new; the result is for `take`."""
        assert self._offsets is not None, "it was not opened"
        if self._is_pattern:
            return follow(self._name, self._offsets, CLIENT_READ_MESSAGES, wait_ms)
        return read(self._name, self._offsets[self._name], CLIENT_READ_MESSAGES, False, wait_ms)

    def take(self, result: tuple[list[Event], Any]) -> None:
        events, following = result
        assert self._offsets is not None
        self._offsets.update(following if self._is_pattern else {self._name: following})
        self.events.extend(events)


def start_of(start: StartAt) -> Start:
    """Where to begin, as it travels."""
    if isinstance(start, str) and start in ("latest", "earliest"):
        return LATEST if start == "latest" else EARLIEST
    if isinstance(start, datetime):
        return Start(time_ms=time_ms_of(start))
    if isinstance(start, int) and not isinstance(start, bool) and start >= 0:
        return Start(offset=start)
    raise InvalidArgument(
        f"start is {start!r:.40}", "write 'latest', 'earliest', an offset or a datetime"
    )


def time_ms_of(moment: object) -> int:
    if not isinstance(moment, datetime) or moment.tzinfo is None:
        raise InvalidArgument(
            f"{moment!r:.60} has no time zone or is not a datetime",
            "give a datetime with a time zone: datetime.now(UTC)",
        )
    return max(0, (moment - _EPOCH) // timedelta(milliseconds=1))


def group_queue(topic: str, group: str) -> str:
    """The queue of a consumer group: it is bound to the topic and named after both."""
    if is_pattern(topic):
        raise InvalidArgument(
            f"a consumer group reads one topic, not the pattern {topic!r:.80}",
            "bind a queue to each of the topics",
        )
    if not _GROUP.fullmatch(str(group)):
        raise InvalidArgument(
            f"{group!r:.40} is not the name of a group", "use the characters A-Z a-z 0-9 _ -"
        )
    return f"{topic}.{group}"


class GroupContent(HeldMessage):
    """What an event has besides, for the messages of a consumer group."""

    __slots__ = ()

    @property
    def topic(self) -> str:
        """The queue of the group is named after the topic and the group."""
        return self._delivery.queue.rpartition(".")[0]

    @property
    def published_at(self) -> datetime:
        return self.created_at

    @property
    def offset(self) -> None:
        """A group counts for itself: its messages have ids and acks, not offsets."""
        return
