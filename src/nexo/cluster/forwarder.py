"""The forwarder of a shard: pushes what waits in its transfer queues to where it is to go.

One task for each target that something waits for, and none else: a target that refuses, or that
nobody has, holds up nobody but what is for itself. What was pushed leaves its transfer queue once
it is on disk at the target. Whatever happens in between, it is pushed again, and the target knows
what it has: see `machine/transfer.py`.

How a push gets there is no concern of this file: it has no sockets, and no clock but the loop's.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING

from nexo.vocabulary.errors import NexoError, QueueNotFound
from nexo.vocabulary.limits import (
    TRANSFER_AGAIN_MS,
    TRANSFER_AGAIN_MS_MAX,
    TRANSFER_GONE_MS,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from nexo.engine.engine import Engine
    from nexo.engine.transfers import Transfer, TransferActor

    Push = Callable[[Transfer], Awaitable[None]]

logger = logging.getLogger("nexo.cluster")


class Forwarder:
    def __init__(self, engine: Engine, push: Push) -> None:
        """`push` brings a transfer to the shard of its queue, and returns once that has accepted
        it (`Transfers.accept`); it raises what that raised, and `NotReady` if nobody answered."""
        self._transfers = engine.transfers
        self._push = push
        self._tasks: dict[TransferActor, asyncio.Task[None]] = {}
        self._is_closed = False

    def begin(self) -> None:
        """Go on with what waits already, and with all that comes."""
        self._transfers.news = self._news
        for actor in self._transfers.all():
            if actor.queue.ready:
                self._news(actor)
            else:
                self._transfers.forget_idle(actor)

    async def close(self) -> None:
        """Stop, before the engine does. What is on its way is pushed again by who comes next."""
        self._is_closed = True
        self._transfers.news = None
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _news(self, actor: TransferActor) -> None:
        if actor not in self._tasks and not self._is_closed:
            task = asyncio.get_running_loop().create_task(self._forward_all(actor))
            self._tasks[actor] = task
            task.add_done_callback(partial(self._ended, actor))

    def _ended(self, actor: TransferActor, task: asyncio.Task[None]) -> None:
        """By an error that nobody expects: it is told, and what waits is tried again."""
        error = None if task.cancelled() else task.exception()
        if error is not None:
            logger.error("messages for another shard could not be forwarded", exc_info=error)
            loop = asyncio.get_running_loop()
            loop.call_later(TRANSFER_AGAIN_MS_MAX / 1000, self._news, actor)

    async def _forward_all(self, actor: TransferActor) -> None:
        """Until nothing is left for this target."""
        wait_ms = TRANSFER_AGAIN_MS
        try:
            while True:
                try:
                    is_more = await self._forward(actor)
                    wait_ms = TRANSFER_AGAIN_MS
                except QueueNotFound as error:
                    if actor.bound_to:
                        return
                    self._tell(actor, error, TRANSFER_GONE_MS)
                    await asyncio.sleep(TRANSFER_GONE_MS / 1000)
                except NexoError as error:
                    self._tell(actor, error, wait_ms)
                    await asyncio.sleep(wait_ms / 1000)
                    wait_ms = min(2 * wait_ms, TRANSFER_AGAIN_MS_MAX)
                else:
                    if not is_more:
                        return
        finally:  # in the same step as the last look: what comes now is told again
            del self._tasks[actor]

    async def _forward(self, actor: TransferActor) -> bool:
        """One push; False if there was nothing to push."""
        if actor.is_gone:
            await self._transfers.look_again(actor)
        load = await self._transfers.load(actor)
        if load is None:
            self._transfers.forget_idle(actor)
            return False
        try:
            await self._push(load.transfer)
        except QueueNotFound:
            load.give_back()
            await self._transfers.lost(actor)
            raise
        except BaseException:
            load.give_back()
            raise
        load.arrived()
        return True

    def _tell(self, actor: TransferActor, error: NexoError, wait_ms: int) -> None:
        """In the log, once it is worth a look."""
        if wait_ms > TRANSFER_AGAIN_MS_MAX // 2:
            extra = {"target": actor.target, "waiting": actor.queue.depth, "reason": str(error)}
            logger.warning("messages for another shard wait", extra=extra)
