"""Many small chunks: messages that came one by one, each in a commit of its own."""

from __future__ import annotations

import asyncio
import gc
import sys
from typing import TYPE_CHECKING, ClassVar

from nexo.simulation.large.shape import VISIBILITY_MS, Shape, bodies_of, expect, ranges_of
from nexo.simulation.plan import End
from nexo.vocabulary.attributes import encode_attributes
from nexo.vocabulary.names import archive_name
from nexo.vocabulary.settings import QueueSettings

if TYPE_CHECKING:
    from nexo.machine.pop import Delivery
    from nexo.simulation.large.shape import Life, Site

_RED, _BLUE = (encode_attributes({"colour": colour}) for colour in ("red", "blue"))
_WANTED = {"colour": "red"}
_TIMERS_S = 4_000.0  # after so long no timer is left
_WAIT_S = 5.0  # for what must come by itself


async def _publish_apart(site: Site, topic: str, queue: str) -> None:
    """A message that becomes a chunk by itself in the queue: of its row the queue takes no more."""
    bodies = site.account.new(queue, 2)
    site.account.left[queue].update(bodies[:1])
    await site.publish_bodies(topic, bodies, attributes=[_RED, _BLUE])


class Subscriber(Shape):
    """A topic was published to message by message; after a restart somebody subscribes to the
    queue bound to it, with room for much. Nothing else may stand still for that."""

    messages = 800

    async def fill(self, site: Site) -> None:
        await site.topic("news")
        await site.queue("inbox")
        await site.queue("other")
        await site.engine.bind("news", "inbox", _WANTED)
        for _ in range(self.size):
            await _publish_apart(site, "news", "inbox")

    async def work(self, site: Site) -> None:
        inbox, came = site.engine.queue("inbox"), 0
        prefetch = self.size * 2 // 3

        def deliver(delivery: Delivery) -> None:
            nonlocal came
            came += delivery.count

        def fail(error: Exception) -> None:
            raise error

        waiter = inbox.subscribe(prefetch, deliver, fail, visibility_ms=3_600_000, one_ack=True)
        await site.singles("other", 5)
        await asyncio.sleep(_WAIT_S)
        expect(
            came == prefetch,
            "a subscriber with room gets what is there",
            f"{came} messages came of {prefetch} that it has room for",
        )
        inbox.unsubscribe(waiter)
        await site.drain("inbox")
        await site.drain("other")


class Past(Shape):
    """Queues that many messages went through, and that are empty."""

    messages = 1_600
    queues = 2

    async def fill(self, site: Site) -> None:
        names = [f"past-{number}" for number in range(self.queues)]
        for name in names:
            await site.queue(name)
        for _ in range(self.size // self.queues // 4):
            for name in names:
                await site.batch(name, 4)
                delivery = await site.pop(name, 3)
                site.account.done_with(name, bodies_of(delivery.parts))
                for first, end in ranges_of(delivery):
                    await site.engine.queue(name).ack(delivery.lease, first, end)
            if site.random.random() < 0.1:
                for name in names:
                    await site.drain(name)
        for name in names:
            await site.drain(name)

    async def work(self, site: Site) -> None:
        """The start was all there is to see. What goes on from here goes on."""
        await site.singles("past-0", 3)
        await site.drain("past-0")

    def lives(self) -> list[Life]:
        return [self.fill, self.work, self.work]


class QuietPast(Past):
    """The same where nobody tells the life of messages, so there is no topic to keep anything."""

    options: ClassVar[dict[str, object]] = {"events": None}


class Archive(Shape):
    """A queue with an archive took messages one by one, and they are gone from it."""

    messages = 700
    messages_a_chunk = 8  # at least, on average

    async def fill(self, site: Site) -> None:
        queue = await site.queue("kept", QueueSettings(archive=True))
        for _ in range(self.size // 100):
            await site.singles("kept", 100)
            delivery = await site.pop("kept", 90)
            site.account.done_with("kept", bodies_of(delivery.parts))
            for first, end in ranges_of(delivery):
                await queue.ack(delivery.lease, first, end)
        chunks = len(site.engine.topic(archive_name("kept")).topic.log.chunks)
        expect(
            chunks <= self.size // self.messages_a_chunk + 16,
            "what is kept in many small pieces is kept as few",
            f"{self.size} archived messages are {chunks} chunks",
        )

    async def work(self, site: Site) -> None:
        await site.drain("kept")
        archive = site.engine.topic(archive_name("kept"))
        offset, read = 0, 0
        while offset < self.size // 100 * 100:
            site.asked(200)
            reading = await archive.read(offset, 200)
            expect(reading.next > offset, "an archive keeps all", f"nothing at {offset}")
            read += sum(part.count for part in reading.parts)
            offset = reading.next
        expect(read == offset, "an archive keeps each message once", f"{read} of {offset}")
        await site.singles("kept", 5)
        await site.drain("kept")


class Claims(Shape):
    """Spark claims from a backlog that came message by message."""

    messages = 600
    memory_limit_bytes = 2_000

    async def fill(self, site: Site) -> None:
        await site.topic("rows")
        await site.queue("table")
        await site.engine.bind("rows", "table", _WANTED)
        for _ in range(self.size):
            await _publish_apart(site, "rows", "table")

    async def work(self, site: Site) -> None:
        desk, wanted, got, number = site.engine.queue("table").claims, self.size // 2, 0, 0
        epoch = await desk.open("spark")
        while got < self.size:
            site.asked(wanted)
            claim = await desk.claim("spark", epoch, number, wanted, 60_000)
            expect(
                claim.count == min(wanted, self.size - got),
                "a claim takes as many as were asked for",
                f"it took {claim.count} of {wanted}, and {self.size - got} are there",
            )
            site.asked(claim.count)
            await desk.seal("spark", epoch, claim.number)
            await self._read(site, epoch, claim.number, claim.count)
            got, number = got + claim.count, claim.number
        site.asked(self.size)
        await desk.ack("spark", epoch, number)
        depth = site.engine.queue("table").info().depth
        expect(depth == 0, "what is acked is gone", f"{depth} are left")

    async def _read(self, site: Site, epoch: int, number: int, count: int) -> None:
        """A batch is read in slices, as Spark's partitions are."""
        desk, slice_count = site.engine.queue("table").claims, max(1, count // 4)
        for start in range(0, count, slice_count):
            site.asked(count)  # a slice is looked for from the beginning of its batch
            read = await desk.read("spark", epoch, number, start, slice_count)
            bodies = bodies_of(read.parts)
            site.account.done_with("table", bodies)


class Filtered(Shape):
    """A binding wants every other message of large batches; after a restart it is drained in
    small pops, which must not read a row once for each of its messages."""

    messages = 1_600
    batch = 400

    async def fill(self, site: Site) -> None:
        await site.topic("all")
        await site.queue("red")
        await site.engine.bind("all", "red", _WANTED)
        for _ in range(self.size // self.batch):
            bodies = site.account.new("all", self.batch)
            site.account.left["red"].update(bodies[::2])
            await site.publish_bodies("all", bodies, attributes=[_RED, _BLUE] * (self.batch // 2))

    async def work(self, site: Site) -> None:
        queue = site.engine.queue("red")
        while queue.info().depth:
            delivery = await site.pop("red", 7, wait_ms=100)
            site.account.done_with("red", bodies_of(delivery.parts))
            await asyncio.gather(*[queue.ack(delivery.lease, *r) for r in ranges_of(delivery)])
        await site.drain("red")


class Sparse(Shape):
    """Large batches of which a few messages each are left, among many that are in flight."""

    messages = 4_000
    batch = 100

    async def fill(self, site: Site) -> None:
        queue = await site.queue("thin")
        for _ in range(self.size // self.batch):
            await site.batch("thin", self.batch)
        taken = [await site.pop("thin", self.batch) for _ in range(self.size // self.batch)]
        for delivery in taken:
            first, end = delivery.parts[0].first, delivery.parts[0].first + self.batch
            await queue.ack(delivery.lease, first + 3, end)
            site.account.done_with("thin", bodies_of(delivery.parts)[3:])
            await queue.give_back(delivery.lease, first, first + 1)

    async def work(self, site: Site) -> None:
        await asyncio.sleep(VISIBILITY_MS / 1000 + 1)
        await site.drain("thin")


class Flood(Shape):
    """Steady load: nothing may be left of what came and went."""

    messages = 750
    end = End.CLOSE
    needs_disk = True  # a journal in memory is memory
    options: ClassVar[dict[str, object]] = {"events": None}

    async def fill(self, site: Site) -> None:
        await site.queue("river")
        counts = []
        for _ in range(3):
            for _ in range(self.size // 3 // 5):
                await site.singles("river", 5)
                await site.drain("river")
            await asyncio.sleep(_TIMERS_S)
            gc.collect()
            counts.append(sys.getallocatedblocks())
        left = counts[2] - counts[1]
        expect(
            left <= self.size // 3 // 2,
            "what came and went leaves nothing behind",
            f"{self.size // 3} messages left {left} blocks of memory",
        )

    async def work(self, site: Site) -> None:
        await site.drain("river")


CHUNKS = [Subscriber, Past, QuietPast, Archive, Claims, Filtered, Sparse, Flood]
