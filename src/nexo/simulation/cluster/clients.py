"""Clients of a cluster: each call at any node, again and again until it is answered."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import msgspec

from nexo.simulation.cluster.ledger import Known, Ledger, dead_letters_of
from nexo.simulation.history import Violation
from nexo.vocabulary.batch import batch_of
from nexo.vocabulary.errors import NexoError, NotReady, Unreachable
from nexo.vocabulary.settings import QueueSettings

if TYPE_CHECKING:
    from random import Random

    from nexo.engine.engine import Engine
    from nexo.simulation.cluster.ledger import Letter
    from nexo.simulation.cluster.member import Given, Member, Work
    from nexo.simulation.cluster.network import Network

VISIBILITY_MS = 3_000
_PATIENCE_S = 12.0
_AGAIN_S = 0.2
_RETRYABLE = (NotReady, Unreachable)  # a client sees time pass, and nothing else

Taken = tuple[str, int, list[tuple[int, "Letter"]]]  # queue, lease, and what is on it by number


class Cluster:
    """The nodes as clients see them."""

    def __init__(self, network: Network, ledger: Ledger, random: Random) -> None:
        self.network, self.ledger, self.random = network, ledger, random
        self.members: dict[str, Member] = {}
        self.is_open = True

    async def call(self, queue: str, work: Work) -> Any:
        """Once, at any node. `_RETRYABLE`: nobody knows whether it was done."""
        member = self.members[self.random.choice(list(self.members))]
        try:
            return await self.network.ask(
                member.place, lambda: member.serve(queue, work), _PATIENCE_S
            )
        except _RETRYABLE:
            await asyncio.sleep(_AGAIN_S * self.random.random())
            raise
        except NexoError as error:
            raise Violation(
                "a client sees no error but time", f"{queue}: {error.code}: {error.message}"
            ) from error

    async def create(self, queue: str) -> None:
        """And the queue of its dead letters."""
        dead = dead_letters_of(queue)
        plain = QueueSettings(visibility_timeout_ms=VISIBILITY_MS, max_attempts=None)
        settings = msgspec.structs.replace(plain, max_attempts=2, dead_letter=dead)

        def creating(name: str, settings: QueueSettings) -> Work:
            async def create(engine: Engine, given: Given) -> None:
                await engine.create_queue(name, settings)

            return create

        await self.until_done(dead, creating(dead, plain))
        await self.until_done(queue, creating(queue, settings))

    async def until_done(self, queue: str, work: Work) -> Any:
        while True:
            try:
                return await self.call(queue, work)
            except _RETRYABLE:
                continue

    # -- Pushes -------------------------------------------------------------------------------

    async def produce(self, queue: str, producer: str) -> None:
        """Pushes with numbers, one after the other; each is sent until it is confirmed."""
        number = 0
        while self.is_open:
            number += 1
            letters = [self.ledger.letter(queue) for _ in range(self.random.randint(1, 4))]
            await self.push(queue, producer, number, letters)
            await asyncio.sleep(self.random.choice([0.0, 0.05, 0.5, 2.0]))

    async def push(self, queue: str, producer: str, number: int, letters: list[Letter]) -> None:
        history = self.ledger.history
        labels = [letter.body for letter in letters]
        batch = batch_of([letter.body.encode() for letter in letters])

        async def push(engine: Engine, given: Given) -> None:
            await engine.queue(queue).push(batch, producer, number)

        while True:
            for letter in letters:
                letter.pushed = Known.UNKNOWN
            history.add("push", queue, producer, number, *labels)
            try:
                await self.call(queue, push)
            except _RETRYABLE as error:
                history.add("unknown", queue, error.message, *labels)
                if not self.is_open:
                    return
                continue
            history.add("pushed", queue, *labels)
            for letter in letters:
                letter.pushed = Known.YES
            return

    # -- Deliveries ---------------------------------------------------------------------------

    async def consume(self, queue: str) -> None:
        while self.is_open:
            taken = await self.pop(queue, self.random.randint(1, 8), self.random.choice([0, 2_000]))
            if taken is None or self.random.random() < 0.1:  # it forgets what it has
                await asyncio.sleep(self.random.choice([0.01, 0.3]))
                continue
            await asyncio.sleep(self.random.choice([0.0, 0.0, 0.1, 2.5, 5.0]))
            if self.random.random() < 0.25:
                await self.nack(taken)
            else:
                await self.ack(taken)

    async def pop(self, queue: str, count: int, wait_ms: int) -> Taken | None:
        asked_at = self.ledger.history.add("pop", queue)

        async def pop(engine: Engine, given: Given) -> tuple[int, list[tuple[int, str, str]]]:
            actor = engine.queue(queue)
            delivery = await actor.pop(count, wait_ms=wait_ms, one_ack=True)
            if not delivery.parts:
                return 0, []
            given.check()
            messages = actor.messages(delivery)
            return delivery.lease, [(each.seq, each.id, each.body.decode()) for each in messages]

        try:
            lease, messages = await self.call(queue, pop)
        except _RETRYABLE:
            return None
        if not messages:
            return None
        self.ledger.history.add("popped", queue, f"{lease:#x}", *[body for _, _, body in messages])
        return (
            queue,
            lease,
            [
                (seq, self.ledger.delivered(queue, body, message_id, asked_at))
                for seq, message_id, body in messages
            ],
        )

    async def ack(self, taken: Taken) -> None:
        """A second try of an ack that is stale then may have been done at the first, or not. Of one
        message several may be under way: it was delivered again meanwhile."""
        queue, lease, held = taken
        history = self.ledger.history
        labels = [letter.body for _, letter in held]
        ranges = [(lease, seq, seq + 1) for seq, _ in held]

        async def ack(engine: Engine, given: Given) -> set[int]:
            refused = await engine.queue(queue).ack_ranges(ranges)
            return {seq for _, first, end, _ in refused for seq in range(first, end)}

        for _, letter in held:
            letter.doubts += 1
        for attempt in range(3):
            history.add("ack", queue, f"{lease:#x}", *labels)
            try:
                refused = await self.call(queue, ack)
            except _RETRYABLE as error:
                history.add("unknown", queue, error.message, *labels)
                continue
            at = history.add("acked", queue, f"{lease:#x}", *labels, "but", *sorted(refused))
            for seq, letter in held:
                if seq not in refused:
                    letter.acked_at = letter.acked_at or at
                elif attempt == 0:
                    letter.doubts -= 1
            return

    async def nack(self, taken: Taken) -> None:
        """After the second time they are dead letters, in another shard as a rule."""
        queue, lease, held = taken
        ranges = [(lease, seq, seq + 1) for seq, _ in held]
        self.ledger.history.add("nack", queue, f"{lease:#x}", *[each.body for _, each in held])

        async def nack(engine: Engine, given: Given) -> None:
            await engine.queue(queue).nack_ranges(ranges, 0, "no")

        with contextlib.suppress(*_RETRYABLE):
            await self.call(queue, nack)
