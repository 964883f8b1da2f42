"""`nexo consume`: a consumer for trying things out, which can fail on purpose."""

import asyncio
import contextlib
import random
import signal
import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from nexo.cli.completion import queue_argument
from nexo.cli.durations import parse_duration
from nexo.cli.progress import Bar, progress_bar, show_rate
from nexo.cli.talk import TIMEOUT_S, Talk, talks
from nexo.vocabulary.errors import NexoError, StaleReceipt, WrongState

if TYPE_CHECKING:
    from nexo.client import AsyncMessage, AsyncSubscription

FAILED_ON_PURPOSE = "failed on purpose (--fail-rate)"
PREFETCH_MAX = 1_000


@talks
def consume(
    talk: Talk,
    queue: Annotated[str, queue_argument("The queue; created if needed.")],
    concurrency: Annotated[
        int, typer.Option(metavar="N", min=1, max=10_000, help="Messages worked on at once.")
    ] = 16,
    fail_rate: Annotated[
        float, typer.Option(metavar="P", min=0.0, max=1.0, help="The share that fails, 0 to 1.")
    ] = 0.0,
    count: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Stop after so many acks.")
    ] = None,
    work: Annotated[
        float,
        typer.Option(
            metavar="DURATION", parser=parse_duration, help="How long the work on each takes."
        ),
    ] = 0.0,
    idle: Annotated[
        float | None,
        typer.Option(
            metavar="DURATION", parser=parse_duration, help="Stop when nothing came for so long."
        ),
    ] = None,
    show: Annotated[bool, typer.Option("--print", help="Print the bodies.")] = False,
) -> None:
    """Subscribe, confirm the reception, work, and ack.

    \b
    Examples
      nexo consume orders --count 1000
      nexo consume orders --concurrency 4 --work 250ms
      nexo consume orders --fail-rate 0.2 --idle 5s   retries and dead letters

    It ends with Ctrl-C, or after --count acks. What was given to it and not
    worked on goes back at once.
    """
    from nexo.engine.process import run

    talk.require_broker()
    began = time.perf_counter()
    with progress_bar(talk, f"← {queue}", count) as bar:
        worker = Worker(bar, concurrency, fail_rate, count, work, idle, show)
        run(worker.work_on(talk, queue))
    seconds = time.perf_counter() - began
    if show:
        return
    talk.answer(
        {
            "queue": queue,
            "acked": worker.acked,
            "nacked": worker.nacked,
            "seconds": seconds,
            "rate": worker.acked / seconds,
        },
        f"acked {show_rate(worker.acked, seconds)}" + worker.note(),
    )


class Worker:
    def __init__(
        self,
        bar: Bar,
        concurrency: int,
        fail_rate: float,
        count: int | None,
        work_s: float,
        idle_s: float | None,
        show: bool,
    ) -> None:
        self.acked = 0
        self.nacked = 0
        self.lost = 0
        self._bar = bar
        self._concurrency = concurrency
        self._prefetch = min(4 * concurrency, PREFETCH_MAX)
        self._fail_rate = fail_rate
        self._count = count
        self._work_s = work_s
        self._idle_s = idle_s
        self._show = show
        self._under_way: set[asyncio.Task[None]] = set()
        self._room = asyncio.Event()  # something ended
        self._enough = asyncio.Event()
        self._heard = 0.0
        self._failure: NexoError | None = None
        self._chance = random.SystemRandom()

    async def work_on(self, talk: Talk, queue: str) -> None:
        """Consume until there is enough; then let go of what was not begun."""
        import nexo

        self._heard = time.perf_counter()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._enough.set)
        async with nexo.connect_async(talk.url, token=talk.token, timeout=TIMEOUT_S) as client:
            subscription = client.queue(queue, create=True).subscribe(prefetch=self._prefetch)
            pulling = loop.create_task(self._pull(subscription))
            pulling.add_done_callback(lambda _: self._enough.set())
            await self._wait()
            pulling.cancel()
            await asyncio.gather(*self._under_way)
            await subscription.close()
            with contextlib.suppress(asyncio.CancelledError):
                await pulling
        if self._failure is not None:
            raise self._failure

    def note(self) -> str:
        failed = f"; {self.nacked:,} failed on purpose" if self.nacked else ""
        return failed + (f"; {self.lost:,} were too late" if self.lost else "")

    async def _pull(self, subscription: "AsyncSubscription") -> None:
        async for message in subscription:
            self._heard = time.perf_counter()
            while not self._has_room():
                await self._room.wait()
                self._room.clear()
            task = asyncio.get_running_loop().create_task(self._work(message))
            self._under_way.add(task)
            task.add_done_callback(self._finished)

    def _has_room(self) -> bool:
        """Never begin what would be one ack too many."""
        under_way = len(self._under_way)
        if self._count is not None and self.acked + under_way >= self._count:
            return False
        return under_way < self._concurrency

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._under_way.discard(task)
        self._room.set()
        if self.acked == self._count or self._failure is not None:
            self._enough.set()

    async def _work(self, message: "AsyncMessage") -> None:
        try:
            if self._work_s:
                await asyncio.sleep(self._work_s)
            if self._fail_rate and self._chance.random() < self._fail_rate:
                await message.nack(reason=FAILED_ON_PURPOSE)
                self.nacked += 1
            else:
                if self._show:
                    sys.stdout.buffer.write(message.body + b"\n")
                    sys.stdout.buffer.flush()
                await message.ack()
                self.acked += 1
                self._bar.advance(1, self.note())
        except (StaleReceipt, WrongState):
            self.lost += 1  # its time was up: it is somebody else's now
        except NexoError as error:
            self._failure = error

    async def _wait(self) -> None:
        """Until there is enough, or nothing came for too long."""
        while not self._enough.is_set():
            wait_s = None
            if self._idle_s is not None and not self._under_way:
                wait_s = self._heard + self._idle_s - time.perf_counter()
                if wait_s <= 0:
                    return
            elif self._idle_s is not None:
                wait_s = self._idle_s
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._enough.wait(), wait_s)
