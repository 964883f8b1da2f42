"""Copying forward: after a snapshot, live messages must not pin the bytes of dead ones.

The few live messages of a mostly dead row are written anew, so that the row can go. A bounded part
of it is done in each turn of the event loop.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from nexo.engine.actor import PartOf
from nexo.machine import compact
from nexo.vocabulary.errors import NexoError
from nexo.vocabulary.limits import COPY_LOOK_CHUNKS, COPY_STEP_CHUNKS

if TYPE_CHECKING:
    from nexo.engine.context import Context
    from nexo.engine.queue_actor import QueueActor
    from nexo.machine.chunk import Chunk
    from nexo.machine.queue import Lane, Queue


class CopyForward(PartOf["QueueActor"]):
    """Of one queue; one at a time."""

    __slots__ = ("_context", "_copying")

    def __init__(self, context: Context, actor: QueueActor) -> None:
        super().__init__(actor)
        self._context = context
        self._copying: asyncio.Task[None] | None = None

    def begin(self) -> None:
        actor = self._actor
        if self._copying is None and actor.is_in_service:
            self._copying = asyncio.get_running_loop().create_task(self._copy_forward(actor))
            self._copying.add_done_callback(partial(self._copied, actor))

    def close(self) -> None:
        if self._copying is not None:
            self._copying.cancel()

    def _copied(self, actor: QueueActor, copying: asyncio.Task[None]) -> None:
        self._copying = None
        if not copying.cancelled():
            self._context.supervisor.guard(actor, copying.result)

    async def _copy_forward(self, actor: QueueActor) -> None:
        queue = actor.queue
        sparse = await _sparse(queue)
        for start in range(0, len(sparse), COPY_STEP_CHUNKS):
            some = sparse[start : start + COPY_STEP_CHUNKS]
            with actor.contents.pins() as pins:
                for _, chunk in some:
                    if not await self._is_at_hand(chunk, queue):
                        continue
                    pins.add(chunk)
                if actor.queue is not queue or self._context.refusal is not None:
                    return
                known = [(lane, chunk) for lane, chunk in some if chunk.content is not None]
                chunks = [chunk for lane, chunk in known if compact.is_sparse(lane, chunk)]
                if chunks:
                    compact.copy_forward(queue, *chunks)
                    self._context.committer.enlist(actor)
            await asyncio.sleep(0)

    async def _is_at_hand(self, chunk: Chunk, queue: Queue) -> bool:
        """Read a chunk back, if it is still there and can be read."""
        actor = self._actor
        is_there = actor.queue is queue and queue.lane_of(chunk.first).log.chunks.get(chunk.first)
        if is_there and chunk.content is None and not actor.contents.is_unreadable(chunk):
            with suppress(NexoError):  # the next snapshot tries again
                await actor.contents.read_back(chunk)
        return chunk.content is not None


async def _sparse(queue: Queue) -> list[tuple[Lane, Chunk]]:
    """The chunks of which little is alive."""
    sparse = []
    for lane in queue.lanes:
        for at, first in enumerate(list(lane.log.chunks)):
            if at % COPY_LOOK_CHUNKS == COPY_LOOK_CHUNKS - 1:
                await asyncio.sleep(0)
            chunk = lane.log.chunks.get(first)
            if chunk is not None and compact.is_sparse(lane, chunk):
                sparse.append((lane, chunk))
    return sparse
