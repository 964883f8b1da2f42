"""`nexo.Worker`: runs a handler in the form of AWS Lambda on the messages of queues.

Each of its slots takes a batch, calls the handler, waits for its answer, and tells the broker.
Leases are extended while a handler works. See `docs/worker.md` for the rules.
"""

from __future__ import annotations

import contextlib
import queue as queues
import signal
import threading
import uuid
from typing import TYPE_CHECKING, Any

from nexo.client.worker.batch import Intake, Totals, settle
from nexo.client.worker.coroutine import LoopInvoker
from nexo.client.worker.event import event_of
from nexo.client.worker.function import (
    ACCOUNT,
    REGION,
    Function,
    check_handler,
    find_handler,
    is_coroutine_function,
)
from nexo.client.worker.invocation import Invocation
from nexo.client.worker.thread import Stuck, ThreadInvoker
from nexo.vocabulary.errors import InvalidArgument, NexoError
from nexo.vocabulary.limits import (
    PREFETCH_MAX,
    WORKER_BATCH_MAX,
    WORKER_CONCURRENCY_MAX,
    WORKER_TIMEOUT_S,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType

    from nexo.client.blocking.client import Client
    from nexo.client.blocking.message import Message
    from nexo.client.blocking.queue import Queue
    from nexo.client.worker.batch import Figures
    from nexo.client.worker.invocation import Invoker

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Worker:
    """Calls `handler(event, context)` with batches of up to `batch_size` messages, or fewer after
    `batch_window` seconds. If it returns, they are acked; if it raises, all are retried;
    `{"batchItemFailures": [{"itemIdentifier": id}]}` retries those. The handler may be `async def`,
    or a string `"module:handler"`. `concurrency` batches are processed at the same time: in
    threads, coroutines in one event loop, or with `processes=True` in processes, each of which
    first calls `initializer`. After `timeout` seconds a batch has failed. `prefetch` messages are
    held in the worker, by default two batches for each concurrent call. With several queues, each
    has its own concurrency and prefetch, so that a busy queue does not block the others; a batch
    belongs to one queue."""

    def __init__(
        self,
        client: Client,
        queue: str | Sequence[str],
        handler: Callable[..., Any] | str,
        *,
        batch_size: int = 10,
        batch_window: float = 0.0,
        concurrency: int = 1,
        processes: bool = False,
        timeout: float = WORKER_TIMEOUT_S,
        prefetch: int | None = None,
        function_name: str | None = None,
        account: str = ACCOUNT,
        region: str = REGION,
        initializer: Callable[[], object] | None = None,
    ) -> None:
        _check("batch_size", batch_size, 1, WORKER_BATCH_MAX)
        _check("batch_window", batch_window, 0.0, 300.0)
        _check("concurrency", concurrency, 1, WORKER_CONCURRENCY_MAX)
        _check("timeout", timeout, 0.001, 86_400.0)
        wanted = min(2 * batch_size * concurrency, PREFETCH_MAX) if prefetch is None else prefetch
        _check("prefetch", wanted, 1, PREFETCH_MAX)
        names = [queue] if isinstance(queue, str) else list(dict.fromkeys(queue))
        if not names:
            raise InvalidArgument("a worker needs at least one queue", "pass the name of a queue")
        self._sources = [_Source(client.queue(name)) for name in names]
        self._handler = _handler(handler)
        name = function_name or _name_of(handler)
        self._function = Function(name, timeout, account, region)
        self._batch_size = batch_size
        self._batch_window = batch_window
        self._concurrency = concurrency
        self._processes = processes
        self._prefetch = wanted
        self._task: Any = None
        if processes:
            from nexo.client.worker.process import Task, check_picklable

            self._task = Task(handler, self._function, initializer)
            check_picklable(self._task)
        self._under_way: dict[int, tuple[Queue, list[Message]]] = {}  # by slot
        self._totals = Totals()
        self._stuck = Stuck()
        # A queue that a signal handler may put to whatever this thread is doing.
        self._news: queues.SimpleQueue[_Ended | None] = queues.SimpleQueue()

    @property
    def figures(self) -> Figures:
        """Statistics so far."""
        return self._totals.figures

    @property
    def function_name(self) -> str:
        return self._function.name

    def run(self, *, idle: float | None = None, signals: bool = True) -> Figures:
        """Work until `stop()`, or until no message arrives for `idle` seconds. Running batches
        finish, and prefetched messages return at once. With `signals`, in the main thread, SIGTERM
        and Ctrl-C stop the worker in the same way, and a second one interrupts."""
        for source in self._sources:
            source.fifo = source.queue.info().settings.fifo
        takings = [taking for source in self._sources for taking in self._takings(source)]
        intakes = list(dict.fromkeys(intake for _, intake in takings))
        invokers = self._invokers(len(takings))
        slots = [
            threading.Thread(
                target=self._work,
                args=(number, source, intake, invokers[number % len(invokers)]),
                name=f"nexo-slot-{number}",
                daemon=True,
            )
            for number, (source, intake) in enumerate(takings)
        ]
        before = _take_signals(self._signalled) if signals else {}
        try:
            for slot in slots:
                slot.start()
            self._attend(intakes, idle, len(slots))
        except KeyboardInterrupt:
            self._let_go()
            raise
        finally:
            for number, former in before.items():
                signal.signal(number, former)
            for invoker in invokers:
                invoker.close()
        return self.figures

    def stop(self) -> None:
        """Start to shut down. Any thread and any signal handler may call it."""
        self._news.put(None)

    # -- Inside -------------------------------------------------------------------------------

    def _attend(self, intakes: list[Intake], idle: float | None, left: int) -> None:
        """Until all slots have ended, because of a stop or a failure."""
        failure, stopping = None, False
        while left:
            news: _Ended | None = None
            try:
                news = self._news.get(timeout=self._patience(idle, stopping))
            except queues.Empty:
                if idle is None or self._totals.idle_s() < idle:
                    continue
            if news is not None:
                left -= 1
                failure = failure or news.failure
            if not stopping:
                stopping = True
                self._stuck.end()
                for intake in intakes:
                    intake.stop()
        if failure is not None:
            raise failure

    def _patience(self, idle: float | None, stopping: bool) -> float | None:
        """How long to wait for news, in seconds."""
        if stopping or idle is None:
            return None
        return max(0.001, idle - self._totals.idle_s())

    def _let_go(self) -> None:
        """Interrupted: what was begun is ready again at once, as if the connection had broken."""
        for queue, batch in list(self._under_way.values()):
            with contextlib.suppress(NexoError):
                queue.give_back(batch)

    def _work(self, number: int, source: _Source, intake: Intake, invoker: Invoker) -> None:
        """One slot."""
        failure: BaseException | None = RuntimeError("a slot ended; its traceback was printed")
        try:
            while True:
                self._stuck.wait_for_room()
                batch = intake.take()
                if not batch:
                    break
                self._totals.begin(len(batch))
                self._under_way[number] = (source.queue, batch)
                verdict = invoker.call(self._invocation(source, batch))
                del self._under_way[number]
                settled = settle(source.queue, batch, verdict, source.fifo)
                self._totals.end(len(batch), settled)
            failure = None
        except NexoError as error:
            failure = error
        finally:
            self._news.put(_Ended(failure))

    def _invocation(self, source: _Source, batch: list[Message]) -> Invocation:
        event = event_of(batch, source.queue.name, self._function, source.fifo)
        return Invocation(
            str(uuid.uuid4()), [each["messageId"] for each in event["Records"]], event
        )

    def _takings(self, source: _Source) -> list[tuple[_Source, Intake]]:
        """Where each slot of a queue takes its batches."""
        size, window_s = self._batch_size, self._batch_window
        slots = range(self._concurrency)
        if source.fifo:
            return [(source, Intake(source.queue, size, size, window_s)) for _ in slots]
        shared = Intake(source.queue, self._prefetch, size, window_s)
        return [(source, shared) for _ in slots]

    def _invokers(self, count: int) -> list[Invoker]:
        slots = range(count)
        if self._task is not None:
            from nexo.client.worker.process import ProcessInvoker

            return [ProcessInvoker(self._task) for _ in slots]
        if is_coroutine_function(self._handler):
            return [LoopInvoker(self._handler, self._function)]
        return [ThreadInvoker(self._handler, self._function, self._stuck) for _ in slots]

    def _signalled(self, number: int, frame: FrameType | None) -> None:
        for each in SIGNALS:
            signal.signal(each, _interrupt)
        self.stop()


class _Source:
    """A queue that it works on."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.fifo = False


class _Ended:
    """A slot is over."""

    def __init__(self, failure: BaseException | None) -> None:
        self.failure = failure


def _take_signals(handler: Callable[[int, FrameType | None], None]) -> dict[int, Any]:
    """Returns who had them before."""
    if threading.current_thread() is not threading.main_thread():
        return {}
    return {number: signal.signal(number, handler) for number in SIGNALS}


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _handler(given: Callable[..., Any] | str) -> Callable[..., Any]:
    return find_handler(given) if isinstance(given, str) else check_handler(given, _name_of(given))


def _name_of(handler: Any) -> str:
    """`app.handler`, as Lambda writes it."""
    if isinstance(handler, str):
        return handler.replace(":", ".")
    name = getattr(handler, "__qualname__", type(handler).__qualname__)
    return f"{getattr(handler, '__module__', '')}.{name}"


def _check(name: str, value: float, least: float, most: float) -> None:
    if not least <= value <= most:
        raise InvalidArgument(f"{name} is {value!r}", f"it is {least:g} to {most:,.0f}")
