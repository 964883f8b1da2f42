"""The broker's two clocks, and the timers of its actors.

Queues and topics live by a clock that never goes back and never jumps. It starts from the wall
clock (or from the latest time in the journal, should the wall clock have been set back since) and
then follows the monotonic clock. So a stepped wall clock neither freezes leases nor expires them
all at once; it is taken up at the next start.

Whatever the rest of the world dates (signatures, the expiry of tokens, the audit log) is judged by
the wall clock, as it is now: one start with a wrong clock must not shut everybody out for as long
as it was wrong.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Protocol

from nexo.vocabulary.limits import TIMER_MS_MAX

if TYPE_CHECKING:
    from collections.abc import Callable


class Clock(Protocol):
    def now_ms(self) -> int:
        """The time of queues and topics in Unix milliseconds."""

    def wall_ms(self) -> int:
        """The time of the rest of the world; it may jump, also back."""

    def not_before(self, now_ms: int) -> None:
        """The journal knows of this time: do not fall behind it."""


class SystemClock:
    """The two sources are arguments, in seconds, so that a simulation can bend them."""

    def __init__(
        self,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._wall = wall
        self._monotonic = monotonic
        self._base_ms = wall() * 1000 - monotonic() * 1000

    def now_ms(self) -> int:
        return int(self._base_ms + self._monotonic() * 1000)

    def wall_ms(self) -> int:
        return int(self._wall() * 1000)

    def not_before(self, now_ms: int) -> None:
        behind_ms = now_ms - self.now_ms()
        if behind_ms > 0:
            self._base_ms += behind_ms


class Timer:
    """Exact, and cheap to set again: one for each actor."""

    def __init__(self, clock: Clock, fire: Callable[[], None]) -> None:
        self._clock = clock
        self._fire = fire
        self._handle: asyncio.TimerHandle | None = None
        self._at_ms = 0

    def at(self, at_ms: int | None) -> None:
        """Fire at that time, or earlier if it was set earlier already; None is never."""
        if at_ms is None:
            return
        if self._handle is not None:
            if self._at_ms <= at_ms:
                return
            self._handle.cancel()
        self._at_ms = at_ms
        wait_s = min(max(0.0, (at_ms - self._clock.now_ms()) / 1000), TIMER_MS_MAX / 1000)
        self._handle = asyncio.get_running_loop().call_later(wait_s, self._fired)

    def cancel(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def close(self) -> None:
        """Never again, and nobody is kept for it."""
        self.cancel()
        self._fire = _nothing

    def _fired(self) -> None:
        self._handle = None
        self._fire()


def _nothing() -> None:
    """What a closed timer does, should it be set."""
