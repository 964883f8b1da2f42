"""Drivers: streaming queries of Spark on a queue, with a checkpoint that outlives them.

As Spark does it: claim, write the plan to the checkpoint, seal, read (again and again), write the
commit to the checkpoint, and ack with the next claim. A new driver begins where the checkpoint
stands, and replays a batch that was planned and not committed.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from nexo.simulation.claims import ClaimWitness
from nexo.vocabulary.errors import Fenced, LeaseLost, NexoError

if TYPE_CHECKING:
    from nexo.simulation.workload.stage import Stage

_TIMEOUT_MS = 1_500


class Driver:
    def __init__(self, stage: Stage, queue: str, number: int) -> None:
        self.stage = stage
        self.queue = queue
        self.pace_ms = stage.random.choice([50, 150])
        self._name = f"query-{number}"
        self._lives = 0
        self._batch_max = stage.random.choice([1, 4, 30])
        self._begin()

    def _begin(self) -> None:
        """A new query with a checkpoint of its own."""
        self._lives += 1
        name = f"{self._name}-{self._lives}"
        self.claims = ClaimWitness(self.stage.witness, self.queue, name)
        self._epoch = 0
        self._committed = 0
        self._planned = 0
        self._sealed = False

    async def act(self) -> None:
        stage = self.stage
        if not self._epoch or stage.chance(0.05):
            self._sealed = False  # a driver that starts plans the batch anew
            self._epoch = await self.claims.open() or 0
            return
        try:
            if stage.chance(0.1):
                self.claims.keep(self._epoch, _TIMEOUT_MS)
            elif stage.chance(0.03):
                await self.claims.release(dead_letter=stage.chance(0.3))
            else:
                await self._advance()
        except Fenced:
            self._epoch = 0  # the answer to `open` was lost, or a commit failed
        except LeaseLost:
            await self._start_over()

    def keep(self) -> None:
        """A last heartbeat."""
        if self._epoch:
            with contextlib.suppress(NexoError):
                self.claims.keep(self._epoch, _TIMEOUT_MS)

    async def replay(self) -> None:
        """Start anew and read the batch that was planned and not committed, as it was."""
        self._epoch = await self.claims.open() or 0
        if self._sealed and self._planned > self._committed:
            await self.claims.seal(self._epoch, self._planned)
            await self.claims.read(self._epoch, self._planned)

    async def _advance(self) -> None:
        """The next step of the query."""
        claims, stage = self.claims, self.stage
        if self._planned == self._committed:
            count = stage.random.randint(1, self._batch_max)
            number = await claims.claim(self._epoch, self._committed, count, _TIMEOUT_MS)
            self._planned = number or self._committed
            self._sealed = False
        elif not self._sealed:
            answer = await claims.seal(self._epoch, self._planned)
            self._sealed = answer is True
            if answer is False:
                await self._start_over()
        else:
            for _ in range(stage.random.randint(1, 3)):
                if await claims.read(self._epoch, self._planned) is not True:
                    return
            self._committed = self._planned
            if stage.chance(0.3):
                await claims.ack(self._epoch, self._committed)

    async def _start_over(self) -> None:
        """The checkpoint is worth nothing any more: another query takes its place."""
        claims = self.claims
        self._begin()
        await claims.release(dead_letter=False, forget=True)
