"""A log: contiguous numbers and the chunks that hold their messages.

A lane of a queue and a topic are both logs that grow at the end. Small pushes are copied into the
open chunk and become one row of the journal when the next commit begins (`flush`); a large batch
is a chunk and a row at once. Messages at or beyond `settled` are not on disk yet: nobody may see
them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from nexo.machine.chunk import COLUMN_BYTES, Chunk, Growing
from nexo.vocabulary.limits import (
    CHUNK_BYTES_MAX,
    CHUNK_MESSAGES_MAX,
    SMALL_PUSH_BYTES,
    SMALL_PUSH_MESSAGES,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nexo.vocabulary.batch import Batch


class Flushed(NamedTuple):
    """Messages that became a row: `batch` is to be written unless another owner writes it."""

    row: int
    chunk: Chunk
    first: int
    end: int
    batch: Batch


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


class Log:
    __slots__ = (
        "_flushed",
        "_growing",
        "_open",
        "chunks",
        "end",
        "evicts_oldest",
        "resident",
        "resident_bytes",
        "settled",
    )

    def __init__(self, first: int, evicts_oldest: bool = False) -> None:
        self.evicts_oldest = evicts_oldest  # else the newest, which is needed last
        self.end = first  # the number that the next message gets
        self.settled = first
        self.chunks: dict[int, Chunk] = {}  # by first number, oldest first
        self.resident: dict[int, Chunk] = {}  # those whose content is in memory …
        self.resident_bytes = 0  # … and what they take
        self._open: Chunk | None = None  # the chunk that small pushes fill …
        self._growing = Growing()  # … and its content
        self._flushed = first  # every message below this has a row

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
        if count >= SMALL_PUSH_MESSAGES or size >= SMALL_PUSH_BYTES:
            if batch.created is not None:  # of an earlier life: here they come together, now
                batch = msgspec.structs.replace(batch, created=None)
            return self._add_chunk(batch, now_ms)
        chunk = self._open or self._begin(now_ms)
        self._growing.add(batch, now_ms)
        chunk.groups = self._growing.groups
        self.end += count
        chunk.end += count
        chunk.live += count
        chunk.payload_bytes += size
        chunk.created_last_ms = now_ms
        self.resident_bytes += size + COLUMN_BYTES * count
        if chunk.payload_bytes >= CHUNK_BYTES_MAX or chunk.end - chunk.first >= CHUNK_MESSAGES_MAX:
            self.close_open()
        return chunk

    def share(self, batch: Batch, row: int, row_start: int, now_ms: int) -> Chunk:
        """A batch whose row another owner writes: no payload is copied."""
        chunk = self._add_chunk(batch, now_ms)
        chunk.rows.append(row)
        chunk.row_start = row_start
        chunk.flushed = chunk.end
        return chunk

    def adopt(self, piece: Piece) -> Chunk:
        """Messages that another owner has written, in memory or not."""
        self.close_open()
        chunk = Chunk(self.end, self.end + piece.messages, piece.content, piece.created_first_ms)
        chunk.created_last_ms = piece.created_last_ms
        chunk.groups = piece.groups
        chunk.payload_bytes = piece.payload_bytes
        chunk.rows, chunk.row_start = list(piece.rows), piece.row_start
        chunk.flushed = self.end = chunk.end
        self.chunks[chunk.first] = chunk
        if chunk.content is not None:
            self.resident[chunk.first] = chunk
            self.resident_bytes += chunk.memory_bytes
        return chunk

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
        chunk.rows.append(row)
        chunk.flushed = chunk.end
        return Flushed(row, chunk, first, chunk.end, batch)

    def drop(self, chunk: Chunk) -> list[int]:
        """The last message of a chunk is gone; returns the rows that it no longer needs."""
        del self.chunks[chunk.first]
        if chunk is self._open:
            self._open = None
        if chunk.content is not None:
            self.evict(chunk)
        return chunk.rows

    def drop_all(self) -> list[int]:
        """Every message is gone; returns the rows that are no longer needed."""
        rows = [row for chunk in self.chunks.values() for row in chunk.rows]
        for chunk in self.resident.values():
            chunk.content = None
        self.chunks.clear()
        self.resident.clear()
        self.resident_bytes = 0
        self._open = None
        return rows

    def evictable(self, chunk: Chunk) -> bool:
        """Whether the content may leave memory: it is all on disk and grows no more."""
        return (
            chunk.content is not None
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

    def close_open(self) -> None:
        """Freeze the open chunk: its buffers become exact, and nothing is added any more."""
        chunk = self._open
        if chunk is not None:
            chunk.content = content = self._growing.cut(0, chunk.end - chunk.first)
            chunk.groups = content.groups
            self._open = None
            self._growing = Growing()

    def recover(self, chunks: list[Chunk], end: int) -> None:
        """The state after a restart: all of it is on disk, none of it in memory."""
        self.chunks = {chunk.first: chunk for chunk in chunks}
        self.end = self.settled = self._flushed = end

    def _begin(self, now_ms: int) -> Chunk:
        self._growing = Growing()
        self._open = chunk = Chunk(self.end, self.end, self._growing, now_ms)
        self.chunks[chunk.first] = self.resident[chunk.first] = chunk
        return chunk

    def _add_chunk(self, batch: Batch, now_ms: int) -> Chunk:
        self.close_open()
        chunk = Chunk(self.end, self.end + batch.count, batch, now_ms)
        chunk.groups = batch.groups
        chunk.payload_bytes = batch.size
        self.chunks[chunk.first] = self.resident[chunk.first] = chunk
        self.end = chunk.end
        self.resident_bytes += chunk.memory_bytes
        return chunk
