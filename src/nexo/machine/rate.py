"""The receive-rate limit: a bucket of tokens that fills with time (peak shaving)."""

from __future__ import annotations

from nexo.vocabulary.limits import RECEIVE_BURST_MS


class Rate:
    """Lets through `rate` messages a second, and at once what a short burst allows."""

    __slots__ = ("_at_ms", "_tokens")

    def __init__(self) -> None:
        self._tokens = 0.0
        self._at_ms = -1

    def allowed(self, rate: float, now_ms: int) -> int:
        """How many messages may be delivered now."""
        capacity = max(1.0, rate * RECEIVE_BURST_MS / 1000)
        if self._at_ms < 0:
            self._tokens = capacity
        else:
            self._tokens = min(capacity, self._tokens + rate * (now_ms - self._at_ms) / 1000)
        self._at_ms = now_ms
        return int(self._tokens + 1e-9)

    def spend(self, count: int) -> None:
        self._tokens -= count

    def next_ms(self, rate: float, now_ms: int) -> int:
        """When the next message may be delivered."""
        if self.allowed(rate, now_ms) >= 1:
            return now_ms
        return now_ms + max(1, -int(-(1.0 - self._tokens) * 1000 // rate))
