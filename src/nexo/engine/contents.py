"""The contents of queues and topics: those that left memory are read back, for those who can wait
and for those who want to be called. What the journal cannot give is tried again now and then."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from nexo.engine.actor import PartOf
from nexo.engine.memory import Pins
from nexo.machine import unreadable
from nexo.vocabulary.errors import DataCorrupt
from nexo.vocabulary.limits import READ_RETRY_MS, UNREADABLE_RETRY_MS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from nexo.engine.context import Context
    from nexo.engine.memory import Holder, Memory
    from nexo.engine.queue_actor import QueueActor
    from nexo.machine.chunk import Chunk
    from nexo.machine.log import Log

_SOON_S = 0.0  # what is corrupt is not waited for: whoever asked goes past it


class Contents(PartOf["Holder"]):
    """Of one actor."""

    __slots__ = ("_called", "_memory")  # there may be very many actors

    def __init__(self, memory: Memory, holder: Holder) -> None:
        super().__init__(holder)
        self._memory = memory
        self._called: set[Chunk] = set()

    def fetch(
        self, log: Log, chunk: Chunk, then: Callable[[], None], set_aside: Callable[[Chunk], int]
    ) -> None:
        """Read a chunk back and call `then` in a later turn of the event loop, never from in here:
        it may well ask for the next chunk. Asking again meanwhile changes nothing. `set_aside` is
        told if the journal holds the chunk and cannot give it."""
        if chunk in self._called:
            return
        self._called.add(chunk)
        loop = asyncio.get_running_loop()

        def done(error: BaseException | None) -> None:
            if error is None:
                self._memory.pin(chunk)
                loop.call_soon(go_on)
            else:
                is_corrupt = isinstance(error, DataCorrupt)
                wait_s = _SOON_S if is_corrupt else READ_RETRY_MS / 1000
                loop.call_later(wait_s, try_again, is_corrupt)

        def go_on() -> None:
            self._called.discard(chunk)
            self._memory.unpin(chunk)
            then()

        def try_again(is_corrupt: bool) -> None:
            self._called.discard(chunk)
            if is_corrupt:
                set_aside(chunk)
            then()

        self._memory.fetch(self._actor, log, chunk, done)

    async def read_back(self, log: Log, chunk: Chunk) -> None:
        """Wait until a chunk's content is in memory, or the chunk gone; raises what the journal
        raised. It is there until the caller waits again, or longer if he pins it."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def done(error: BaseException | None) -> None:
            if future.done():
                return
            if error is None:
                pins.add(chunk)
                future.set_result(None)
            else:
                future.set_exception(error)

        with Pins(self._memory) as pins:
            self._memory.fetch(self._actor, log, chunk, done)
            await future


class QueueContents(PartOf["QueueActor"]):
    """Of one queue, which goes past what cannot be read."""

    __slots__ = ("_contents", "_context", "_retry")

    def __init__(self, context: Context, actor: QueueActor) -> None:
        super().__init__(actor)
        self._context = context
        self._contents = Contents(context.memory, actor)
        self._retry: asyncio.TimerHandle | None = None  # of what could not be read

    async def read_back(self, chunk: Chunk) -> None:
        """Wait until the content of a chunk is in memory. If it cannot be read, its messages in
        line are set aside, and whoever asked looks again; raises if that was about others."""
        actor = self._actor
        queue = actor.queue
        was_aside = chunk in queue.aside
        try:
            await self._contents.read_back(queue.lane_of(chunk.first).log, chunk)
        except DataCorrupt:
            # Another may have met it meanwhile.
            is_aside = chunk in actor.queue.aside and not was_aside
            if not self._set_aside(chunk) and not is_aside:
                raise

    async def read_strictly(self, chunk: Chunk) -> None:
        """The same for who must not go past what cannot be read: it raises."""
        await self._contents.read_back(self._actor.queue.lane_of(chunk.first).log, chunk)

    def pins(self) -> Pins:
        """For a work that needs several chunks at once."""
        return Pins(self._context.memory)

    async def read_all_back(self, chunks: Iterable[Chunk], pins: Pins) -> None:
        """Wait until the contents of all these are in memory, and keep them there. In the order of
        the log, so that one call to the journal brings what the next ones of them need."""
        for chunk in chunks:
            if chunk.content is None:
                await asyncio.sleep(0)  # a read that is quick would let nobody else have a turn
                await self.read_back(chunk)
            pins.add(chunk)

    def fetch(self, chunk: Chunk, then: Callable[[], None]) -> None:
        """Read the content of a chunk back and call `then`."""
        actor = self._actor
        log = actor.queue.lane_of(chunk.first).log
        guarded = partial(self._context.supervisor.guard, actor, then)
        self._contents.fetch(log, chunk, guarded, self._set_aside)

    def is_unreadable(self, chunk: Chunk) -> bool:
        return self._context.memory.is_unreadable(chunk)

    def watch_unreadable(self, is_known: bool = False) -> None:
        """Try again, in a while, what could not be read."""
        is_some = is_known or self._actor.queue.aside
        if is_some and self._retry is None and self._actor.is_in_service:
            loop = asyncio.get_running_loop()
            self._retry = loop.call_later(UNREADABLE_RETRY_MS / 1000, self._try_unreadable)

    def close(self) -> None:
        if self._retry is not None:
            self._retry.cancel()

    def _set_aside(self, chunk: Chunk) -> int:
        """The journal cannot give these messages: the queue goes past them, and tries again."""
        count = unreadable.set_aside(self._actor.queue, chunk)
        self.watch_unreadable(True)
        return count

    def _try_unreadable(self) -> None:
        """What could not be read may be readable now: the file may have been mended."""
        self._retry = None
        queue = self._actor.queue
        doomed = [each.span.chunk for each in queue.doomed]
        for chunk in {*queue.aside, *filter(self.is_unreadable, doomed)}:
            self.fetch(chunk, partial(self._read_after_all, chunk))

    def _read_after_all(self, chunk: Chunk) -> None:
        if chunk.content is not None:
            queue = self._actor.queue
            unreadable.bring_back(queue, chunk)
            if queue.doomed:
                self._actor.move_dead_letters()
            self._actor.serve()
