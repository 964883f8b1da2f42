"""The life of messages as ranges: what the broker tells the world about what it did."""

from __future__ import annotations

import msgspec

from nexo.vocabulary.states import EventKind


class Event(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """`count` messages of a queue, from `first_seq` on, all went through the same thing."""

    kind: EventKind
    queue: str
    first_seq: int
    count: int
    at_ms: int
    created_ms: int
    attempts: int
    consumer: str
    reason: str
