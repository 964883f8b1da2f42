"""An event loop whose time is virtual: it jumps to the next timer when nothing is ready.

Nothing here waits, polls or listens, so a world of minutes runs in milliseconds and runs the same
way each time. `halt` is the end of a process: what was about to run never runs.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Any

from nexo.simulation.disk import Crashed
from nexo.simulation.history import Violation
from nexo.vocabulary.errors import NexoError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from contextvars import Context

_STEPS_WITHOUT_TIME_MAX = 20_000  # a reader of a finely cut archive takes 5,000 at one instant


class Halted(Exception):
    """The process ended before the coroutine did."""


class VirtualLoop(asyncio.BaseEventLoop):
    def __init__(self, start_s: float) -> None:
        super().__init__()
        self._now_s = start_s
        self._soon: deque[asyncio.Handle] = deque()
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._numbers = count()
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._steps_without_time = 0
        self.halted = False
        self.failure: BaseException | None = None
        self.after_step: Callable[[], None] | None = None
        self.planned: type[BaseException] | None = None  # an error that was put in on purpose
        self.steps_without_time_max = _STEPS_WITHOUT_TIME_MAX
        self.run_handle: Callable[[asyncio.Handle], None] = asyncio.Handle._run

    # -- What a world does --------------------------------------------------------------------

    def run(self, main: Coroutine[Any, Any, None]) -> None:
        """Run until `main` is done. Raises `Halted` if the process ended first, and whatever
        the engine or a checker let escape."""
        task = self.create_task(main)
        asyncio._set_running_loop(self)
        try:
            while not task.done() and not self.halted:
                self._step()
        finally:
            asyncio._set_running_loop(None)
        if self.failure is not None:
            raise self.failure
        if self.halted:
            raise Halted
        task.result()

    def halt(self, failure: BaseException | None = None) -> None:
        """Nothing more happens here."""
        self.halted = True
        self.failure = self.failure or failure

    def bury(self) -> None:
        """Let go of everything that was under way. Its last words must not be heard: closing a
        coroutine runs its `finally`, as the end of a process would not."""
        self.halted = True
        asyncio._set_running_loop(self)
        try:
            for task in list(self._tasks):
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                with contextlib.suppress(NexoError, RuntimeError, Crashed, Violation):
                    task.get_coro().close()
        finally:
            asyncio._set_running_loop(None)
        self._tasks.clear()
        self._soon.clear()
        self._timers.clear()
        self.close()

    # -- What asyncio asks of a loop ----------------------------------------------------------

    def time(self) -> float:
        return self._now_s

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._soon.append(handle)
        return handle

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        heappush(self._timers, (when, next(self._numbers), timer))
        return timer

    def create_task(self, coro: Any, **options: Any) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=self, **options)
        self._tasks[task] = None
        task.add_done_callback(self._ended)
        return task

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if self.planned is not None and isinstance(context.get("exception"), self.planned):
            return
        if not self.halted:
            self.halt(context.get("exception") or RuntimeError(str(context.get("message"))))

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """It is skipped when its time comes."""

    # -- One round ----------------------------------------------------------------------------

    def _step(self) -> None:
        soon, timers = self._soon, self._timers
        if soon:
            self._steps_without_time += 1
            if self._steps_without_time > self.steps_without_time_max:
                raise Violation("the engine comes to rest", "it spins without time passing")
        else:
            self._steps_without_time = 0
            while timers and timers[0][2].cancelled():
                heappop(timers)
            if not timers:
                raise Violation("the engine goes on", "nothing is ready and no timer is set")
            self._now_s = max(self._now_s, timers[0][0])
        while timers and timers[0][0] <= self._now_s:
            soon.append(heappop(timers)[2])
        for _ in range(len(soon)):
            handle = soon.popleft()
            if not handle.cancelled():
                self.run_handle(handle)
                if self.halted:
                    return
        if self.after_step is not None:
            self.after_step()

    def _ended(self, task: asyncio.Task[Any]) -> None:
        """A task that failed in a way that nobody expects ends the run."""
        self._tasks.pop(task, None)
        if task.cancelled():
            return
        error = task.exception()
        if isinstance(error, Crashed):
            self.halt()
        elif error is not None and not isinstance(error, NexoError):
            self.halt(error)
