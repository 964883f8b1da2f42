"""A shape: something large, and what it works with, one broker, its time, and an account of every
message."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from nexo.simulation.history import Violation
from nexo.vocabulary.batch import batch_of
from nexo.vocabulary.limits import SEQUENCE_BITS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from random import Random

    from nexo.engine.engine import Engine
    from nexo.engine.queue_actor import QueueActor
    from nexo.engine.topic_actor import TopicActor
    from nexo.machine.pop import Delivery, Part
    from nexo.simulation.plan import End
    from nexo.simulation.store import WatchedJournal
    from nexo.vocabulary.settings import QueueSettings, TopicSettings

    Life = Callable[["Site"], Awaitable[None]]

_DRAIN_MESSAGES = 500  # a pop
_DRAIN_S = 3_600.0  # of virtual time
VISIBILITY_MS = 3_600_000
_BETWEEN_S = 0.001  # two messages of one producer


class Shape:
    """Something large. Between two of its lives the broker is killed or closed."""

    messages = 1_000  # at scale 1: enough that what grows with them is far beyond its bound
    end: ClassVar[End | None] = None  # of all lives but the last; None: drawn
    memory_limit_bytes = 1 << 30
    needs_disk = False  # else the journal may be in memory
    options: ClassVar[dict[str, Any]] = {}  # of the engine
    limits: ClassVar[dict[str, int]] = {}  # that are other than usual

    def __init__(self, random: Random, scale: float) -> None:
        self.random = random
        self.size = int(self.messages * scale)

    def lives(self) -> list[Life]:
        return [self.fill, self.work]

    async def fill(self, site: Site) -> None:
        raise NotImplementedError

    async def work(self, site: Site) -> None:
        raise NotImplementedError


def expect(is_so: bool, promise: str, found: str) -> None:
    if not is_so:
        raise Violation(promise, found)


class Account:
    """What was accepted and is not done with, by queue; it outlives the broker."""

    def __init__(self) -> None:
        self.left: defaultdict[str, set[bytes]] = defaultdict(set)
        self.total_bytes = 0
        self._numbers: Counter[str] = Counter()

    def new(self, home: str, count: int) -> list[bytes]:
        """Bodies that are like no others."""
        first = self._numbers[home]
        self._numbers[home] += count
        bodies = [b"%s/%d" % (home.encode(), n) for n in range(first, first + count)]
        self.total_bytes += sum(map(len, bodies))
        return bodies

    def done_with(self, name: str, bodies: list[bytes]) -> None:
        """These came to a consumer, who keeps them: they must have been there."""
        left = self.left[name]
        for body in bodies:
            if body not in left:
                raise Violation("a message is delivered once", f"{body!r} of {name} came again")
            left.remove(body)


class Site:
    """One life of the broker."""

    def __init__(
        self, engine: Engine, journal: WatchedJournal, random: Random, account: Account
    ) -> None:
        self.engine = engine
        self.journal = journal
        self.random = random
        self.account = account
        self._asked = 0
        self._written = self._ended = (0, 0)  # how many commits, and what was moved by then

    def asked(self, messages: int = 1) -> None:
        """A call that the totals of queues do not count is about to be made for so many."""
        self._asked += messages

    def handled(self) -> int:
        """How much was done for somebody so far: the meter asks before and after each step."""
        done = self._asked + self.journal.units
        moved = 0
        for actor in self.engine.queues.values():
            queue, totals = actor.queue, actor.queue.totals
            moved += totals.pushed + totals.delivered + totals.acked
            moved += totals.nacked + totals.timed_out + totals.expired + totals.dead_lettered
            # What is put aside comes back later, and what is in flight may be given back.
            done -= queue.scheduled_count + queue.in_flight
            for lane in queue.lanes:
                done += lane.log.settled - (lane.priority << SEQUENCE_BITS)
        for topic in self.engine.topics.values():
            log = topic.topic.log
            done += log.end + log.settled + topic.topic.start
        # A message is work when it moves, when that is written, and when that is on disk.
        if self.journal.commits != self._written[0]:
            self._written = (self.journal.commits, moved)
        if self.engine.committer.commits != self._ended[0]:
            self._ended = (self.engine.committer.commits, moved)
        return done + 2 * moved + self._written[1] + self._ended[1]

    # -- Definitions --------------------------------------------------------------------------

    async def queue(self, name: str, settings: QueueSettings | None = None) -> QueueActor:
        if name not in self.engine.queues:
            await self.engine.create_queue(name, settings)
        return self.engine.queue(name)

    async def topic(self, name: str, settings: TopicSettings | None = None) -> TopicActor:
        if name not in self.engine.topics:
            await self.engine.create_topic(name, settings)
        return self.engine.topic(name)

    # -- Producers ----------------------------------------------------------------------------

    async def singles(self, name: str, count: int, **columns: Any) -> None:
        """Messages one by one, each in a commit of its own."""
        for body in self.account.new(name, count):
            await self.push(name, [body], **columns)
            await asyncio.sleep(_BETWEEN_S)

    async def batch(self, name: str, count: int, **columns: Any) -> None:
        """Messages in one push."""
        await self.push(name, self.account.new(name, count), **columns)

    def push(self, name: str, bodies: list[bytes], **columns: Any) -> asyncio.Future[Any]:
        actor = self.engine.queue(name)
        self.account.left[name].update(bodies)
        self.asked(2)
        if len(bodies) == 1 and not columns:
            return actor.push_one(bodies[0])
        return actor.push(msgspec.structs.replace(batch_of(bodies), **columns))

    async def publish(self, topic: str, bound: list[str], count: int, **columns: Any) -> None:
        """A batch to a topic; `bound` are the queues that must get all of it."""
        bodies = self.account.new(topic, count)
        for name in bound:
            self.account.left[name].update(bodies)
        await self.publish_bodies(topic, bodies, **columns)

    async def publish_bodies(self, topic: str, bodies: list[bytes], **columns: Any) -> None:
        """The same where not every bound queue gets all; the account is the caller's."""
        batch = msgspec.structs.replace(batch_of(bodies), **columns)
        await self.engine.topic(topic).publish(batch)

    # -- Consumers ----------------------------------------------------------------------------

    async def pop(self, name: str, count: int, **options: Any) -> Delivery:
        options.setdefault("visibility_ms", VISIBILITY_MS)
        options.setdefault("one_ack", True)
        self.asked()
        return await self.engine.queue(name).pop(count, **options)

    async def drain(self, name: str, wait_ms: int = 1_000) -> int:
        """Everything that is left comes, once; returns in how many pops."""
        actor, pops = self.engine.queue(name), 0
        until_s = asyncio.get_running_loop().time() + _DRAIN_S
        while actor.queue.depth and asyncio.get_running_loop().time() < until_s:
            delivery = await self.pop(name, _DRAIN_MESSAGES, wait_ms=wait_ms)
            if not delivery.parts:
                continue
            pops += 1
            self.account.done_with(name, bodies_of(delivery.parts))
            await asyncio.gather(*[actor.ack(delivery.lease, *r) for r in ranges_of(delivery)])
        if left := self.account.left[name]:
            raise Violation(
                "nothing confirmed is lost",
                f"{len(left)} messages of {name} never came: {actor.info()}",
            )
        return pops


def bodies_of(parts: list[Part]) -> list[bytes]:
    """By hand: what the broker does for it would count as its work."""
    bodies: list[bytes] = []
    for part in parts:
        payload, offsets = part.content.payload, part.content.offsets
        indexes = range(part.index, part.index + part.count)
        bodies += [bytes(payload[offsets[index] : offsets[index + 1]]) for index in indexes]
    return bodies


def seqs_of(delivery: Delivery) -> list[int]:
    return [seq for part in delivery.parts for seq in range(part.first, part.first + part.count)]


def ranges_of(delivery: Delivery) -> list[tuple[int, int]]:
    """Runs of numbers side by side."""
    runs: list[tuple[int, int]] = []
    for part in sorted(delivery.parts, key=lambda each: each.first):
        if runs and runs[-1][1] == part.first:
            runs[-1] = (runs[-1][0], part.first + part.count)
        else:
            runs.append((part.first, part.first + part.count))
    return runs
