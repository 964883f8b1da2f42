"""A timer that is exact and cheap to set again: one for each actor."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from nexo.engine.clock import Clock

_LONGEST_S = 24 * 3600.0  # an event loop takes no arbitrary distance; it is set again then


class Timer:
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
        wait_s = min(max(0.0, (at_ms - self._clock.now_ms()) / 1000), _LONGEST_S)
        self._handle = asyncio.get_running_loop().call_later(wait_s, self._fired)

    def cancel(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _fired(self) -> None:
        self._handle = None
        self._fire()
