"""Memory: payloads beyond the budget leave RAM and are read back in order.

What a consumer needs last goes first: the newest chunks of the queue that takes the most. Chunks
that were read back because their turn is near are left alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from nexo.vocabulary.batch import concatenate
from nexo.vocabulary.limits import READ_AHEAD_CHUNKS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from nexo.engine.desk import Desk
    from nexo.journal.port import Journal
    from nexo.machine.chunk import Chunk
    from nexo.machine.log import Log
    from nexo.vocabulary.batch import Batch


class Holder(Protocol):
    """An actor that keeps contents in memory."""

    def logs(self) -> Iterable[Log]:
        """Its logs, the one whose messages are needed last first."""


class Memory:
    def __init__(self, limit_bytes: int, journal: Journal, desk: Desk) -> None:
        self.limit_bytes = limit_bytes
        self._journal = journal
        self._desk = desk
        self._bytes: dict[Holder, int] = {}
        self._total = 0
        self._needed: set[Chunk] = set()  # read back, and not consumed yet
        self._fetching: dict[Chunk, list[Callable[[BaseException | None], None]]] = {}

    @property
    def resident_bytes(self) -> int:
        return self._total

    def note(self, holder: Holder) -> None:
        """The contents of an actor grew or shrank; make room if they are too much."""
        size = sum(log.resident_bytes for log in holder.logs())
        self._total += size - self._bytes.get(holder, 0)
        self._bytes[holder] = size
        if self._total > self.limit_bytes:
            self._make_room()

    def forget(self, holder: Holder) -> None:
        self._total -= self._bytes.pop(holder, 0)

    def clear(self, error: BaseException) -> None:
        """The state is loaded anew: whoever waits for a chunk of the old one is told."""
        self._bytes.clear()
        self._total = 0
        self._needed.clear()
        fetching, self._fetching = self._fetching, {}
        for waiting in fetching.values():
            for done in waiting:
                done(error)

    def fetch(self, log: Log, chunk: Chunk, done: Callable[[BaseException | None], None]) -> None:
        """Read a chunk back, and the next few with it; `done` is told when it is there."""
        waiting = self._fetching.get(chunk)
        if waiting is not None:
            waiting.append(done)
            return
        chunks = self._ahead(log, chunk)
        for each in chunks:
            self._fetching[each] = []
        self._fetching[chunk].append(done)
        rows = [row for each in chunks for row in each.rows]

        def finished(batches: list[Batch], error: BaseException | None) -> None:
            self._arrived(log, chunks, batches, error)

        self._desk.submit(lambda: self._journal.fetch(rows), finished)

    def _ahead(self, log: Log, chunk: Chunk) -> list[Chunk]:
        chunks = [chunk]
        while len(chunks) < READ_AHEAD_CHUNKS:
            following = log.chunks.get(chunks[-1].end)
            if following is None or following.content is not None or following in self._fetching:
                break
            chunks.append(following)
        return chunks

    def _arrived(
        self, log: Log, chunks: list[Chunk], batches: list[Batch], error: BaseException | None
    ) -> None:
        at = 0
        for chunk in chunks:
            if error is None:
                content = concatenate(batches[at : at + len(chunk.rows)])
                at += len(chunk.rows)
                count = chunk.end - chunk.first if chunk.seqs is None else len(chunk.seqs)
                log.restore(chunk, content.slice(chunk.row_start, chunk.row_start + count))
                self._needed.add(chunk)
        for chunk in chunks:
            for done in self._fetching.pop(chunk, ()):
                done(error)

    def _make_room(self) -> None:
        # Some slack, so that not every commit at the limit has to look for something to evict.
        target = self.limit_bytes - self.limit_bytes // 32
        self._needed = {c for c in self._needed if c.content is not None and c.live}
        for holder in sorted(self._bytes, key=lambda each: -self._bytes[each]):
            before = self._bytes[holder]
            left = self._evict(holder, self._total - target)
            self._bytes[holder] = left
            self._total += left - before
            if self._total <= target:
                return

    def _evict(self, holder: Holder, excess: int) -> int:
        """Evict about that many bytes of one actor; returns what it has left."""
        for log in holder.logs():
            for first in reversed(list(log.resident)):
                if excess <= 0:
                    break
                chunk = log.resident[first]
                if log.evictable(chunk) and chunk not in self._needed:
                    excess -= chunk.memory_bytes
                    log.evict(chunk)
        return sum(log.resident_bytes for log in holder.logs())
