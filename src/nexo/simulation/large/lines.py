"""Long lines: many priorities, groups, delays, topics and bindings."""

from __future__ import annotations

import asyncio
from array import array
from typing import TYPE_CHECKING, ClassVar

from nexo.engine.peek import find, glimpses
from nexo.simulation.large.shape import VISIBILITY_MS, Shape, bodies_of, expect, ranges_of, seqs_of
from nexo.vocabulary.batch import TIME_TYPE
from nexo.vocabulary.settings import QueueSettings

if TYPE_CHECKING:
    from nexo.engine.followers import Found
    from nexo.simulation.large.shape import Life, Site
    from nexo.vocabulary.message import Message

_FEW = 40
_DUE_MS = 60_000


class Priorities(Shape):
    """A line for each of 256 priorities."""

    priorities = 256

    def lives(self) -> list[Life]:
        return [self.all]

    async def all(self, site: Site) -> None:
        await self.fill(site)
        await site.drain("ranks")

    async def fill(self, site: Site) -> None:
        await site.queue("ranks")
        for priority in range(self.priorities):
            await site.singles("ranks", 1, priority=priority)
        await self._rounds(site)

    async def _rounds(self, site: Site) -> None:
        queue = site.engine.queue("ranks")
        before = 255 << 48
        for _ in range(_FEW):
            await site.singles("ranks", 1)
            delivery = await site.pop("ranks", 1)
            seq = seqs_of(delivery)[0]
            expect(seq >> 48 <= before >> 48, "the highest priority goes first", f"{seq}")
            before = seq
            await queue.ack(delivery.lease, seq, seq + 1)
            site.account.done_with("ranks", bodies_of(delivery.parts))


class RevivedPriorities(Priorities):
    """The same after a restart, when no content is in memory."""

    def lives(self) -> list[Life]:
        return [self.fill, self.work]

    async def work(self, site: Site) -> None:
        await self._rounds(site)
        await site.drain("ranks")


class Groups(Shape):
    """A fair queue with thousands of tenants."""

    settings = QueueSettings(max_attempts=None)
    name = "tenants"
    messages = 2_000

    async def fill(self, site: Site) -> None:
        await site.queue(self.name, self.settings)
        groups = [f"tenant-{number}" for number in range(self.size // 2)]
        await site.batch(self.name, self.size // 2, groups=groups)
        for start in range(0, self.size // 2, 100):
            await site.batch(self.name, 100, groups=groups[start : start + 100])

    async def work(self, site: Site) -> None:
        queue = site.engine.queue(self.name)
        for _ in range(_FEW):
            await site.singles(self.name, 1, groups=f"tenant-{site.random.randrange(self.size)}")
            delivery = await site.pop(self.name, 1)
            (seq,) = seqs_of(delivery)
            if site.random.random() < 0.5:
                await queue.ack(delivery.lease, seq, seq + 1)
                site.account.done_with(self.name, bodies_of(delivery.parts))
            else:
                await queue.nack(delivery.lease, seq, seq + 1, 0)
        await asyncio.sleep(0)
        site.asked(32)  # a piece of the queue is looked through
        for message in await queue.peek(10):
            if not self.settings.fifo:
                site.asked()
                await asyncio.sleep(0)
                gone = queue.discard(message.seq)
                expect(gone is not None, "a late delete finds the message", f"{message.seq}")
                assert gone is not None
                await gone
                site.account.done_with(self.name, [message.body])
        await site.drain(self.name)


class FifoGroups(Groups):
    """A FIFO queue with thousands of groups."""

    settings = QueueSettings(fifo=True, max_attempts=None)
    name = "groups.fifo"
    messages = 1_000


class FifoTurns(Shape):
    """One group of a FIFO queue is locked; thousands of messages wait behind it, some of them for
    a time. What is too old goes, locked or not."""

    messages = 800

    async def fill(self, site: Site) -> None:
        await site.queue("turns.fifo", QueueSettings(fifo=True, retention_ms=100_000))
        await site.batch("turns.fifo", self.size, groups="stuck")
        for _ in range(_FEW):
            await site.singles("turns.fifo", 1, groups="free")

    async def work(self, site: Site) -> None:
        queue = site.engine.queue("turns.fifo")
        delivery = await site.pop("turns.fifo", 1)
        for _ in range(_FEW):
            other = await site.pop("turns.fifo", 1)
            (seq,) = seqs_of(other)
            await queue.ack(other.lease, seq, seq + 1)
            site.account.done_with("turns.fifo", bodies_of(other.parts))
        await asyncio.sleep(200)
        info = queue.info()
        expect(
            info.depth == delivery.count == info.in_flight,
            "what is too old goes, also behind a locked group",
            f"{info}",
        )
        site.account.left["turns.fifo"].clear()


class Delays(Shape):
    """Each message waits for a time of its own; many commits, and one commit of many."""

    messages = 800

    async def fill(self, site: Site) -> None:
        await site.queue("later")
        pushes = [
            site.push("later", [body], delay_ms=_DUE_MS + number)
            for number, body in enumerate(site.account.new("later", self.size // 2))
        ]
        await asyncio.gather(*pushes)
        delays = array(TIME_TYPE, [_DUE_MS + 7 * n for n in range(self.size // 2)])
        await site.batch("later", self.size // 2, delay_ms=delays)

    async def work(self, site: Site) -> None:
        queue = site.engine.queue("later")
        seen: list[Message] = []
        for _ in range(_FEW // 4):
            site.asked(10)
            seen = await queue.peek(10)
            expect(len(seen) == 10, "a peek shows what waits", f"{len(seen)}")
            await asyncio.sleep(0)
        site.asked(10)
        await glimpses(queue, 10, 1 << 20)
        for message in seen:
            await asyncio.sleep(0)
            site.asked()
            found = await find(queue, message.seq)
            expect(found is not None, "a message that waits is found", f"{message.seq}")
        await site.singles("later", 5)
        await asyncio.sleep(_DUE_MS / 1000 + self.size)
        await site.drain("later")


class OneCommit(Shape):
    """Many batches in one commit, each a chunk of its own that waits for a time of its own."""

    messages = 2_000
    limits: ClassVar[dict[str, int]] = {"SMALL_PUSH_MESSAGES": 1}

    async def fill(self, site: Site) -> None:
        await site.queue("rush")
        await site.singles("rush", 1)
        pushes = [
            site.push("rush", [body], delay_ms=_DUE_MS + number)
            for number, body in enumerate(site.account.new("rush", self.size))
        ]
        await asyncio.gather(*pushes)

    async def work(self, site: Site) -> None:
        await asyncio.sleep(_DUE_MS / 1000 + self.size)
        await site.drain("rush")


class DueAtOnce(Shape):
    """More messages fall due at one moment than one step may handle."""

    messages = 12_000

    async def fill(self, site: Site) -> None:
        await site.queue("noon")
        await site.queue("other")
        groups = [f"g{number % 100}" for number in range(self.size)]
        await site.batch("noon", self.size, delay_ms=_DUE_MS, groups=groups)

    async def work(self, site: Site) -> None:
        await asyncio.sleep(_DUE_MS / 1000 + 1)
        info = site.engine.queue("noon").info()
        expect(info.ready == self.size, "what is due comes", f"{info}")
        await site.singles("other", 3)
        site.asked(self.size)
        await site.engine.queue("noon").purge()
        site.account.left["noon"].clear()
        await site.drain("other")


class Bindings(Shape):
    """A topic for each queue, many times over: what is defined and published costs the same."""

    messages = 450

    async def fill(self, site: Site) -> None:
        for number in range(self.size):
            await site.topic(f"t{number}")
            await site.queue(f"q{number}")
            await site.engine.bind(f"t{number}", f"q{number}")

    async def work(self, site: Site) -> None:
        for number in site.random.sample(range(self.size), _FEW):
            await site.publish(f"t{number}", [f"q{number}"], 1)
            delivery = await site.pop(f"q{number}", 1, wait_ms=100)
            queue = site.engine.queue(f"q{number}")
            for first, end in ranges_of(delivery):
                await queue.ack(delivery.lease, first, end)
            site.account.done_with(f"q{number}", bodies_of(delivery.parts))


class Followers(Shape):
    """Readers that wait for whatever comes to any of many topics."""

    messages = 200
    readers = 20

    async def fill(self, site: Site) -> None:
        for number in range(self.size):
            await site.topic(f"t{number}")

    async def work(self, site: Site) -> None:
        async def follow() -> list[Found]:
            site.asked(2 * self.size)  # it looks at all of them once
            return await site.engine.follow(">", {}, 10, 1 << 20, 3_000_000)

        waiting = [asyncio.ensure_future(follow()) for _ in range(self.readers)]
        await asyncio.sleep(1)
        await site.publish("t7", [], 1)
        site.asked(self.readers)
        found = await asyncio.gather(*waiting)
        expect(all(found), "who follows is told", f"{sum(map(bool, found))} of {len(found)}")
        await asyncio.sleep(VISIBILITY_MS / 1000)


LINES = [
    Priorities,
    RevivedPriorities,
    Groups,
    FifoGroups,
    FifoTurns,
    Delays,
    OneCommit,
    DueAtOnce,
    Bindings,
    Followers,
]
