"""The customers: a peak of orders, then a trickle."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nexo import Queue

STEP_S = 0.02  # orders of this long are pushed together


class Customers:
    """A thread that pushes at the rate of the hour. `pushed` counts what the broker confirmed."""

    def __init__(self, queue: Queue, peak_rate: int, peak_s: float, quiet_rate: int) -> None:
        self._queue = queue
        self._peak_rate = peak_rate
        self._peak_s = peak_s
        self._quiet_rate = quiet_rate
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._order, name="customers", daemon=True)
        self.pushed = 0

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def _due(self, elapsed_s: float) -> int:
        """How many orders there should have been by now."""
        peak_s = min(elapsed_s, self._peak_s)
        return int(peak_s * self._peak_rate + (elapsed_s - peak_s) * self._quiet_rate)

    def _order(self) -> None:
        began = time.monotonic()
        while not self._over.wait(STEP_S):
            due = self._due(time.monotonic() - began)
            if due > self.pushed:
                numbers = range(self.pushed, due)
                self._queue.push_batch([{"id": n, "customer": f"c{n % 997}"} for n in numbers])
                self.pushed = due
