"""Those who wait while another thread reads for them. Everything here happens under the lock of
the connection, except the waiting itself."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nexo.client.operation import Operation


class Followers:
    def __init__(self) -> None:
        self._waiting: dict[Operation, threading.Lock] = {}

    def enter(self, operation: Operation) -> threading.Lock:
        """What to wait on: it is released when the operation is done, or to lead."""
        gate = threading.Lock()
        gate.acquire()
        self._waiting[operation] = gate
        operation.notify = self._notify
        return gate

    def leave(self, operation: Operation) -> None:
        self._waiting.pop(operation, None)
        operation.notify = None

    def promote(self) -> None:
        """Nobody leads: wake one whose answer has not come."""
        for operation, gate in self._waiting.items():
            if not operation.done:
                _open(gate)
                return

    def _notify(self, operation: Operation) -> None:
        gate = self._waiting.get(operation)
        if gate is not None:
            _open(gate)


def wait_at(gate: threading.Lock, deadline: float) -> bool:
    """Returns whether it was opened before the time was over."""
    left = deadline - time.monotonic()
    return gate.acquire(timeout=min(max(left, 0.0), threading.TIMEOUT_MAX))


def _open(gate: threading.Lock) -> None:
    if gate.locked():
        gate.release()
