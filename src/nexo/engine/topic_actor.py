"""The actor of one topic: publish, read, and fan out to the queues that are bound to it.

Fan-out is part of the commit: when it begins, what was published since the last one becomes a
row, and every bound queue gets a reference to it. So a crash leaves all of them or none.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from nexo.engine.actor import Actor
from nexo.engine.committer import TOPIC_RANK
from nexo.engine.contents import Contents
from nexo.engine.outcome import outcome_of, report
from nexo.engine.recorder import Recorder
from nexo.machine import topic as rules
from nexo.machine.bind import Looks, archive_kept, filter_of, wanted_runs
from nexo.machine.chunk import CHUNK_BYTES
from nexo.machine.log import Place
from nexo.machine.snapshot import TopicSnapshot
from nexo.vocabulary.errors import DataCorrupt, InvalidArgument
from nexo.vocabulary.limits import FILTERED_STEP_WORK, POP_BYTES_MAX
from nexo.vocabulary.settings import TopicSettings
from nexo.vocabulary.start import check_start

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from nexo.engine.committer import Draft
    from nexo.engine.context import Context
    from nexo.engine.queue_actor import QueueActor
    from nexo.machine.bind import Filter, Verdicts
    from nexo.machine.chunk import Chunk
    from nexo.machine.log import Flushed, Log, Piece
    from nexo.machine.topic import Reading, Topic
    from nexo.vocabulary.batch import Batch
    from nexo.vocabulary.changes import Bound
    from nexo.vocabulary.errors import NexoError
    from nexo.vocabulary.start import Start

_DONE = object()
_ALL = (None,)  # the one run of those who want everything
_Turn = asyncio.Task["asyncio.Future[tuple[int, int]]"]


class TopicInfo(msgspec.Struct, frozen=True):
    name: str
    start: int  # the oldest offset that can be read
    end: int  # the offset that the next message gets
    kept_bytes: int
    settings: TopicSettings
    bound_queues: list[str]


class TopicActor(Actor):
    def __init__(self, context: Context, owner: int, topic: Topic, rank: int = TOPIC_RANK) -> None:
        super().__init__(context, owner)
        self.topic = topic
        self.rank = rank
        self._now_ms = context.clock.now_ms
        self._contents = Contents(context.memory, self)
        self._recorder = Recorder(context.recorders, owner, self)
        self._listeners: set[Callable[[], None]] = set()
        self._turn: _Turn | None = None  # the last publish that took long to judge
        self._verdicts: Verdicts = {}  # of what the next commit gives to queues …
        self._judged_work = 0  # … and what it took to come to them, so far

    @property
    def name(self) -> str:
        return self.topic.name

    @property
    def label(self) -> str:
        return f"topic {self.name!r}"

    def publish(
        self, batch: Batch, producer: str = "", number: int = 0, checksum: int = 0
    ) -> asyncio.Future[tuple[int, int]]:
        """The future has the range of the offsets once the batch is on disk."""
        if self.rank != TOPIC_RANK:
            raise InvalidArgument(
                f"topic {self.name!r} is a system topic", "publish to a topic of your own"
            )
        if self._context.refusal is not None:
            raise self._context.refusal.anew()
        policies = self._context.catalog.catalog.policies_of(self.owner)
        is_free = self._turn is None or self._turn.done()
        if is_free and not policies:
            return self._when_room(batch, {}, producer, number, checksum)
        # A commit is one step, and filter policies may take long: they are asked now, and if that
        # takes more than a step, in several. Nobody overtakes those who wait for that.
        verdicts: Verdicts = {}
        looks = Looks(batch, verdicts)
        judging = looks.judge(policies, FILTERED_STEP_WORK - self._judged_work)
        more = (batch, verdicts, producer, number, checksum)
        if is_free:
            is_done = next(judging, _DONE) is _DONE
            self._judged_work += looks.work
            if is_done:
                return self._when_room(*more)
        loop = asyncio.get_running_loop()
        turn = self._turn = loop.create_task(self._judge(self._turn, judging, more))
        return loop.create_task(_published(turn))

    async def _judge(
        self, previous: _Turn | None, judging: Iterator[None], more: tuple[Any, ...]
    ) -> asyncio.Future[tuple[int, int]]:
        if previous is not None:
            await asyncio.wait((previous,))
        for _ in judging:
            await asyncio.sleep(0)
        return self._when_room(*more)

    def _when_room(
        self, batch: Batch, verdicts: Verdicts, producer: str, number: int, checksum: int
    ) -> asyncio.Future[tuple[int, int]]:
        if self._committer.congested:
            return self._committer.after_room(
                lambda: self._publish(batch, verdicts, producer, number, checksum)
            )
        return self._publish(batch, verdicts, producer, number, checksum)

    def _publish(
        self, batch: Batch, verdicts: Verdicts, producer: str, number: int, checksum: int
    ) -> asyncio.Future[tuple[int, int]]:
        self.check_in_service()
        if self._context.out_of_service:
            bound = self._context.queues.bound_to(self.owner)
            self._context.topics.check_fed(queue for queue, _ in bound)
        offsets = rules.publish(self.topic, batch, self._now_ms(), producer, number, checksum)
        if verdicts:
            self._verdicts.update(verdicts)
        self._committer.accept(batch.size)
        self._committer.enlist(self)
        return self._committer.when_durable(offsets, self)

    async def read(
        self,
        offset: int,
        count: int = 100,
        *,
        bytes_max: int = POP_BYTES_MAX,
        strict: bool = False,
        wait_ms: int = 0,
    ) -> Reading:
        """Messages from `offset` on; waits up to `wait_ms` if there are none yet. Goes past what
        the journal cannot give, unless that is `strict`: it stays, and is tried each time."""
        until_ms = self._now_ms() + wait_ms
        while True:
            self.check_in_service()
            reading = rules.read(self.topic, offset, count, bytes_max, strict)
            left_ms = until_ms - self._now_ms()
            if reading.parts or (reading.missing is None and left_ms <= 0):
                return reading
            if reading.missing is not None:
                try:
                    await self.read_back(reading.missing)
                except DataCorrupt:
                    if strict:
                        raise
                    reading = await self._read_around(
                        reading.missing, reading.next, count, bytes_max
                    )
                    if reading.parts:
                        return reading
                    offset = reading.next
            else:
                await self._news(left_ms)

    async def _read_around(self, chunk: Chunk, offset: int, count: int, bytes_max: int) -> Reading:
        """What can be read of a chunk that cannot be read as a whole."""
        batches = await self._context.memory.read_rows(list(chunk.rows))
        return rules.read_around(chunk, batches, offset, count, bytes_max)

    async def attributes_at(self, offset: int) -> bytes | None:
        """The attributes of one message; None if it has none, or is not kept any more."""
        reading = await self.read(offset, 1)
        if not reading.parts or reading.parts[0].first != offset:
            return None
        part = reading.parts[0]
        column = part.content.attributes
        return column[part.index] if isinstance(column, list) else column

    async def offset_of(self, start: Start) -> int:
        """The offset that a start stands for now."""
        check_start(start)
        time_ms = start.time_ms
        if time_ms is None:
            settled = self.topic.log.settled
            return settled if start.offset is None else max(start.offset, self.topic.start)
        while (chunk := rules.chunk_at(self.topic, time_ms)) is not None:
            if chunk.content is not None or chunk.created_first_ms >= time_ms:
                break
            try:
                await self.read_back(chunk)
            except DataCorrupt:
                break
        return rules.offset_at(self.topic, time_ms)

    @property
    def offsets(self) -> range:
        """Those that can be read; the next message gets the one behind them."""
        return range(self.topic.start, self.topic.log.settled)

    @property
    def kept_bytes(self) -> int:
        return self.topic.kept_bytes

    def info(self) -> TopicInfo:
        """The figures of the topic."""
        offsets = self.offsets
        return TopicInfo(
            self.name,
            offsets.start,
            offsets.stop,
            self.kept_bytes,
            self.topic.settings,
            [queue for queue, _ in self.bindings()],
        )

    def bindings(self) -> list[tuple[str, dict[str, str] | None]]:
        """The queues that are bound to it, each with the attributes that it asks for."""
        return [(queue.name, bound.where) for queue, bound in self.bound_queues()]

    def bound_queues(self) -> list[tuple[QueueActor, Bound]]:
        """The queues that are bound to it, each with how it is."""
        return self._context.queues.bound_to(self.owner)

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` whenever there is something new; returns how to stop that."""
        self._listeners.add(listener)
        return lambda: self._listeners.discard(listener)

    def archive(self, batch: Batch, place: Place) -> None:
        """Keep what came into an archived queue, in the commit that the queue is part of."""
        rules.archive(self.topic, batch, place, self._now_ms())
        self._context.rows.share(place.row)
        self._committer.enlist(self)

    def archive_kept(self, piece: Piece) -> None:
        """The same for what a topic had kept when the queue was bound to it."""
        archive_kept(self.topic, piece, self._now_ms())
        for row in piece.rows:
            self._context.rows.share(row)
        self._committer.enlist(self)

    # -- The engine's side --------------------------------------------------------------------

    async def read_back(self, chunk: Chunk) -> None:
        """Wait until the content of a chunk is in memory."""
        await self._contents.read_back(self.topic.log, chunk)

    def edit(self, settings: TopicSettings) -> None:
        self.topic.settings = settings
        self.begin()

    @property
    def resident_bytes(self) -> int:
        return self.topic.log.resident_bytes

    @property
    def bookkeeping_bytes(self) -> int:
        return len(self.topic.log.chunks) * CHUNK_BYTES

    def logs(self) -> Iterable[Log]:
        return (self.topic.log,)

    def fan_out(self) -> None:
        """Give what was published since the last commit to the queues that are bound now."""
        bound = [(queue, filter_of(each)) for queue, each in self.bound_queues()]
        for queue, _ in bound:
            queue.check_in_service()  # all of them get it or none
        for flushed in rules.flush_topic(self.topic):
            self._hand_out(flushed, bound)
        self._verdicts, self._judged_work = {}, 0

    def _hand_out(self, flushed: Flushed, bound: list[tuple[QueueActor, Filter]]) -> None:
        """There may be thousands of queues: what is the same for all of them is done once."""
        batch, row = flushed.batch, flushed.row
        looks, whole, now_ms = Looks(batch, self._verdicts), Place(row), self._now_ms()
        wanted = [
            (queue, run)
            for queue, where in bound
            for run in (_ALL if where is None else wanted_runs(batch, 0, where, looks))
        ]
        if not wanted:
            return
        self._committer.tie(self, *[queue for queue, _ in wanted])
        self._context.rows.share(row, len(wanted))
        for queue, run in wanted:
            if run is None or run == (0, batch.count):
                queue.arrive(batch, whole, now_ms)
            else:
                queue.arrive(batch.slice(*run), Place(row, run[0], is_whole=False), now_ms)

    def collect(self, draft: Draft) -> Any:
        self.fan_out()
        collected = rules.collect_topic(self.topic)
        draft.rows += collected.rows
        draft.dropped_rows += collected.dropped_rows
        self._recorder.write(draft, collected.changes, lambda: TopicSnapshot(self.topic))
        return collected.end

    def settle(self, mark: Any) -> None:
        end: int = mark
        seen = self.topic.log.settled
        rules.settle_topic(self.topic, end)
        self._trim()
        if end > seen:
            self._tell(seen)
        if self._gone is None:
            self._context.memory.note(self)

    def tick(self) -> None:
        if self._gone is None:
            self._context.supervisor.guard(self, self._trim)

    def adopt(self, topic: Topic) -> None:
        """The state was loaded anew from the journal; readers stay."""
        seen, self.topic, self._verdicts = self.topic.log.settled, topic, {}
        if topic.log.settled > seen:  # the commit that seemed to fail did not
            self._tell(seen)
        gone = self._renew()
        if gone is None:
            self.begin()
        else:
            self.close(gone)

    def begin(self) -> None:
        self._context.memory.count(self)
        self._timer.cancel()
        self._timer.at(self._now_ms())

    def reopen(self) -> None:
        """In service again, with what was loaded last."""
        self.adopt(self.topic)

    def close(self, gone: NexoError) -> None:
        """No more of it: those who listen read again, and are told."""
        self._end(gone)
        self._tell_listeners()

    def _tell_listeners(self) -> None:
        for listener in list(self._listeners):
            _, failure = outcome_of(listener)
            if failure is not None:
                report(f"a reader of {self.label} could not be told", failure)

    def _tell(self, seen: int) -> None:
        """There is something new behind what readers have seen."""
        self._tell_listeners()
        self._context.topics.followers.news(self.name, seen)

    def _trim(self) -> None:
        rules.trim(self.topic, self._now_ms())
        if self.topic.changes:
            self._committer.enlist_lazily(self)
        self._timer.at(rules.next_trim_ms(self.topic))

    async def _news(self, wait_ms: int) -> None:
        news = asyncio.Event()
        stop = self.listen(news.set)
        try:
            async with asyncio.timeout(wait_ms / 1000):
                await news.wait()
        except TimeoutError:
            pass
        finally:
            stop()


async def _published(turn: _Turn) -> tuple[int, int]:
    return await (await turn)
