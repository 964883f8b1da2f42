"""The consumer of `nexo consume`: works on some messages at once, and fails on purpose. Apart from
the command, because asyncio would weigh on the start of every other one."""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import sys
import time
from typing import TYPE_CHECKING

from nexo.vocabulary.errors import NexoError, StaleReceipt, WrongState

if TYPE_CHECKING:
    from nexo import AsyncMessage
    from nexo.cli.progress import Bar
    from nexo.cli.session import Session
    from nexo.client.aio.subscription import AsyncSubscription

FAILED_ON_PURPOSE = "failed on purpose (--fail-rate)"
PREFETCH_MAX = 1_000


class Consumer:
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

    async def work_on(self, session: Session, queue: str) -> None:
        """Consume until there is enough; then let go of what was not begun."""
        import nexo
        from nexo.cli.session import TIMEOUT_S

        self._heard = time.perf_counter()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._enough.set)
        async with nexo.connect_async(
            session.url, token=session.token, timeout=TIMEOUT_S, tls_ca=session.tls_ca
        ) as client:
            source = client.queue(queue, create=True)
            subscription = source.subscribe(prefetch=self._prefetch)
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
        """What did not go as it should, if anything."""
        notes = [f"{self.nacked:,} failed on purpose"] * bool(self.nacked)
        notes += [f"{self.lost:,} acked too late"] * bool(self.lost)
        return ", ".join(notes)

    async def _pull(self, subscription: AsyncSubscription[AsyncMessage]) -> None:
        """Take a message only when it can be begun: the rest goes back at the end."""
        while True:
            while not self._has_room():
                await self._room.wait()
                self._room.clear()
            message = await subscription.get()
            if message is None:
                return
            self._heard = time.perf_counter()
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

    async def _work(self, message: AsyncMessage) -> None:
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
