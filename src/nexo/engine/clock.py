"""The broker's clock: wall time that never goes back and never jumps.

It starts from the wall clock (or from the latest time in the journal, should the wall clock have
been set back since) and then follows the monotonic clock. So a stepped wall clock neither freezes
leases nor expires them all at once; it is taken up at the next start.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable


class Clock(Protocol):
    def now_ms(self) -> int:
        """The time in Unix milliseconds."""

    def not_before(self, now_ms: int) -> None:
        """The journal knows of this time: do not fall behind it."""


class SystemClock:
    """The two sources are arguments, in seconds, so that a simulation can bend them."""

    def __init__(
        self,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._monotonic = monotonic
        self._base_ms = wall() * 1000 - monotonic() * 1000

    def now_ms(self) -> int:
        return int(self._base_ms + self._monotonic() * 1000)

    def not_before(self, now_ms: int) -> None:
        behind_ms = now_ms - self.now_ms()
        if behind_ms > 0:
            self._base_ms += behind_ms
