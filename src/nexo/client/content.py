"""What every message can be asked, however it came: its body, as bytes, text or JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from nexo.client.values import time_of

if TYPE_CHECKING:
    from datetime import datetime

    from nexo.vocabulary import batch

_decode_json = msgspec.json.Decoder().decode


class Content:
    """Something with a body."""

    __slots__ = ()

    @property
    def body(self) -> bytes:
        raise NotImplementedError

    @property
    def text(self) -> str:
        """The body as UTF-8."""
        return self.body.decode()

    def json(self) -> Any:
        """The body as JSON."""
        return _decode_json(self.body)


class DeadLetter:
    """Why a message is in a dead-letter queue."""

    __slots__ = ("attempts", "first_failed_at", "last_failed_at", "reason", "source")

    reason: str
    source: str  # the queue it came from
    attempts: int
    first_failed_at: datetime
    last_failed_at: datetime

    def __init__(self, travelled: batch.DeadLetter) -> None:
        self.reason = travelled.reason
        self.source = travelled.source
        self.attempts = travelled.attempts
        self.first_failed_at = time_of(travelled.first_failed_ms)
        self.last_failed_at = time_of(travelled.last_failed_ms)

    def __repr__(self) -> str:
        return f"<DeadLetter from {self.source!r} after {self.attempts}: {self.reason!r:.60}>"
