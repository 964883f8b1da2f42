"""The threads of a blocking connection: those who wait while another reads for them, the keeper,
and what is left of them after a fork."""

from __future__ import annotations

import math
import os
import threading
import time
import weakref
from typing import TYPE_CHECKING, Protocol

from nexo.vocabulary.limits import CLIENT_SLACK_S

if TYPE_CHECKING:
    from nexo.client.operation import Operation


class Kept(Protocol):
    """A connection, as the keeper and a fork see it."""

    def keep(self) -> float:
        """Do what nobody else is there for; returns in how many seconds to come again."""

    def forget_parent(self) -> None:
        """In the child of a fork: begin anew, the sockets and answers are the parent's."""


class Followers:
    """Those who wait while another thread reads for them. Everything here happens under the lock
    of the connection, except the waiting itself."""

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


class Keeper(threading.Thread):
    """A thread that does what time calls for while the user's threads are elsewhere. It holds its
    connection weakly, so a client that was forgotten can go."""

    def __init__(self, connection: weakref.ref[Kept]) -> None:
        super().__init__(name="nexo-keeper", daemon=True)
        self._connection = connection
        self._stirred = threading.Event()
        self._comes_at = 0.0

    def come_by(self, due: float) -> None:
        """Come no later than that; costs nothing while it does anyway."""
        if self._comes_at > due + CLIENT_SLACK_S:
            self._stirred.set()

    def stir(self) -> None:
        self._stirred.set()

    def run(self) -> None:
        while True:
            connection = self._connection()
            if connection is None:
                return
            self._comes_at = math.inf  # whoever asks while it works is heard right after
            pause = connection.keep()
            del connection
            if not pause:
                return
            self._comes_at = time.monotonic() + pause
            if self._stirred.wait(pause):
                self._stirred.clear()


_alive: weakref.WeakSet[Kept] = weakref.WeakSet()


def watch_forks(connection: Kept) -> None:
    """After a fork, the child's connections are to forget their parent."""
    _alive.add(connection)


def _after_fork() -> None:
    for connection in list(_alive):
        connection.forget_parent()


if hasattr(os, "register_at_fork"):  # not where there is no fork
    os.register_at_fork(after_in_child=_after_fork)
