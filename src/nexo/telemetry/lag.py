"""How late the event loop is: a timer that notes when it came."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nexo.telemetry.histogram import Histogram

TICK_S = 0.25


class LagTimer:
    def __init__(self, lags_s: Histogram) -> None:
        self._lags_s = lags_s
        self._loop = asyncio.get_running_loop()
        self._handle = self._loop.call_later(TICK_S, self._tick, self._loop.time() + TICK_S)

    def _tick(self, due_s: float) -> None:
        now_s = self._loop.time()
        self._lags_s.add(max(0.0, now_s - due_s))
        self._handle = self._loop.call_later(TICK_S, self._tick, now_s + TICK_S)

    def stop(self) -> None:
        self._handle.cancel()
