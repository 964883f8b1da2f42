"""What the broker knows of a queue, a topic or a redrive, as its answers say it."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

import msgspec

from nexo.client.message import time_of
from nexo.vocabulary import user_settings as settings
from nexo.vocabulary.settings import user_queue_settings, user_topic_settings

if TYPE_CHECKING:
    from nexo.wire import calls

    Value = TypeVar("Value")


class QueueInfo(msgspec.Struct, frozen=True):
    """A queue at one moment. `depth` = ready + scheduled + in flight + unreadable; ages are in
    seconds; totals count since the queue was created."""

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
    timed_out: int
    expired: int
    dead_lettered: int
    claimed: dict[str, int]  # messages held by each Spark consumer
    unreadable: int = 0  # messages that the disk could not give; they are passed over
    claimed_age: dict[str, float] = {}  # how long those who hold some have held the first


class TopicInfo(msgspec.Struct, frozen=True):
    """A topic at one moment. Offsets `start` to `end` (exclusive) can be read."""

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
    """The progress of a redrive. `skipped` messages have no source queue and stay."""

    moved: int
    total: int
    skipped: int
    finished: bool


class ConsumerInfo(msgspec.Struct, frozen=True):
    """A consumer of one queue on one connection: `state` is `working`, `idle`, `stuck` (it holds
    messages and has acked none for a minute) or `not reading`. Of one that pops instead of
    subscribing `prefetch` is 0, and what it holds is not counted."""

    queue: str
    prefetch: int
    unacked: int
    acked: int
    rate: float  # acks a second, lately
    last_ack_at: datetime | None
    state: str


class ConnectionInfo(msgspec.Struct, frozen=True):
    """A connected client. Over SQS it is what calls from one address with one access key; it is
    listed until it has not called for five minutes."""

    number: int
    name: str
    address: str
    software: str  # the client library with its version; empty if it does not say
    token: str  # the name of its token; empty if it showed none
    since: datetime
    consumers: list[ConsumerInfo]
    protocol: str  # `rpc` or `sqs`


def read_connections(travelled: list[calls.ConnectionFigures]) -> list[ConnectionInfo]:
    return [_connection(each) for each in travelled]


def _connection(told: calls.ConnectionFigures) -> ConnectionInfo:
    consumers = [
        ConsumerInfo(
            each.queue,
            each.prefetch,
            each.unacked,
            each.acked,
            each.rate,
            time_of(each.last_ack_ms) if each.last_ack_ms else None,
            each.state,
        )
        for each in told.consumers
    ]
    return ConnectionInfo(
        number=told.number,
        name=told.name,
        address=told.address,
        software=told.software,
        token=told.token,
        since=time_of(told.since_ms),
        consumers=consumers,
        protocol=told.door,
    )


def read_queue(travelled: calls.QueueFigures) -> QueueInfo:
    values = msgspec.structs.asdict(travelled)
    del values["unsealed"]
    values["settings"] = user_queue_settings(travelled.settings)
    values["oldest_age"] = values.pop("oldest_age_ms") / 1000
    ages_ms: dict[str, int] = values.pop("claimed_age_ms")
    values["claimed_age"] = {consumer: age_ms / 1000 for consumer, age_ms in ages_ms.items()}
    return QueueInfo(**values)


def read_topic(travelled: calls.TopicFigures) -> TopicInfo:
    values = msgspec.structs.asdict(travelled)
    values["settings"] = user_topic_settings(travelled.settings)
    return TopicInfo(**values)


def read_progress(travelled: calls.RedriveProgress) -> Progress:
    return Progress(**msgspec.structs.asdict(travelled))
