"""Large leases, and many of them: what consumers say of them, message by message."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from nexo.simulation.large.shape import VISIBILITY_MS, Shape, bodies_of, expect, seqs_of
from nexo.vocabulary.settings import QueueSettings

if TYPE_CHECKING:
    from nexo.machine.pop import Delivery
    from nexo.simulation.large.shape import Site

_FEW = 40  # calls of a kind that is the same each time


class Lease(Shape):
    """All of a queue on one lease, and each of its messages spoken of by itself."""

    messages = 800

    async def fill(self, site: Site) -> None:
        await site.queue("heap")
        await site.singles("heap", _FEW)
        await site.batch("heap", self.size - _FEW)

    async def work(self, site: Site) -> None:
        queue = site.engine.queue("heap")
        delivery = await site.pop("heap", self.size, one_ack=False)
        if delivery.count < self.size:
            await site.engine.queue("heap").give_back(*_whole(delivery))
            delivery = await site.pop("heap", self.size, one_ack=False)
        expect(delivery.count == self.size, "a pop takes what it asks for", f"{delivery.count}")
        seqs, lease = seqs_of(delivery), delivery.lease
        order = list(seqs)
        if site.random.random() < 0.5:
            site.random.shuffle(order)
        for seq in order:
            site.asked()
            queue.received(lease, seq, seq + 1)
            await asyncio.sleep(0)
        for seq in order[:_FEW]:
            await queue.extend(lease, seq, seq + 1, VISIBILITY_MS)
        by_seq = dict(zip(seqs, bodies_of(delivery.parts), strict=True))
        for seq in order[_FEW : 2 * _FEW]:
            await queue.nack(lease, seq, seq + 1, 0)
        for seq in order[2 * _FEW :]:
            await queue.ack(lease, seq, seq + 1)
            site.account.done_with("heap", [by_seq[seq]])
        await asyncio.sleep(2 * VISIBILITY_MS / 1000)
        await site.drain("heap")


class FifoLease(Shape):
    """The same for groups of a FIFO queue that came in turns: a pop takes group after group, so
    what is on its lease is in no order."""

    messages = 800
    groups = 20

    async def fill(self, site: Site) -> None:
        await site.queue("one.fifo", QueueSettings(fifo=True))
        groups = [f"g{number % self.groups}" for number in range(self.size)]
        await site.batch("one.fifo", self.size, groups=groups)

    async def work(self, site: Site) -> None:
        queue = site.engine.queue("one.fifo")
        delivery = await site.pop("one.fifo", self.size, visibility_ms=VISIBILITY_MS)
        for seq, body in zip(seqs_of(delivery), bodies_of(delivery.parts), strict=True):
            await queue.ack(delivery.lease, seq, seq + 1)
            site.account.done_with("one.fifo", [body])
        await site.drain("one.fifo")


class Late(Shape):
    """Thousands in flight, each by itself as SQS delivers them, and receipts that come late."""

    messages = 800

    async def fill(self, site: Site) -> None:
        await site.queue("slow", QueueSettings(visibility_timeout_ms=1_000))
        await site.batch("slow", self.size)

    async def work(self, site: Site) -> None:
        queue = site.engine.queue("slow")
        seqs: list[int] = []
        bodies: list[bytes] = []
        for _ in range(self.size):
            delivery = await site.pop("slow", 1, visibility_ms=1_000)
            seqs += seqs_of(delivery)
            bodies += bodies_of(delivery.parts)
        await asyncio.sleep(2)
        for _ in range(self.size // 2):
            await site.pop("slow", 1)
        chosen = [0, self.size - 1, *site.random.sample(range(1, self.size - 1), _FEW)]
        for index in chosen:
            site.asked()
            expect(queue.holds(seqs[index]), "a message is there until it is acked", "gone")
            site.asked()
            queue.lease_of(seqs[index])
            await asyncio.sleep(0)
            gone = queue.discard(seqs[index])
            expect(gone is not None, "a late delete finds the message", f"{seqs[index]}")
            assert gone is not None
            await gone
            site.account.done_with("slow", [bodies[index]])
        await asyncio.sleep(VISIBILITY_MS / 1000 + 1)
        await site.drain("slow")


class Expiring(Shape):
    """Many leases, and large ones, that time out at one moment; most for the last time."""

    messages = 2_000

    async def fill(self, site: Site) -> None:
        settings = QueueSettings(
            visibility_timeout_ms=5_000, max_attempts=site.random.choice([1, 2])
        )
        await site.queue("doomed", settings)
        await site.singles("doomed", self.size // 20)
        await site.batch("doomed", self.size - self.size // 20)
        for _ in range(self.size // 4):
            await site.pop("doomed", 1, visibility_ms=5_000)
        for _ in range(3):
            await site.pop("doomed", self.size // 4, visibility_ms=5_000)

    async def work(self, site: Site) -> None:
        await asyncio.sleep(10)
        info = site.engine.queue("doomed").info()
        expect(info.in_flight == 0, "what is overdue comes back", f"{info}")
        while site.engine.queue("doomed").info().depth:
            await site.pop("doomed", 1_000, visibility_ms=5_000)
            await asyncio.sleep(10)
        site.account.left["doomed_dlq"] = site.account.left.pop("doomed")
        await site.drain("doomed_dlq")


class DeadLetters(Shape):
    """Everything is nacked for the last time, and redriven in the end."""

    messages = 1_000

    async def fill(self, site: Site) -> None:
        await site.queue("bad", QueueSettings(max_attempts=1))
        await site.singles("bad", 200)
        await site.batch("bad", self.size - 200)

    async def work(self, site: Site) -> None:
        queue = site.engine.queue("bad")
        while queue.info().depth:
            delivery = await site.pop("bad", 300)
            if site.random.random() < 0.5:
                for seq in seqs_of(delivery)[:_FEW]:
                    await queue.nack(delivery.lease, seq, seq + 1, 0, "it broke")
                seqs = seqs_of(delivery)[_FEW:]
            else:
                seqs = seqs_of(delivery)
            if seqs:
                site.asked(len(seqs))
                await queue.nack(delivery.lease, seqs[0], seqs[-1] + 1, 0, "it broke")
        dead = site.engine.queue("bad_dlq").info().depth
        expect(dead == self.size, "dead letters arrive", f"{dead} of {self.size}")
        task = await site.engine.redrive("bad_dlq")
        await task.finished
        await site.drain("bad")


def _whole(delivery: Delivery) -> tuple[int, int, int]:
    seqs = seqs_of(delivery)
    return delivery.lease, min(seqs), max(seqs) + 1


LEASES = [Lease, FifoLease, Late, Expiring, DeadLetters]
