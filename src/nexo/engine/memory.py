"""Memory: payloads beyond the budget leave RAM and are read back in order.

The budget is for all that queues and topics keep: what is known of messages besides their payload
cannot leave, so payloads have the rest of it, but never less than a share.

What is needed last goes first: the newest chunks of a queue, the oldest of a topic, of whoever
takes the most. Chunks that were read back go after all others, the longest there first, since
those read last are about to be used. Chunks that somebody is working on are pinned and stay.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

from nexo.engine.process import give_memory_back
from nexo.engine.rows import RecentRows
from nexo.vocabulary import limits
from nexo.vocabulary.batch import concatenate
from nexo.vocabulary.errors import DataCorrupt
from nexo.vocabulary.limits import (
    CLOSED_EARLY_BYTES_MIN,
    COUNTED_NOTES,
    EVICTION_SPARED_MAX,
    GIVEN_BACK_BYTES_MIN,
    PAYLOAD_SHARE_MIN,
    READ_AHEAD_BYTES,
    READ_AHEAD_SHARE,
    READ_CALL_ROWS,
    RECENT_ROWS_SHARE,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from nexo.engine.desk import Desk
    from nexo.journal.port import Journal
    from nexo.machine.chunk import Chunk
    from nexo.machine.log import Log
    from nexo.vocabulary.batch import Batch

    Done = Callable[[BaseException | None], None]


class Unreadable(NamedTuple):
    """Messages that the journal holds and could not give when they were last asked for."""

    name: str  # of the queue or topic
    first: int  # sequence number
    messages: int
    error: BaseException


class _Reading(NamedTuple):
    """Chunks on their way back, in the order of their log."""

    holder: Holder
    log: Log
    chunks: list[Chunk]
    batches: dict[int, Batch]  # of their rows, those that are here …
    rows: list[int]  # … and those that are still to come


class Holder(Protocol):
    """An actor that keeps contents in memory."""

    @property
    def name(self) -> str: ...

    @property
    def resident_bytes(self) -> int: ...

    @property
    def bookkeeping_bytes(self) -> int:
        """What it knows of messages besides their contents, roughly."""

    def logs(self) -> Iterable[Log]:
        """Its logs, the one whose messages are needed last first."""


class Memory:
    def __init__(self, limit_bytes: int, journal: Journal, desk: Desk) -> None:
        self.limit_bytes = limit_bytes
        self._journal = journal
        self._desk = desk
        self._bytes: dict[Holder, int] = {}
        self._total = 0
        self.bookkeeping_bytes = 0
        self._bookkeeping: dict[Holder, int] = {}  # when it was last counted
        self._uncounted: dict[Holder, None] = {}  # those that have changed since …
        self._notes = 0  # … and how often
        self._counting: dict[Holder, None] = {}  # their turn comes, one in a step
        self._read_back: dict[Chunk, tuple[Holder, Log]] = {}  # the latest last
        self._read_back_kept = 0  # how many were left when the consumed ones were last swept
        self._pins: dict[Chunk, int] = {}
        self._in_vain = 0  # up to so many bytes nobody looks for room: most of them are pinned
        self._fetching: dict[Chunk, list[Done]] = {}
        self._failing: dict[Chunk, tuple[Holder, Log, BaseException]] = {}
        self._rows = RecentRows(limit_bytes // RECENT_ROWS_SHARE)
        self._most = 0  # the total was this much since memory was last given back

    @property
    def resident_bytes(self) -> int:
        return self._total + self._rows.bytes

    @property
    def payload_limit_bytes(self) -> int:
        """What is left of the limit for payloads."""
        least = self.limit_bytes // PAYLOAD_SHARE_MIN
        return max(least, self.limit_bytes - self.bookkeeping_bytes)

    def unreadable(self) -> list[Unreadable]:
        """For those who watch: who pops is told, who subscribed only waits. Messages that have gone
        in the meantime are forgotten here, and those of a state that was given up: while a journal
        is out of service, reads of it go on failing."""
        self._failing = {
            chunk: (holder, log, error)
            for chunk, (holder, log, error) in self._failing.items()
            if log.chunks.get(chunk.first) is chunk and any(log is each for each in holder.logs())
        }
        return [
            Unreadable(holder.name, chunk.first, chunk.live, error)
            for chunk, (holder, _, error) in self._failing.items()
        ]

    def is_unreadable(self, chunk: Chunk) -> bool:
        """Whether the journal said so when it was last asked for."""
        found = self._failing.get(chunk)
        return found is not None and isinstance(found[2], DataCorrupt)

    def give_back(self) -> None:
        """Now and then: what a drained backlog took goes to the system, if it is much."""
        self._count_changed()
        self._rows.clear()
        if self._most - self._total >= GIVEN_BACK_BYTES_MIN:
            give_memory_back()
            self._most = self._total

    def note(self, holder: Holder) -> None:
        """The contents of an actor grew or shrank; make room if they are too much."""
        self._measure(holder)
        self._uncounted[holder] = None
        self._notes += 1
        if self._notes >= COUNTED_NOTES:
            self._count_changed()
        if self.resident_bytes > max(self.payload_limit_bytes, self._in_vain):
            self._make_room()

    def count(self, holder: Holder) -> None:
        """Count what an actor keeps besides contents. That is not done with every commit: it takes
        longer than the rest, and a few commits do not change much."""
        size = holder.bookkeeping_bytes
        self.bookkeeping_bytes += size - self._bookkeeping.pop(holder, 0)
        if size:
            self._bookkeeping[holder] = size

    def _count_changed(self) -> None:
        self._notes = 0
        if self._uncounted and not self._counting:
            self._counting, self._uncounted = self._uncounted, {}
            asyncio.get_running_loop().call_soon(self._count_next)

    def _count_next(self) -> None:
        """One in each turn of the event loop: a queue may have hundreds of priorities."""
        if self._counting:
            # The last: the first of a dict that was emptied from the front takes a search.
            holder, _ = self._counting.popitem()
            self.count(holder)
            asyncio.get_running_loop().call_soon(self._count_next)

    def forget(self, holder: Holder) -> None:
        self._total -= self._bytes.pop(holder, 0)
        self.bookkeeping_bytes -= self._bookkeeping.pop(holder, 0)
        self._uncounted.pop(holder, None)
        self._counting.pop(holder, None)

    def reset(self, holder: Holder) -> None:
        """The state of an actor was loaded anew: nothing of the old one counts."""
        self.forget(holder)
        self.count(holder)
        self._read_back = {
            chunk: place for chunk, place in self._read_back.items() if place[0] is not holder
        }
        self._failing = {
            chunk: found for chunk, found in self._failing.items() if found[0] is not holder
        }

    def clear(self, error: BaseException) -> None:
        """The state is loaded anew: whoever waits for a chunk of the old one is told."""
        self._bytes.clear()
        self._total = 0
        self._bookkeeping.clear()
        self._uncounted.clear()
        self._counting.clear()
        self.bookkeeping_bytes = 0
        self._read_back.clear()
        self._failing.clear()
        self._rows.clear()
        fetching, self._fetching = self._fetching, {}
        for waiting in fetching.values():
            for done in waiting:
                done(error)

    def pin(self, chunk: Chunk) -> None:
        pinned = self._pins.get(chunk, 0)
        self._pins[chunk] = pinned + 1
        if self._in_vain and not pinned:
            self._in_vain += chunk.memory_bytes

    def unpin(self, chunk: Chunk) -> None:
        left = self._pins.pop(chunk) - 1
        if left:
            self._pins[chunk] = left
        elif not self._pins:
            self._in_vain = 0
        elif self._in_vain:
            self._in_vain -= chunk.memory_bytes

    def fetch(
        self,
        holder: Holder,
        log: Log,
        chunk: Chunk,
        done: Done,
        chunks_max: int | None = None,
    ) -> None:
        """Read a chunk back, and the next few with it; `done` is told when it is there, or when
        it is gone for good: whoever asked has to look again."""
        waiting = self._fetching.get(chunk)
        if waiting is not None:
            waiting.append(done)
            return
        chunks = self._ahead(log, chunk, chunks_max or limits.READ_AHEAD_CHUNKS)
        for each in chunks:
            self._fetching[each] = []
        self._fetching[chunk].append(done)
        rows = _rows_of(chunks)
        here = {row: batch for row in rows if (batch := self._rows.get(row)) is not None}
        left = [row for row in rows if row not in here]
        self._read(_Reading(holder, log, chunks, here, left))

    def _read(self, reading: _Reading) -> None:
        """Some rows in each call, between which commits get their turn: a chunk that small pushes
        filled has thousands of them."""
        rows = reading.rows[:READ_CALL_ROWS]
        if not rows:
            self._arrived(reading)
            return

        def finished(batches: list[Batch], error: BaseException | None) -> None:
            if error is None:
                reading.batches.update(zip(rows, batches, strict=True))
                del reading.rows[:READ_CALL_ROWS]
                self._read(reading)
            else:
                self._failed(reading.holder, reading.log, reading.chunks, error)

        self._desk.submit(lambda: self._journal.fetch(rows), finished)

    async def read_rows(self, rows: list[int]) -> list[Batch | None]:
        """Each of these rows, None for those that the journal cannot give."""
        if len(rows) <= READ_CALL_ROWS:
            try:
                found: list[Batch | None] = await self._desk.call(lambda: self._journal.fetch(rows))
            except DataCorrupt:
                if len(rows) == 1:
                    return [None]
            else:
                return found
        half = len(rows) // 2
        return [*await self.read_rows(rows[:half]), *await self.read_rows(rows[half:])]

    def _ahead(self, log: Log, chunk: Chunk, chunks_max: int) -> list[Chunk]:
        chunks, following, rows = [chunk], chunk, len(chunk.rows)
        left_bytes = min(READ_AHEAD_BYTES, self.payload_limit_bytes // READ_AHEAD_SHARE)
        while len(chunks) < chunks_max:
            left_bytes -= following.memory_bytes
            found = log.chunks.get(following.end)
            if found is None or found.content is not None or found in self._fetching:
                break
            rows += len(found.rows) if found.rows != following.rows else 0
            is_too_much = found.memory_bytes > left_bytes or rows > READ_CALL_ROWS
            if is_too_much or found in self._failing:
                break
            chunks.append(found)
            following = found
        return chunks

    def _arrived(self, reading: _Reading) -> None:
        holder, log, chunks = reading.holder, reading.log, reading.chunks
        whole, rows = None, list[int]()
        for chunk in chunks:
            if whole is None or chunk.rows != rows:
                rows = list(chunk.rows)
                batches = [reading.batches[row] for row in rows]
                whole = concatenate(batches)
                if log.evicts_oldest and len(rows) > 1 and not chunk.row_start:
                    chunk.note_rows(batch.count for batch in batches)
            log.restore(chunk, whole.slice(chunk.row_start, chunk.row_start + _kept(chunk)))
            self._read_back[chunk] = (holder, log)
            self._failing.pop(chunk, None)
        assert whole is not None
        has_more = chunks[-1].row_start + _kept(chunks[-1]) < whole.count
        self._remember(reading.batches, set(rows) if has_more else set())
        for chunk in chunks:
            for done in self._fetching.pop(chunk, ()):
                done(None)
        if len(self._read_back) > 64 + 2 * self._read_back_kept:
            self._sweep()
        if log.resident:
            self.note(holder)

    def _remember(self, batches: dict[int, Batch], wanted: set[int]) -> None:
        """Keep those of the rows that are wanted again soon."""
        for row, batch in batches.items():
            if row in wanted:
                self._rows.keep(row, batch)
            else:
                self._rows.forget(row)

    def _failed(self, holder: Holder, log: Log, chunks: list[Chunk], error: BaseException) -> None:
        """A commit that came first may have dropped a row: that is no error. And a chunk does not
        suffer for those that were only read ahead."""
        waiting = [(chunk, self._fetching.pop(chunk, [])) for chunk in chunks]
        for chunk, dones in waiting:
            is_gone = log.chunks.get(chunk.first) is not chunk
            for done in dones:
                if is_gone:
                    done(None)
                elif len(chunks) == 1:
                    self._failing[chunk] = (holder, log, error)
                    done(error)
                else:
                    self.fetch(holder, log, chunk, done, chunks_max=len(chunks) // 2)

    def _measure(self, holder: Holder) -> None:
        size = holder.resident_bytes
        self._total += size - self._bytes.pop(holder, 0)
        if size:  # else it may be gone for good
            self._bytes[holder] = size
        if self._total > self._most:
            self._most = self._total

    def _make_room(self) -> None:
        # Some slack, so that not every commit at the limit has to look for something to evict.
        target = self.payload_limit_bytes - self.payload_limit_bytes // 32
        self._rows.clear()
        for holder in sorted(self._bytes, key=lambda each: -self._bytes[each]):
            self._evict(holder, self._total - target)
            if self._total <= target:
                return
        self._evict_read_back(target)
        if self._total <= target:
            return
        # Many queues with a little each: what they are still filling is nearly all there is.
        for holder in sorted(self._bytes, key=lambda each: -self._bytes[each]):
            closed = [log.close_early(CLOSED_EARLY_BYTES_MIN) for log in holder.logs()]
            if any(closed):
                self._evict(holder, self._total - target)
                if self._total <= target:
                    return
        if self._pins:  # whoever reads many at once would have all of them looked at for each few
            self._in_vain = self._total + self._total // 8

    def _evict(self, holder: Holder, excess: int) -> None:
        """Evict about that many bytes of one actor, but not what was read back. If that is all
        that it has, not all of it need be looked at to find so."""
        for log in holder.logs():
            firsts, spared = list(log.resident), 0
            for first in firsts if log.evicts_oldest else reversed(firsts):
                if excess <= 0 or spared > EVICTION_SPARED_MAX:
                    break
                chunk = log.resident[first]
                if chunk in self._read_back or chunk in self._pins or not log.evictable(chunk):
                    spared += 1
                else:
                    spared = 0
                    excess -= chunk.memory_bytes
                    log.evict(chunk)
        self._measure(holder)

    def _evict_read_back(self, target: int) -> None:
        """Those that have been there for longest first."""
        done: list[Chunk] = []
        for chunk, (holder, log) in self._read_back.items():
            if chunk in self._pins:
                continue
            if log.evictable(chunk):
                log.evict(chunk)
                self._measure(holder)
            elif chunk.content is not None and chunk.live:
                continue
            done.append(chunk)
            if self._total <= target:
                break
        for chunk in done:
            del self._read_back[chunk]

    def _sweep(self) -> None:
        """Forget chunks that were read back and are consumed."""
        self._read_back = {
            chunk: place
            for chunk, place in self._read_back.items()
            if chunk.content is not None and chunk.live
        }
        self._read_back_kept = len(self._read_back)


class Pins:
    """Chunks that are needed all at once, for the length of a `with` block."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._chunks: list[Chunk] = []

    def add(self, chunk: Chunk) -> None:
        self._memory.pin(chunk)
        self._chunks.append(chunk)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        for chunk in self._chunks:
            self._memory.unpin(chunk)


def _rows_of(chunks: list[Chunk]) -> list[int]:
    """The rows of all these, once each: what a filtered binding chose lies in the same ones."""
    rows: dict[int, None] = {}
    before = None
    for chunk in chunks:
        if chunk.rows != before:
            rows.update(dict.fromkeys(chunk.rows))
            before = chunk.rows
    return list(rows)


def _kept(chunk: Chunk) -> int:
    """How many messages its content has, those included that are gone."""
    return chunk.end - chunk.first if chunk.seqs is None else len(chunk.seqs)
