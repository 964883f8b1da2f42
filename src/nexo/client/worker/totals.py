"""What a worker has done so far."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from nexo.client.worker.settling import Settled


class Figures(msgspec.Struct, frozen=True):
    """Counts of messages, and of batches; `in_flight` are those being worked on."""

    handled: int = 0
    failed: int = 0
    returned: int = 0
    lost: int = 0
    batches: int = 0
    in_flight: int = 0


class Totals:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._figures = Figures()
        self._heard = time.monotonic()

    @property
    def figures(self) -> Figures:
        return self._figures

    def idle_s(self) -> float:
        """How long there has been nothing to do."""
        with self._lock:
            return 0.0 if self._figures.in_flight else time.monotonic() - self._heard

    def begin(self, count: int) -> None:
        with self._lock:
            now = self._figures
            self._figures = msgspec.structs.replace(now, in_flight=now.in_flight + count)

    def end(self, count: int, settled: Settled) -> None:
        with self._lock:
            now = self._figures
            self._heard = time.monotonic()
            self._figures = Figures(
                now.handled + settled.handled,
                now.failed + settled.failed,
                now.returned + settled.returned,
                now.lost + settled.lost,
                now.batches + 1,
                now.in_flight - count,
            )
