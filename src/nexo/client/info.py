"""What the broker knows of a queue, a topic or a redrive, as its answers say it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from nexo.vocabulary import spoken as settings
from nexo.wire.frame import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable

    Value = TypeVar("Value")


class QueueInfo(msgspec.Struct, frozen=True):
    """A queue at one moment. `depth` = ready + scheduled + in flight + unreadable; ages in
    seconds; the totals count since the queue was created."""

    name: str
    depth: int
    ready: int
    scheduled: int
    in_flight: int
    oldest_age: float
    consumers: int
    paused: bool
    settings: settings.QueueSettings
    pushed: int
    delivered: int
    acked: int
    nacked: int
    expired: int
    dead_lettered: int
    claimed: dict[str, int]  # messages held by each Spark consumer
    unreadable: int = 0  # messages that the disk could not give; they are passed over


class TopicInfo(msgspec.Struct, frozen=True):
    """A topic at one moment: offsets `start` to `end` (not included) can be read."""

    name: str
    start: int
    end: int
    kept_bytes: int
    settings: settings.TopicSettings
    bound_queues: list[str]

    @property
    def messages(self) -> int:
        return self.end - self.start


class Progress(msgspec.Struct, frozen=True):
    """How far a redrive is. `skipped` messages have no queue to go back to, and stay."""

    moved: int
    total: int
    skipped: int
    finished: bool


class _Queue(msgspec.Struct, frozen=True):
    """As it travels."""

    name: str
    settings: dict[str, Any]
    consumers: int
    depth: int
    ready: int
    scheduled: int
    in_flight: int
    oldest_age_ms: int
    paused: bool
    pushed: int
    delivered: int
    acked: int
    nacked: int
    expired: int
    dead_lettered: int
    claimed: dict[str, int]
    unreadable: int = 0


class _Topic(msgspec.Struct, frozen=True):
    name: str
    start: int
    end: int
    kept_bytes: int
    settings: dict[str, Any]
    bound_queues: list[str]


def decoder(kind: type[Value]) -> Callable[[bytes | memoryview], Value]:
    """Reads the body of an answer as a value of this type."""
    decode = msgspec.msgpack.Decoder(kind).decode

    def read(body: bytes | memoryview) -> Value:
        try:
            return decode(body)
        except msgspec.DecodeError as error:
            raise ProtocolError(f"an answer that cannot be read: {error}") from None

    return read


_read_queue = decoder(_Queue)
_read_queues = decoder(list[_Queue])
_read_topic = decoder(_Topic)
_read_topics = decoder(list[_Topic])
read_progress: Callable[[bytes | memoryview], Progress] = decoder(Progress)


def read_queue(body: memoryview) -> QueueInfo:
    return _queue_info(_read_queue(body))


def read_queues(body: memoryview) -> list[QueueInfo]:
    return [_queue_info(each) for each in _read_queues(body)]


def read_topic(body: memoryview) -> TopicInfo:
    return _topic_info(_read_topic(body))


def read_topics(body: memoryview) -> list[TopicInfo]:
    return [_topic_info(each) for each in _read_topics(body)]


def _queue_info(travelled: _Queue) -> QueueInfo:
    values = msgspec.structs.asdict(travelled)
    values["settings"] = settings.queue_settings(travelled.settings)
    values["oldest_age"] = values.pop("oldest_age_ms") / 1000
    return QueueInfo(**values)


def _topic_info(travelled: _Topic) -> TopicInfo:
    values = msgspec.structs.asdict(travelled)
    values["settings"] = settings.topic_settings(travelled.settings)
    return TopicInfo(**values)
