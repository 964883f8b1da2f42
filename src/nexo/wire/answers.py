"""What is answered to the named calls about chosen messages and about who is connected; the other
answers stand beside their calls."""

from __future__ import annotations

import msgspec

from nexo.vocabulary.events import Event
from nexo.vocabulary.message import Message


class Found(msgspec.Struct, frozen=True):
    """What a search has found in the part of the queue that it looked at; it goes on behind the
    number `next`, if there is one. `matched` counts also those that are not among `messages`."""

    messages: list[Message]
    matched: int
    looked_at: int
    next: int | None = None


class NodeFigures(msgspec.Struct, frozen=True):
    """A node of a cluster. `state`: `up`, `draining` (its shards go to others), `unreachable` (it
    lives, but does not answer the node that was asked, for this `reason`) or `down`; `lease_s` is
    what is left of its lease."""

    name: str
    state: str
    shards: int
    rpc: str
    http: str
    version: str
    lease_s: float
    reason: str = ""


class ShardFigures(msgspec.Struct, frozen=True):
    """A shard, the node that owns it, and how often it was opened. `transfers_waiting` are the
    messages in it that wait to go to a queue in another shard, and `transfers_oldest_s` how long
    the oldest of them has waited; None if its node did not say."""

    shard: int
    node: str | None
    epoch: int
    transfers_waiting: int | None = None
    transfers_oldest_s: float | None = None


class ClusterFigures(msgspec.Struct, frozen=True):
    """As the node `told_by` knows it. `postgresql_away_s`: PostgreSQL has not answered it for
    so long, and the rest is as it was then; None: it answers."""

    nodes: list[NodeFigures]
    shards: list[ShardFigures]
    told_by: str = ""
    postgresql_away_s: float | None = None


class ReasonGroup(msgspec.Struct, frozen=True):
    """Dead letters of one reason, in which a `#` stands for each number and id; when the first and
    the last of them failed, who had that one, and one of them with the beginning of its body."""

    reason: str
    count: int
    first_ms: int
    last_ms: int
    consumer: str
    sources: tuple[str, ...]
    example: Message
    example_bytes: int


class CountedReasons(msgspec.Struct, frozen=True):
    """The most frequent first, of the part of the queue that was looked at."""

    groups: list[ReasonGroup]
    looked_at: int
    next: int | None = None


class MessageLife(msgspec.Struct, frozen=True):
    """A message, None if it is gone, and what `nexo.events` tells of it; `note` says what may be
    missing there."""

    message: Message | None
    events: list[Event]
    note: str


class AuditLine(msgspec.Struct, frozen=True):
    """Who did what, and how it ended; `count` is of refusals that were alike."""

    at_ms: int
    who: str
    peer: str
    door: str
    action: str
    resource: str
    outcome: str
    count: int


class Resent(msgspec.Struct, frozen=True):
    queue: str
    id: str


class ConsumerFigures(msgspec.Struct, frozen=True):
    """A consumer of one queue on one connection; `rate` is acks a second, lately. `prefetch` is 0
    of one that pops instead of subscribing."""

    queue: str
    prefetch: int
    unacked: int
    acked: int
    rate: float
    last_ack_ms: int
    state: str


class ConnectionFigures(msgspec.Struct, frozen=True):
    number: int
    door: str
    name: str
    address: str
    software: str
    token: str
    since_ms: int
    consumers: list[ConsumerFigures]
