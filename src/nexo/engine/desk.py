"""The desk: the journal takes one call at a time, and here they wait for their turn.

A call runs in the event loop while calls are quick, because handing it to a thread costs more than
a quick disk takes; when the disk gets slow, calls go to a thread so that the loop goes on.
"""

from __future__ import annotations

import asyncio
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from nexo.engine.outcome import outcome_of, report
from nexo.vocabulary.limits import DESK_TURN_CALLS, INLINE_COMMIT_MS

if TYPE_CHECKING:
    from collections.abc import Callable

    from nexo.journal.port import Committing

    Job = Callable[[], Any]
    Done = Callable[[Any, BaseException | None], None]

_WEIGHT = 0.2  # of the latest call in the moving average


class Runner(Protocol):
    """Runs a blocking call, now or later, and tells the outcome to `done` in the event loop."""

    def run(self, job: Job, done: Done, is_long: bool) -> None:
        """`is_long`: it takes its time however quick the disk is."""

    def close(self) -> None: ...


@runtime_checkable
class JoiningRunner(Protocol):
    """One that writes together what comes from several desks."""

    def soon(self, committing: Committing) -> None:
        """It has something to write."""


class AdaptiveRunner:
    """In the loop while that is quick, else in a thread, where long calls are always."""

    def __init__(self, inline_ms: float = INLINE_COMMIT_MS) -> None:
        """`inline_ms`: what counts as quick; 0: nothing does, as where a network lies between."""
        self._inline_ms = inline_ms
        self._average_ms = 0.0
        self._threads: ThreadPoolExecutor | None = None

    def run(self, job: Job, done: Done, is_long: bool) -> None:
        if self._average_ms < self._inline_ms and not is_long:
            result, error, took_ms = _timed(job)
            self._learn(took_ms)
            done(result, error)
            return
        if self._threads is None:
            self._threads = ThreadPoolExecutor(1, thread_name_prefix="nexo-journal")
        future = asyncio.get_running_loop().run_in_executor(self._threads, _timed, job)
        # Of a long one nothing is learned about the others.
        future.add_done_callback(lambda finished: self._finish(finished, done, not is_long))

    def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown()

    def _finish(
        self, finished: asyncio.Future[tuple[Any, Any, float]], done: Done, learns: bool
    ) -> None:
        result, error, took_ms = finished.result()
        if learns:
            self._learn(took_ms)
        done(result, error)

    def _learn(self, took_ms: float) -> None:
        self._average_ms += _WEIGHT * (took_ms - self._average_ms)


class Desk:
    """Calls to the journal, one after the other; a commit goes before reads that wait.

    A call that ends inside `run` may bring the next one, and that another: they are taken from the
    line in a loop, never one inside the other, and after a few the event loop gets its turn.
    """

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        # Who has something to write says so here.
        self.soon = runner.soon if isinstance(runner, JoiningRunner) else _soon
        self._waiting: deque[tuple[Job, Done, bool]] = deque()
        self._busy = False  # a call is under way
        self._working = False  # `_work` is on the stack
        self._resting = False  # it goes on in the next turn of the event loop

    def submit(self, job: Job, done: Done, first: bool = False, is_long: bool = False) -> None:
        if not (self._busy or self._working or self._resting or self._waiting):
            self._working = True
            self._start(job, done, is_long)
            self._working = False
            if self._waiting and not self._busy:
                self._work(calls=1)
        elif first:
            self._waiting.appendleft((job, done, is_long))
        else:
            self._waiting.append((job, done, is_long))

    def take(self) -> bool:
        """Whether the journal is free. It is in use then, until `give_back`."""
        if self._busy or self._working or self._resting or self._waiting:
            return False
        self._busy = True
        return True

    def give_back(self, done: Done, result: Any, error: BaseException | None) -> None:
        """The call under way has ended: tell who waits for it, and go on with the next."""
        self._busy = False
        _, failure = outcome_of(done, result, error)
        if failure is not None:  # of one who waited, and no reason to keep the others waiting
            report("the end of a call to the journal failed", failure)
        if self._waiting and not (self._working or self._resting):
            self._work()

    def call(self, job: Job, is_long: bool = False) -> asyncio.Future[Any]:
        """The same for those who await."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def done(result: Any, error: BaseException | None) -> None:
            if future.done():
                return
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

        self.submit(job, done, is_long=is_long)
        return future

    @property
    def is_busy(self) -> bool:
        """Whether a call is under way."""
        return self._busy

    def close(self) -> None:
        self._runner.close()

    def _work(self, calls: int = 0) -> None:
        self._working = True
        while self._waiting and not self._busy:
            if calls == DESK_TURN_CALLS:
                self._resting = True
                asyncio.get_running_loop().call_soon(self._go_on)
                break
            calls += 1
            self._start(*self._waiting.popleft())
        self._working = False

    def _go_on(self) -> None:
        self._resting = False
        if not self._busy:
            self._work()

    def _start(self, job: Job, done: Done, is_long: bool) -> None:
        self._busy = True

        def finished(result: Any, error: BaseException | None) -> None:
            self.give_back(done, result, error)

        _, failure = outcome_of(self._runner.run, job, finished, is_long)
        if failure is not None:
            finished(None, failure)


def _soon(committing: Committing) -> None:
    """One turn of the event loop later than could be: what has arrived in the meantime comes along.
    Over HTTP it takes a turn from a request to its change."""
    loop = asyncio.get_running_loop()
    loop.call_soon(loop.call_soon, committing.begin)


def _timed(job: Job) -> tuple[Any, BaseException | None, float]:
    started = perf_counter()
    result, error = outcome_of(job)
    return result, error, (perf_counter() - started) * 1000
