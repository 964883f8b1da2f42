"""What rules bound: depth, rate, attempts, windows and retention, at size."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from nexo.simulation.large.shape import Shape, bodies_of, expect, ranges_of, seqs_of
from nexo.vocabulary.batch import Batch, batch_of
from nexo.vocabulary.errors import QueueFull
from nexo.vocabulary.settings import Backoff, QueueSettings, TopicSettings

if TYPE_CHECKING:
    from nexo.engine.topic_actor import TopicActor
    from nexo.simulation.large.shape import Site

_BURST_MS = 100  # what a rate lets through at once


class Retention(Shape):
    """Topics that keep the newest by count, by bytes or by age, published to one by one."""

    messages = 300
    kept_messages = 50
    kept_bytes = 400
    kept_ms = 2_000

    async def fill(self, site: Site) -> None:
        await site.topic("count", TopicSettings(retention_messages=self.kept_messages))
        await site.topic("bytes", TopicSettings(retention_bytes=self.kept_bytes))
        await site.topic("age", TopicSettings(retention_ms=self.kept_ms))
        for number in range(self.size):
            for name in ("count", "bytes", "age"):
                await site.publish(name, [], 1 if number % 50 else 60)
            await asyncio.sleep(0.01)
        await self._check(site)

    async def work(self, site: Site) -> None:
        await self._check(site)
        await asyncio.sleep(self.kept_ms / 1000 + 1)
        age = site.engine.topic("age").topic
        expect(age.start == age.log.end, "what is too old goes", f"{age.start} of {age.log.end}")

    async def _check(self, site: Site) -> None:
        for name in ("count", "bytes", "age"):
            topic = site.engine.topic(name)
            bodies = await _read_all(site, topic)
            end = topic.topic.log.settled
            newest = b"%s/%d" % (name.encode(), end - 1)
            expect(
                name == "age" or bodies[-1:] == [newest],
                "retention keeps the newest",
                f"{name} shows {bodies[-1:]} last, and {end} were published",
            )
            expect(
                len(topic.topic.log.chunks) <= 2 * len(bodies) + 2,
                "what is beyond the retention is gone",
                f"{name} holds {len(topic.topic.log.chunks)} chunks for {len(bodies)} messages",
            )
            size = sum(map(len, bodies))
            if name == "count":
                is_right = len(bodies) == self.kept_messages
            else:
                is_right = name == "age" or self.kept_bytes // 2 <= size <= 2 * self.kept_bytes
            expect(is_right, "a topic keeps what it says", f"{name} keeps {len(bodies)}, {size} B")


class Depth(Shape):
    """A queue takes so many and no more, also while they are in flight."""

    messages = 600

    async def fill(self, site: Site) -> None:
        await site.queue("small", QueueSettings(max_depth=self.size))
        await site.batch("small", self.size)
        await self._refuse(site)

    async def work(self, site: Site) -> None:
        await self._refuse(site)
        queue = site.engine.queue("small")
        delivery = await site.pop("small", self.size // 2)
        await self._refuse(site)
        for first, end in ranges_of(delivery):
            await queue.ack(delivery.lease, first, end)
        site.account.done_with("small", bodies_of(delivery.parts))
        await site.batch("small", delivery.count)
        await self._refuse(site)
        await site.drain("small")

    async def _refuse(self, site: Site) -> None:
        for bodies in ([b"one"], [b"many"] * 5):
            try:
                await site.push("small", list(bodies))
            except QueueFull:
                site.account.left["small"].difference_update(bodies)
                continue
            expect(False, "a full queue takes no more", f"{bodies} were accepted")


class Paced(Shape):
    """A rate limit, a backlog, and somebody who always wants more."""

    messages = 200
    rate = 100.0

    async def fill(self, site: Site) -> None:
        await site.queue("tap", QueueSettings(max_receive_rate=self.rate))
        await site.batch("tap", self.size // 2)
        await site.singles("tap", self.size // 2)

    async def work(self, site: Site) -> None:
        loop, queue = asyncio.get_running_loop(), site.engine.queue("tap")
        began_s, got = loop.time(), 0
        while got < self.size:
            delivery = await site.pop("tap", 50, wait_ms=10_000)
            got += delivery.count
            allowed = self.rate * (loop.time() - began_s + _BURST_MS / 1000) + 1
            expect(got <= allowed, "a rate limit holds", f"{got} came, {allowed:.0f} may")
            site.account.done_with("tap", bodies_of(delivery.parts))
            for first, end in ranges_of(delivery):
                await queue.ack(delivery.lease, first, end)
        took_s = loop.time() - began_s
        slowest_s = 2 * self.size / self.rate
        expect(took_s < slowest_s, "a rate limit lets through what it says", f"{took_s:.1f} s")


class Retries(Shape):
    """Everything fails a few times, each time waiting longer, and then is a dead letter."""

    messages = 400
    attempts = 3
    backoff = Backoff(initial_ms=1_000, factor=4.0, max_ms=60_000, jitter=0.5)

    async def fill(self, site: Site) -> None:
        settings = QueueSettings(max_attempts=self.attempts, backoff=self.backoff)
        await site.queue("hard", settings)
        await site.batch("hard", self.size // 2)
        await site.singles("hard", self.size // 2)

    async def work(self, site: Site) -> None:
        queue, loop = site.engine.queue("hard"), asyncio.get_running_loop()
        failed_s: dict[int, float] = {}
        attempts: dict[int, int] = {}
        while queue.info().depth:
            delivery = await site.pop("hard", 37, wait_ms=100_000)
            for seq in seqs_of(delivery):
                attempts[seq] = attempts.get(seq, 0) + 1
                self._check_waited(attempts[seq], loop.time() - failed_s.get(seq, 0.0))
                failed_s[seq] = loop.time()
            for first, end in ranges_of(delivery):
                await queue.nack(delivery.lease, first, end)
        wrong = {seq: count for seq, count in attempts.items() if count != self.attempts}
        expect(not wrong, "each message has its attempts", f"{wrong}")
        site.account.left["hard_dlq"] = site.account.left.pop("hard")
        await site.drain("hard_dlq")

    def _check_waited(self, attempt: int, waited_s: float) -> None:
        if attempt > 1:
            least_ms = self.backoff.initial_ms * self.backoff.factor ** (attempt - 2)
            least_ms *= 1 - self.backoff.jitter
            expect(waited_s * 1000 >= least_ms - 1, "a backoff is waited out", f"{waited_s} s")


class Keys(Shape):
    """Deduplication keys by the thousand, whose window is made shorter: they go with it."""

    messages = 1_200

    async def fill(self, site: Site) -> None:
        settings = QueueSettings(deduplication="id", deduplication_window_ms=3_600_000)
        await site.queue("once", settings)
        for start in range(0, self.size // 2, 20):
            ids = [f"k{number}" for number in range(start, start + 20)]
            await site.batch("once", 20, deduplication_ids=ids)
            accepted = await site.engine.queue("once").push(_again(ids))
            expect(accepted.duplicates == 20, "a repeated message is recognised", f"{accepted}")
        await site.drain("once")

    async def work(self, site: Site) -> None:
        queue = site.engine.queue("once")
        shorter = QueueSettings(deduplication="id", deduplication_window_ms=1_000)
        await site.engine.edit_queue("once", shorter)
        for start in range(self.size // 2, self.size, 20):
            ids = [f"k{number}" for number in range(start, start + 20)]
            await site.batch("once", 20, deduplication_ids=ids)
            await asyncio.sleep(0.2)
        await asyncio.sleep(10)
        await site.batch("once", 1, deduplication_ids=["last"])
        await site.drain("once")
        await asyncio.sleep(0)
        recent = queue.queue.recent
        kept = len(recent) if recent is not None else 0
        expect(
            kept <= self.size // 2 + 100,
            "keys go when their window is over",
            f"{kept} are kept of {self.size}, and half of them are over",
        )


class Queues(Shape):
    """Very many queues that are empty, and some that are not."""

    messages = 250

    async def fill(self, site: Site) -> None:
        names = [f"q{number}" for number in range(self.size)]
        for name in names:
            await site.queue(name)
        for name in names[::10]:
            await site.singles(name, 2)

    async def work(self, site: Site) -> None:
        for number in range(0, self.size, 50):
            await site.singles(f"q{number}", 1)
            await site.drain(f"q{number}")


def _again(ids: list[str]) -> Batch:
    return msgspec.structs.replace(batch_of([b"again"] * len(ids)), deduplication_ids=ids)


async def _read_all(site: Site, topic: TopicActor) -> list[bytes]:
    offset, bodies = topic.topic.start, list[bytes]()
    while offset < topic.topic.log.settled:
        site.asked(200)
        reading = await topic.read(offset, 100)
        bodies += bodies_of(reading.parts)
        offset = reading.next
    return bodies


QUOTAS = [Retention, Depth, Paced, Retries, Keys, Queues]
