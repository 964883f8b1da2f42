"""A test rig: an engine in virtual time on a journal that a test can watch, hold back and break.

When a test ends, the rig closes the engine and audits it: every queue keeps its invariants, the
journal tells the same story as the memory, and no row is stored that nobody holds, or the other
way round.
"""

from __future__ import annotations

import asyncio
from itertools import count
from typing import TYPE_CHECKING, Any

import msgspec

from nexo.engine.engine import Engine
from nexo.engine.recovery import load_queue, load_topic, rows_of
from nexo.journal.memory import MemoryDisk, MemoryJournal
from nexo.machine.image import Image, image_of, image_of_topic, merged_free
from nexo.machine.invariants import check
from nexo.machine.queue import Queue
from nexo.machine.topic import Topic
from nexo.vocabulary.attributes import encode_attributes
from nexo.vocabulary.batch import Batch, batch_of, concatenate
from nexo.vocabulary.errors import NexoError
from nexo.vocabulary.limits import MEMORY_LIMIT_BYTES
from tests.engine.virtual_time import VirtualClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from nexo.engine.queue_actor import QueueActor
    from nexo.engine.topic_actor import TopicActor
    from nexo.engine.transfers import Elsewhere
    from nexo.journal.port import Commit, Copy, Journal, Stored, Usage
    from nexo.machine.pop import Delivery, Part
    from nexo.machine.topic import Reading
    from nexo.vocabulary.settings import TopicSettings


class WatchedJournal:
    """A journal that keeps what was committed, and fails when it is told to."""

    def __init__(self, inner: Journal) -> None:
        self.inner = inner
        self.commits: list[Commit] = []
        self.fetched: list[int] = []
        self.fetches = 0
        self.opens = 0
        self.is_cut = False  # what is committed from now on never reaches the disk
        self.refuse_commit: Callable[[Commit], Exception | None] = lambda _: None
        self.refuse_fetch: Callable[[Sequence[int]], Exception | None] = lambda _: None
        self.refuse_open: Callable[[], Exception | None] = lambda: None

    def open(self) -> int:
        _raise(self.refuse_open())
        self.opens += 1
        return self.inner.open()

    def owners(self) -> list[int]:
        return self.inner.owners()

    def load(self, owner: int) -> Stored:
        return self.inner.load(owner)

    def last_row(self) -> int:
        return self.inner.last_row()

    @property
    def next_is_long(self) -> bool:
        return self.inner.next_is_long

    def commit(self, commit: Commit) -> float:
        if self.is_cut:
            return 0.0
        _raise(self.refuse_commit(commit))
        took_s = self.inner.commit(commit)
        self.commits.append(commit)
        return took_s

    def fetch(self, rows: Sequence[int]) -> list[Batch]:
        _raise(self.refuse_fetch(rows))
        self.fetched += rows
        self.fetches += 1
        return self.inner.fetch(rows)

    def usage(self) -> Usage:
        return self.inner.usage()

    def tidy(self) -> bool:
        return self.inner.tidy()

    def copy(self) -> Copy:
        return self.inner.copy()

    def close(self) -> None:
        self.inner.close()


class HeldRunner:
    """Runs calls to the journal at once, unless it is held: then when it is told to."""

    def __init__(self) -> None:
        self.held: list[tuple[Callable[[], Any], Callable[[Any, BaseException | None], None]]] = []
        self.is_held = False

    def run(
        self,
        job: Callable[[], Any],
        done: Callable[[Any, BaseException | None], None],
        is_long: bool,
    ) -> None:
        if self.is_held:
            self.held.append((job, done))
        else:
            _finish(job, done)

    def close(self) -> None:
        self.is_held = False

    def step(self) -> None:
        """Let one call through; those that follow are held."""
        _finish(*self.held.pop(0))

    def release(self) -> None:
        self.is_held = False
        while self.held:
            self.step()


class Rig:
    def __init__(self) -> None:
        self.disk = MemoryDisk()
        self.make_journal: Callable[[], Journal] = lambda: MemoryJournal(self.disk)
        self.journal: WatchedJournal
        self.runner: HeldRunner
        self.engine: Engine | None = None
        self.must_audit = True
        self.events: TopicSettings | None = None  # most tests look at what a commit writes
        self.is_held: Callable[[], bool] | None = None  # of a shard of a cluster, as the next
        self.check_place: Callable[[str], None] | None = None
        self.elsewhere: Elsewhere | None = None
        self._incarnations = count(1)

    async def start(self, memory_limit_bytes: int = MEMORY_LIMIT_BYTES) -> Engine:
        assert self.engine is None, "an engine is running already"
        self.journal = WatchedJournal(self.make_journal())
        self.runner = HeldRunner()
        engine = Engine(
            self.journal,
            clock=VirtualClock(),
            runner=self.runner,
            memory_limit_bytes=memory_limit_bytes,
            events=self.events,
            new_incarnation=lambda: next(self._incarnations),
            is_held=self.is_held,
            check_place=self.check_place,
            elsewhere=self.elsewhere,
        )
        await (engine.open() if self.is_held is None else engine.open_apart())
        self.engine = engine
        return engine

    async def stop(self) -> None:
        """Close in order, and audit."""
        engine, self.engine = self.engine, None
        if engine is not None:
            self.runner.release()
            await engine.close()
            if self.must_audit and engine.refusal is None:
                self.audit(engine)

    async def restart(self, memory_limit_bytes: int = MEMORY_LIMIT_BYTES) -> Engine:
        await self.stop()
        return await self.start(memory_limit_bytes)

    async def crash(self) -> Engine:
        """The process ends here: what is not in the journal is gone."""
        assert self.engine is not None
        self.journal.is_cut = True
        self.runner.release()
        await self.engine.close()
        self.engine = None
        return await self.start()

    def audit(self, engine: Engine) -> None:
        journal, held = self.make_journal(), set()
        journal.open()
        try:
            for actor in (queues := [*engine.queues.values(), *engine.transfers.all()]):
                check(actor.queue)
                queue = actor.queue
                told = Queue(queue.name, queue.settings, queue.incarnation, count(1), 1)
                load_queue(told, journal.load(actor.owner))
                now_ms = max(queue.now_ms, told.now_ms)
                kept = comparable(image_of(queue), now_ms)
                assert comparable(image_of(told), now_ms) == kept, (
                    f"queue {actor.name}: journal != memory"
                )
                held |= {row for rows in rows_of(told) for row in rows}
            for topic in engine.topics.values():
                living = topic.topic
                recovered = Topic(living.name, living.settings, count(1))
                load_topic(recovered, journal.load(topic.owner))
                recovered.now_ms = living.now_ms
                assert image_of_topic(recovered) == image_of_topic(living), (
                    f"topic {topic.name}: journal != memory"
                )
                held |= {row for rows in rows_of(recovered) for row in rows}
            owners = {0, *[each.owner for each in queues]}
            owners |= {each.owner for each in engine.topics.values()}
            strangers = set(journal.owners()) - owners
            assert not strangers, f"state of owners that are no more: {strangers}"
        finally:
            journal.close()
        if isinstance(journal, MemoryJournal):
            assert set(self.disk.rows) == held, "rows stored != rows held"


def comparable(image: Image, now_ms: int) -> dict[str, Any]:
    """Without what may differ: the time of the last look, and what only that time has ended."""
    image.now_ms = now_ms
    image.free = merged_free(
        msgspec.structs.replace(each, due_ms=each.due_ms if each.due_ms > now_ms else 0)
        for each in image.free
    )
    image.recent = {key: known for key, known in image.recent.items() if known[0] > now_ms}
    image.chunks.sort(key=lambda chunk: chunk.first)
    return msgspec.structs.asdict(image)


# -- Short words for tests --------------------------------------------------------------------


def bodies(*texts: str) -> Batch:
    return batch_of([text.encode() for text in texts])


def numbered(count: int, start: int = 0, size: int = 0) -> Batch:
    """Messages whose bodies are their numbers, filled up to a size."""
    return batch_of([body(number, size) for number in range(start, start + count)])


def body(number: int, size: int = 0) -> bytes:
    return b"%d" % number + b"." * max(0, size - len(b"%d" % number))


def number_of(text: bytes) -> int:
    return int(text.split(b".")[0])


WANTED = {"wanted": "yes"}  # by the binding that `publish_apart` is for


async def publish_apart(topic: TopicActor, batch: Batch) -> None:
    """A message that becomes a chunk by itself in the bound queue, however small it is: of its row
    the queue takes no more."""
    columns = [encode_attributes(WANTED), None]
    pair = concatenate([batch, bodies("unwanted")])
    await topic.publish(msgspec.structs.replace(pair, attributes=columns))


def texts(delivery: Delivery | Reading) -> list[str]:
    return [text.decode() for part in delivery.parts for text in bodies_of(part)]


def bodies_of(part: Part) -> list[bytes]:
    offsets, payload = part.content.offsets, part.content.payload
    ends = range(part.index, part.index + part.count)
    return [bytes(payload[offsets[at] : offsets[at + 1]]) for at in ends]


def ranges(delivery: Delivery) -> Iterable[tuple[int, int]]:
    return [(part.first, part.first + part.count) for part in delivery.parts]


async def ack(queue: QueueActor, delivery: Delivery) -> None:
    await asyncio.gather(*[queue.ack(delivery.lease, *bounds) for bounds in ranges(delivery)])


async def nack(queue: QueueActor, delivery: Delivery, reason: str = "") -> None:
    nacks = [queue.nack(delivery.lease, *bounds, 0, reason) for bounds in ranges(delivery)]
    await asyncio.gather(*nacks)


async def peeked(queue: QueueActor, limit: int = 1000) -> list[str]:
    return [message.body.decode() for message in await queue.peek(limit)]


def _finish(job: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None:
    result, failure = None, None
    try:
        result = job()
    except (NexoError, OSError) as error:
        failure = error
    done(result, failure)


def _raise(error: Exception | None) -> None:
    if error is not None:
        raise error
