"""Rows that several hold: who still needs one, and those of which more is wanted soon."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nexo.machine.chunk import COLUMN_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nexo.vocabulary.batch import Batch


class SharedRows:
    """A row that a topic and the queues bound to it hold goes with its last holder. Most rows have
    one holder and are not listed; shared ones are counted."""

    def __init__(self) -> None:
        self._holders: dict[int, int] = {}

    def share(self, row: int, more: int = 1) -> None:
        """One holder more than it has now."""
        self._holders[row] = self._holders.get(row, 1) + more

    def release(self, row: int) -> bool:
        """A holder lets go; true if it was the last one, so the row may be deleted."""
        holders = self._holders.get(row)
        if holders is None:
            return True
        if holders == 2:
            del self._holders[row]
        else:
            self._holders[row] = holders - 1
        return False

    def release_all(self, rows: list[int]) -> list[int]:
        """The same for many; returns those that may be deleted."""
        if not self._holders or self._holders.keys().isdisjoint(rows):
            return rows
        return [row for row in rows if self.release(row)]

    def recount(self, rows_by_chunk: Iterable[Iterable[int]]) -> None:
        """Start anew from the rows of all chunks. Most have one holder, so they are looked at as
        sets, and only those that were met before are counted one by one."""
        self._holders = {}
        seen: set[int] = set()
        for rows in rows_by_chunk:
            if not seen.isdisjoint(rows):
                for row in seen.intersection(rows):
                    self.share(row)
            seen.update(rows)


class RecentRows:
    """Rows that were read back a moment ago, and of which there is more to come.

    What a filtered binding has chosen of a row are many small chunks, which are read back some at
    a time: without this, all of the row each time. The longest unused go first."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._batches: dict[int, Batch] = {}
        self.bytes = 0  # what they take, columns included, roughly

    def get(self, row: int) -> Batch | None:
        return self._batches.get(row)

    def keep(self, row: int, batch: Batch) -> None:
        """It is wanted again soon. One that is too large alone is not kept."""
        self.forget(row)
        size = _memory_bytes(batch)
        while self._batches and self.bytes + size > self._bytes_max:
            self.forget(next(iter(self._batches)))
        if size <= self._bytes_max:
            self._batches[row] = batch
            self.bytes += size

    def forget(self, row: int) -> None:
        batch = self._batches.pop(row, None)
        if batch is not None:
            self.bytes -= _memory_bytes(batch)

    def clear(self) -> None:
        self._batches.clear()
        self.bytes = 0


def _memory_bytes(batch: Batch) -> int:
    return batch.size + COLUMN_BYTES * batch.count
