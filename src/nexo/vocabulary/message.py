"""One message as a consumer sees it, made from the columns of a delivery only when asked for."""

from __future__ import annotations

import msgspec

from nexo.vocabulary.batch import DeadLetter
from nexo.vocabulary.states import State


class Receipt(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Which delivery of which message: an ack with an older one is refused. The lease number
    carries the boot epoch of the broker, so it never stands for two deliveries."""

    lease: int
    seq: int


class Message(msgspec.Struct, frozen=True, gc=False):
    id: str
    seq: int
    body: bytes
    priority: int
    attempts: int
    created_ms: int
    visible_ms: int  # when it comes back if nothing is heard of it; 0 while it is in line
    state: State
    lease: int = 0
    delayed_until_ms: int = 0
    first_delivered_ms: int = 0
    group_id: str | None = None
    deduplication_id: str | None = None
    attributes: bytes | None = None
    dead_letter: DeadLetter | None = None

    @property
    def receipt(self) -> Receipt:
        return Receipt(self.lease, self.seq)
