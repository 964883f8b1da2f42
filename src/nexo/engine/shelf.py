"""Reading contents back, for those who can wait and for those who want to be called."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from nexo.engine.memory import Pins
from nexo.machine import peek
from nexo.vocabulary.errors import DataCorrupt

if TYPE_CHECKING:
    from collections.abc import Callable

    from nexo.engine.memory import Holder, Memory
    from nexo.engine.queue_actor import QueueActor
    from nexo.machine.chunk import Chunk
    from nexo.machine.log import Log
    from nexo.vocabulary.message import Message

_RETRY_S = 0.2  # a read that failed is tried again, while someone waits for it
_SOON_S = 0.0  # what is corrupt is not waited for: whoever asked goes past it


class Shelf:
    def __init__(self, memory: Memory, holder: Holder, set_aside: Callable[[Chunk], int]) -> None:
        """`set_aside` is told of chunks that the journal holds and cannot give."""
        self._memory = memory
        self._holder = holder
        self._set_aside = set_aside
        self._called: set[Chunk] = set()

    def fetch(self, log: Log, chunk: Chunk, then: Callable[[], None]) -> None:
        """Read a chunk back and call `then` in a later turn of the event loop, never from in here:
        it may well ask for the next chunk. Asking again meanwhile changes nothing."""
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
                loop.call_later(_SOON_S if is_corrupt else _RETRY_S, try_again, is_corrupt)

        def go_on() -> None:
            self._called.discard(chunk)
            self._memory.unpin(chunk)
            then()

        def try_again(is_corrupt: bool) -> None:
            self._called.discard(chunk)
            if is_corrupt:
                self._set_aside(chunk)
            then()

        self._memory.fetch(self._holder, log, chunk, done)

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

        with self.pins() as pins:
            self._memory.fetch(self._holder, log, chunk, done)
            await future

    def pins(self) -> Pins:
        """For a work that needs several chunks at once."""
        return Pins(self._memory)


async def look(actor: QueueActor, limit: int) -> list[Message]:
    """The first messages of a queue, their contents read back if need be."""
    with actor.pins() as pins:
        while True:
            glances = peek.glance(actor.queue, limit)
            missing = [each.chunk for each in glances if each.chunk.content is None]
            if not missing:
                return peek.show(actor.queue, glances)
            await actor.read_back(missing[0])
            pins.add(missing[0])
