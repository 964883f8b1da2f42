"""Handlers in threads of this process, the default.

Python cannot end a thread. When a handler takes too long its messages go back at once, the thread
is left to itself, and a new one takes its place; what the old one still returns is ignored.
"""

from __future__ import annotations

import logging
import queue
import threading
from typing import TYPE_CHECKING, Any

from nexo.client.worker.invocation import Invocation, perform, timed_out
from nexo.vocabulary.limits import WORKER_STUCK_MAX

if TYPE_CHECKING:
    from collections.abc import Callable

    from nexo.client.worker.function import Function
    from nexo.client.worker.invocation import Verdict


_log = logging.getLogger("nexo.worker")


class Stuck:
    """How many handlers run on past their time, in all slots together."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._count = 0
        self._ending = False

    def enter(self) -> None:
        with self._changed:
            self._count += 1

    def leave(self) -> None:
        with self._changed:
            self._count -= 1
            self._changed.notify_all()

    def wait_for_room(self) -> None:
        """A worker whose handlers all hang must not fill the machine with threads."""
        with self._changed:
            if self._count >= WORKER_STUCK_MAX and not self._ending:
                facts = {"stuck": self._count}
                _log.error(
                    "too many handlers hang, taking no more messages until one returns", extra=facts
                )
                self._changed.wait_for(lambda: self._count < WORKER_STUCK_MAX or self._ending)

    def end(self) -> None:
        with self._changed:
            self._ending = True
            self._changed.notify_all()


class ThreadInvoker:
    def __init__(self, handler: Callable[..., Any], function: Function, stuck: Stuck) -> None:
        self._handler = handler
        self._function = function
        self._stuck = stuck
        self._hand: _Hand | None = None

    def call(self, invocation: Invocation) -> Verdict:
        if self._hand is None:
            self._hand = _Hand(self._handler, self._function)
        hand = self._hand
        hand.jobs.put(invocation)
        try:
            return hand.verdicts.get(timeout=self._function.timeout_s)
        except queue.Empty:
            self._hand = None
            self._stuck.enter()
            hand.jobs.put(self._stuck.leave)
            return timed_out(invocation, self._function)

    def close(self) -> None:
        if self._hand is not None:
            self._hand.jobs.put(lambda: None)
            self._hand = None


class _Hand:
    """A thread that calls the handler with one event after the other, until it gets something to
    do for its end."""

    def __init__(self, handler: Callable[..., Any], function: Function) -> None:
        self._handler = handler
        self._function = function
        self.jobs: queue.SimpleQueue[Invocation | Callable[[], None]] = queue.SimpleQueue()
        self.verdicts: queue.SimpleQueue[Verdict] = queue.SimpleQueue()
        threading.Thread(target=self._live, name="nexo-handler", daemon=True).start()

    def _live(self) -> None:
        while isinstance(job := self.jobs.get(), Invocation):
            self.verdicts.put(perform(self._handler, job, self._function))
        job()
