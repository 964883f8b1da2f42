"""Consumers: they pop, wait or subscribe, ack in parts, late or never, nack, extend and vanish."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from nexo.vocabulary.errors import QueueNotFound

if TYPE_CHECKING:
    from nexo.engine.waiting_room import Waiter
    from nexo.simulation.witness import Taken
    from nexo.simulation.workload.stage import Stage


class Consumer:
    def __init__(self, stage: Stage, queue: str, number: int) -> None:
        random = stage.random
        self.stage = stage
        self.queue = queue
        self.pace_ms = random.choice([15, 40, 120])
        self._name = f"consumer-{number}"
        self._one_ack = random.random() < 0.5
        self._visibility_ms = random.choice([None, None, 150, 2_000])
        self._count = random.choice([1, 2, 5, 20])
        self._subscribes = random.random() < 0.4
        self._care = random.choice([0.5, 0.8, 0.95])  # how often it does what it should
        self._waiter: Waiter | None = None
        self._boot: object = None  # a subscription lives as long as the broker
        self._taken: list[Taken] = []

    async def act(self) -> None:
        random = self.stage.random
        if self._boot is not self.stage.witness.engine:
            self._boot, self._waiter = self.stage.witness.engine, None
        if self._taken and random.random() < 0.7:
            taken = self._taken.pop(random.randrange(len(self._taken)))
            await self._work(taken)
        elif self._subscribes:
            self._subscribe()
        else:
            await self._pop()

    def leave(self) -> None:
        """End the subscription, if there is one."""
        waiter, self._waiter = self._waiter, None
        if waiter is not None and self._boot is self.stage.witness.engine:
            with contextlib.suppress(QueueNotFound):  # it may be gone after a failed commit
                self.stage.witness.unsubscribe(self.queue, waiter)
        self._taken.clear()

    # -- Taking -------------------------------------------------------------------------------

    def _options(self) -> dict[str, Any]:
        return {
            "consumer": self._name,
            "visibility_ms": self._visibility_ms,
            "one_ack": self._one_ack,
        }

    async def _pop(self) -> None:
        stage, random = self.stage, self.stage.random
        options = self._options()
        options["wait_ms"] = random.choice([0, 0, 100, 1_000])
        if random.random() < 0.2:
            options["bytes_max"] = random.choice([1, 100, 1_000])
        if options["wait_ms"] and random.random() < 0.1:
            await self._pop_and_leave(options)
            return
        taken = await stage.witness.pop(self.queue, random.randint(1, self._count), **options)
        if taken is not None:
            self._taken.append(taken)

    async def _pop_and_leave(self, options: dict[str, Any]) -> None:
        """The connection breaks while the pop waits; what it got in the last moment goes back."""
        pop = asyncio.ensure_future(self.stage.witness.pop(self.queue, self._count, **options))
        await self.stage.nap(options["wait_ms"] / 2)
        if not pop.cancel() and (taken := pop.result()) is not None:
            self._taken.append(taken)
        await asyncio.wait([pop])

    def _subscribe(self) -> None:
        stage, witness = self.stage, self.stage.witness
        waiter = self._waiter
        if waiter is None:
            self._waiter = witness.subscribe(
                self.queue, self._count, self._taken.append, **self._options()
            )
        elif stage.chance(0.1):
            self.leave()
        elif waiter.free < self._count:
            witness.queue(self.queue).grant(waiter, stage.random.randint(1, self._count))

    # -- Working ------------------------------------------------------------------------------

    async def _work(self, taken: Taken) -> None:
        stage, witness, random = self.stage, self.stage.witness, self.stage.random
        seqs = sorted(taken.seqs)
        first, end = seqs[0], seqs[-1] + 1
        if random.random() < 0.3:  # only a part of it
            low = random.randrange(len(seqs))
            high = random.randrange(low, len(seqs))
            first, end = seqs[low], seqs[high] + 1
        partly = (first, end) != (seqs[0], seqs[-1] + 1)
        if not taken.is_received and random.random() < 0.95:
            witness.received(taken, first, end)
        draw = random.random()
        if draw < self._care:
            if random.random() < 0.3:
                await stage.nap(random.choice([10, 100, 1_000]))  # work takes its time
            await witness.ack(taken, first, end)
            if random.random() < 0.05:
                await witness.ack(taken, first, end)  # it did not hear the answer
            if partly:
                self._taken.append(taken)
            return
        draw = random.random()
        if draw < 0.4:
            await witness.nack(taken, first, end, random.choice([None, 0, 0, 300]), "it broke")
        elif draw < 0.55:
            await witness.extend(taken, first, end, random.choice([0, 200, 1_500]))
            self._taken.append(taken)
        elif draw < 0.65:
            await witness.give_back(taken, first, end)
        elif draw < 0.75:
            await stage.nap(1_500)  # too late, mostly
            await witness.ack(taken, first, end)
        # else it crashes: nothing more is ever said of these
