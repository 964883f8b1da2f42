"""A log: contiguous numbers and the chunks that hold their messages.

A lane of a queue and a topic are both logs that grow at the end. Small pushes are copied into the
open chunk and become one row of the journal when the next commit begins (`flush`); a large batch
is a chunk and a row at once. Messages at or beyond `settled` are not on disk yet: nobody may see
them.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right, insort
from collections import Counter
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from nexo.machine.chunk import COLUMN_BYTES, COUNT_TYPE, Chunk, Growing, packed
from nexo.vocabulary.limits import (
    CHUNK_BYTES_MAX,
    CHUNK_MESSAGES_MAX,
    CHUNK_ROWS_MAX,
    SMALL_PUSH_BYTES,
    SMALL_PUSH_MESSAGES,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from nexo.vocabulary.batch import Batch
    from nexo.vocabulary.changes import Groups, Published, Pushed


_rows = attrgetter("rows")


class Flushed(NamedTuple):
    """Messages that became a row: `batch` is to be written unless another owner writes it."""

    row: int
    chunk: Chunk
    first: int
    end: int
    batch: Batch

    def times(self) -> tuple[int, int]:
        """When the first and the last of the messages came."""
        created = self.batch.created
        if not created:
            return self.chunk.created_first_ms, self.chunk.created_last_ms
        return created[0], created[-1]


class Place(NamedTuple):
    """Where a batch lies that another owner writes: in a row, from its message `row_start` on."""

    row: int
    row_start: int = 0
    is_whole: bool = True  # it is all of the row


class Piece(NamedTuple):
    """Messages that lie in rows of another owner, from message `row_start` of those on."""

    rows: list[int]
    row_start: int
    messages: int
    payload_bytes: int
    groups: str | list[str | None] | None
    created_first_ms: int
    created_last_ms: int
    content: Batch | None  # None: it is read back when it is needed


class Restored:
    """What was read back into any log of an owner: a chunk without its content knows only when
    its last message came, and with it that others came earlier."""

    __slots__ = ("came_ms",)

    def __init__(self) -> None:
        self.came_ms: int | None = None  # nothing of it came before this


class Log:
    __slots__ = (
        "_firsts",
        "_flushed",
        "_gathered",
        "_growing",
        "_keeps_groups",
        "_open",
        "chunks",
        "copies_many",
        "end",
        "evicts_oldest",
        "resident",
        "resident_bytes",
        "restored",
        "settled",
    )

    def __init__(
        self,
        first: int,
        evicts_oldest: bool = False,
        copies_many: bool = False,
        restored: Restored | None = None,
    ) -> None:
        self.evicts_oldest = evicts_oldest  # else the newest, which is needed last
        self._keeps_groups = not evicts_oldest  # a topic's readers find them in the content
        self.copies_many = copies_many  # a batch is small by its bytes alone, so chunks are few
        self.end = first  # the number that the next message gets
        self.settled = first
        self.chunks: dict[int, Chunk] = {}  # by first number, oldest first
        self.resident: dict[int, Chunk] = {}  # those whose content is in memory …
        self.resident_bytes = 0  # … and what they take
        self.restored = restored or Restored()
        self._open: Chunk | None = None  # the chunk that small pushes fill …
        self._growing = Growing()  # … and its content
        self._flushed = first  # every message below this has a row
        self._firsts: list[int] = []  # where chunks begin, in order; some are gone
        self._gathered: _GatheredRows | None = None

    def append_one(self, body: bytes, now_ms: int) -> Chunk:
        """One message that is nothing but a body: the shortest way in."""
        chunk = self._open or self._begin(now_ms)
        self._growing.add_one(body, now_ms)
        size = len(body)
        self.end += 1
        chunk.end += 1
        chunk.live += 1
        chunk.payload_bytes += size
        chunk.created_last_ms = now_ms
        self.resident_bytes += size + COLUMN_BYTES
        if chunk.payload_bytes >= CHUNK_BYTES_MAX or chunk.end - chunk.first >= CHUNK_MESSAGES_MAX:
            self.close_open()
        return chunk

    def append(self, batch: Batch, now_ms: int) -> Chunk:
        """A batch at the end. The chunk's last `batch.count` messages are the new ones."""
        count, size = batch.count, batch.size
        is_many = count >= SMALL_PUSH_MESSAGES and not self.copies_many
        if is_many or size >= SMALL_PUSH_BYTES:
            if batch.created is not None:  # of an earlier life: here they come together, now
                batch = msgspec.structs.replace(batch, created=None)
            return self._add_chunk(batch, now_ms)
        chunk = self._open or self._begin(now_ms)
        self._growing.add(batch, [now_ms] * count)
        self._grown(chunk, count, size, now_ms)
        return chunk

    def _grown(self, chunk: Chunk, count: int, size: int, created_ms: int) -> None:
        """The open chunk got a batch."""
        if self._keeps_groups:
            chunk.groups = self._growing.groups
        self.end += count
        chunk.end += count
        chunk.live += count
        chunk.payload_bytes += size
        chunk.created_last_ms = max(chunk.created_last_ms, created_ms)
        self.resident_bytes += size + COLUMN_BYTES * count
        if chunk.payload_bytes >= CHUNK_BYTES_MAX or chunk.end - chunk.first >= CHUNK_MESSAGES_MAX:
            self.close_open()

    def share(self, batch: Batch, place: Place, now_ms: int) -> Chunk:
        """A batch whose row another owner writes: no payload is copied."""
        chunk = self._add_chunk(batch, now_ms)
        chunk.row_start = place.row_start
        self._add_row(chunk, place.row)
        self._skip(batch.count)
        return chunk

    def gather(
        self, batch: Batch, place: Place, now_ms: int, rows_max: int = CHUNK_ROWS_MAX
    ) -> Chunk:
        """The same, but a small batch is copied into the open chunk: a chunk of its own would take
        more memory, and more work whenever it is met. The chunk's last `batch.count` messages are
        the new ones."""
        count, size, created = batch.count, batch.size, batch.created
        is_small = count < SMALL_PUSH_MESSAGES and size < SMALL_PUSH_BYTES
        # The rows of a chunk are read back as a whole, one after the other, and with their times.
        if not is_small or not place.is_whole or created is None:
            return self.share(batch, place, now_ms)
        if self._open is not None:
            has_later_row = self._open.flushed < self._open.end
            # In a queue retention goes by times in order; another topic's may be from before.
            is_earlier = not self.evicts_oldest and created[0] < self._growing.created[-1]
            if has_later_row or is_earlier:
                self.close_open()
        chunk = self._open or self._begin(now_ms)
        self._growing.add(batch, created, batch.priority)
        self._grown(chunk, count, size, now_ms)
        self._add_row(chunk, place.row)
        self._skip(count)
        if chunk is self._open and len(chunk.rows) >= rows_max:
            self.close_open()
        return chunk

    def _skip(self, count: int) -> None:
        """The last messages have a row already: a flush need not look for them, unless it has to
        for others before them."""
        if self._flushed == self.end - count:
            self._flushed = self.end

    def _add_row(self, chunk: Chunk, row: int) -> None:
        """All messages of the chunk that had no row have this one."""
        assert isinstance(chunk.rows, list), "a chunk that is full and on disk got a row"
        if self._gathered is not None:
            self._gathered.changes(chunk)
        if self.evicts_oldest and (chunk is self._open or chunk.rows):
            if chunk.row_ends is None:
                chunk.row_ends = array(COUNT_TYPE)
            chunk.row_ends.append(chunk.end - chunk.first)
        chunk.rows.append(row)
        chunk.flushed = chunk.end
        if chunk is not self._open:
            chunk.rows = packed(chunk.rows)
        elif len(chunk.rows) >= CHUNK_ROWS_MAX:
            self.close_open()

    def adopt(self, piece: Piece) -> Chunk:
        """Messages that another owner has written, in memory or not."""
        self.close_open()
        chunk = Chunk(self.end, self.end + piece.messages, piece.content, piece.created_first_ms)
        self.rows_change(chunk)
        chunk.created_last_ms = piece.created_last_ms
        chunk.groups = piece.groups if self._keeps_groups else None
        chunk.payload_bytes = piece.payload_bytes
        chunk.rows, chunk.row_start = packed(list(piece.rows)), piece.row_start
        chunk.flushed = self.end = chunk.end
        self.chunks[chunk.first] = chunk
        self._firsts.append(chunk.first)
        if chunk.content is not None:
            self.resident[chunk.first] = chunk
            self.resident_bytes += chunk.memory_bytes
        return chunk

    def chunk_of(self, seq: int) -> Chunk | None:
        """The chunk that holds a number."""
        at = bisect_right(self._firsts, seq) - 1
        chunk = self.chunks.get(self._firsts[at]) if at >= 0 else None
        return chunk if chunk is not None and seq < chunk.end else None

    def chunks_from(self, seq: int) -> Iterator[Chunk]:
        """The chunks from the one that holds a number, or would, in order. Nothing may change
        meanwhile."""
        for at in range(max(0, bisect_right(self._firsts, seq) - 1), len(self._firsts)):
            chunk = self.chunks.get(self._firsts[at])
            if chunk is not None and seq < chunk.end:
                yield chunk

    def flush(self, rows: Iterator[int]) -> list[Flushed]:
        """Give a row to every message that has none; the journal writes them next."""
        if self._flushed == self.end:
            return []
        waiting = []
        for first in reversed(self.chunks):
            chunk = self.chunks[first]
            if chunk.end <= self._flushed:
                break
            if chunk.flushed < chunk.end:
                waiting.append(chunk)
        self._flushed = self.end
        return [self._flush(chunk, next(rows)) for chunk in reversed(waiting)]

    def _flush(self, chunk: Chunk, row: int) -> Flushed:
        content = chunk.content
        assert content is not None, "a chunk left memory before it had a row"
        first, start, stop = chunk.flushed, chunk.flushed - chunk.first, chunk.end - chunk.first
        batch = content.cut(start, stop) if isinstance(content, Growing) else content
        if batch is content and start:
            batch = content.slice(start, stop)  # the chunk closed since its last row was written
        self._add_row(chunk, row)
        return Flushed(row, chunk, first, chunk.end, batch)

    def drop(self, chunk: Chunk) -> Iterable[int]:
        """The last message of a chunk is gone; returns the rows that it no longer needs."""
        if self._gathered is not None:
            self._gathered.changes(chunk)
        del self.chunks[chunk.first]
        if len(self._firsts) > 64 + 2 * len(self.chunks):
            self._firsts = list(self.chunks)
        if chunk is self._open:
            self._open = None
        if chunk.content is not None:
            self.evict(chunk)
        return chunk.rows

    def note_rows(self, count: int) -> bool:
        """Note the rows of so many more chunks, ahead of `drop_all`; true if there are others. The
        log may change meanwhile, and afterwards."""
        if self._gathered is None:
            self._gathered = _GatheredRows(list(self._firsts))
        gathered = self._gathered
        for first in gathered.next(count):
            chunk = self.chunks.get(first)
            if chunk is not None and first not in gathered.changed:
                gathered.add(chunk.rows)
        return bool(gathered.left)

    def rows_change(self, chunk: Chunk) -> None:
        """The chunk is about to have other rows than it has, or none."""
        if self._gathered is not None:
            self._gathered.changes(chunk)

    def drop_all(self) -> tuple[list[int], list[Any]]:
        """Every message is gone; returns the rows that are no longer needed, and what was held. It
        is quick if the rows are gathered."""
        gathered, self._gathered = self._gathered, None
        if gathered is None or gathered.left:
            rows = list(chain.from_iterable(map(_rows, self.chunks.values())))
        else:
            late = [self.chunks[first] for first in gathered.changed if first in self.chunks]
            rows = gathered.all()
            rows += chain.from_iterable(map(_rows, late))
        held = [self._firsts, self.resident, self.chunks]
        self.chunks, self.resident = {}, {}
        self._firsts = []
        self.resident_bytes = 0
        self._open = None
        return rows, held

    def evictable(self, chunk: Chunk) -> bool:
        """Whether the content may leave memory: it is all on disk and grows no more."""
        return (
            chunk.content is not None
            and chunk.first in self.resident  # else a purge has dropped it
            and chunk is not self._open
            and chunk.end <= self.settled
            and not chunk.unsaved
        )

    def evict(self, chunk: Chunk) -> None:
        chunk.content = None
        del self.resident[chunk.first]
        self.resident_bytes -= chunk.memory_bytes

    def restore(self, chunk: Chunk, content: Batch) -> None:
        """The content of an evicted chunk, read back."""
        if chunk.content is None and self.chunks.get(chunk.first) is chunk:
            chunk.content = content
            self.resident[chunk.first] = chunk
            self.resident_bytes += chunk.memory_bytes
            restored, came_ms = self.restored, max(chunk.created_first_ms, chunk.arrived_ms)
            if restored.came_ms is None or came_ms < restored.came_ms:
                restored.came_ms = came_ms

    def close_open(self) -> None:
        """Freeze the open chunk: its buffers become exact, and nothing is added any more."""
        chunk = self._open
        if chunk is not None:
            chunk.content = content = self._growing.cut(0, chunk.end - chunk.first)
            if self._keeps_groups:
                chunk.groups = content.groups
            if chunk.flushed == chunk.end:
                chunk.rows = packed(chunk.rows)
            self._open = None
            self._growing = Growing()

    def close_early(self, bytes_min: int) -> bool:
        """The same, if all of it is on disk and it is worth evicting; whether it was."""
        chunk = self._open
        if chunk is None or chunk.end > self.settled or chunk.payload_bytes < bytes_min:
            return False
        self.close_open()
        return True

    def recover(self, chunks: Iterable[Chunk], end: int) -> None:
        """The state after a restart: all of it is on disk, none of it in memory."""
        self.chunks = {chunk.first: chunk for chunk in sorted(chunks, key=_by_first)}
        self._firsts = list(self.chunks)
        for chunk in self.chunks.values():
            if isinstance(chunk.rows, list):
                chunk.rows = packed(chunk.rows)
        self.end = self.settled = self._flushed = end

    def recall(self, change: Pushed | Published, groups: Groups = None) -> Chunk:
        """Messages that a record of the journal tells of. Records do not tell of all messages of
        a commit in order: `recover` follows the last one."""
        chunk = self.chunks.get(change.chunk)
        if chunk is None:
            chunk = Chunk(change.first, change.end, None, change.created_first_ms)
            chunk.row_start, chunk.arrived_ms = change.row_start, change.arrived_ms
            chunk.groups = list(groups) if isinstance(groups, list) else groups
            chunk.rows = [change.row, *change.more_rows]
            self.chunks[chunk.first] = chunk
            insort(self._firsts, chunk.first)
        else:
            if chunk.groups is not None or groups is not None:
                chunk.groups = _column(chunk.groups, chunk.end - chunk.first)
                chunk.groups += _column(groups, change.end - change.first)
            chunk.live += change.end - change.first
            if not isinstance(chunk.rows, list):
                chunk.rows = list(chunk.rows)
            chunk.rows.append(change.row)
        chunk.created_last_ms = change.created_last_ms
        chunk.payload_bytes += change.payload_bytes
        chunk.end = chunk.flushed = change.end
        self.end = max(self.end, change.end)
        return chunk

    def _begin(self, now_ms: int) -> Chunk:
        self._growing = Growing()
        self._open = chunk = Chunk(self.end, self.end, self._growing, now_ms)
        self.chunks[chunk.first] = self.resident[chunk.first] = chunk
        self._firsts.append(chunk.first)
        return chunk

    def _add_chunk(self, batch: Batch, now_ms: int) -> Chunk:
        self.close_open()
        chunk = Chunk(self.end, self.end + batch.count, batch, now_ms)
        chunk.groups = batch.groups if self._keeps_groups else None
        chunk.payload_bytes = batch.size
        self.chunks[chunk.first] = self.resident[chunk.first] = chunk
        self._firsts.append(chunk.first)
        self.end = chunk.end
        self.resident_bytes += chunk.memory_bytes
        return chunk


class _GatheredRows:
    """The rows of a log that is about to be dropped. Finding them takes a look at every chunk: of
    very many that is too long for one step."""

    __slots__ = ("_more", "_rows", "changed", "left")

    def __init__(self, firsts: list[int]) -> None:
        self.left = firsts  # of the chunks that were not looked at
        self.changed: set[int] = set()  # chunks that were changed since: look at them in the end
        self._rows: dict[int, None] = {}
        self._more: Counter[int] = Counter()  # rows that several chunks share

    def next(self, count: int) -> list[int]:
        some = self.left[-count:]
        del self.left[-count:]
        return some

    def add(self, rows: Iterable[int]) -> None:
        for row in rows:
            if row in self._rows:
                self._more[row] += 1
            else:
                self._rows[row] = None

    def changes(self, chunk: Chunk) -> None:
        if chunk.first in self.changed:
            return
        self.changed.add(chunk.first)
        if not self._is_looked_at(chunk):
            return
        for row in chunk.rows:
            if self._more[row] > 0:
                self._more[row] -= 1
            else:
                del self._more[row]
                self._rows.pop(row, None)

    def all(self) -> list[int]:
        return [*self._rows, *self._more.elements()]

    def _is_looked_at(self, chunk: Chunk) -> bool:
        """They are looked at from the last to the first of those that there were."""
        return not self.left or chunk.first > self.left[-1]


_by_first = attrgetter("first")


def _column(groups: Groups, count: int) -> list[str | None]:
    return groups if isinstance(groups, list) else [groups] * count
