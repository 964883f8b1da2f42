"""Who still needs a row. Most rows have one holder and are not listed; shared ones are counted."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable


class SharedRows:
    """A row that a topic and the queues bound to it hold goes with its last holder."""

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

    def recount(self, rows_by_chunk: Iterable[Collection[int]]) -> None:
        """Start anew from the rows of all chunks. Most have one holder, so they are looked at as
        sets, and only those that were met before are counted one by one."""
        self._holders = {}
        seen: set[int] = set()
        for rows in rows_by_chunk:
            if not seen.isdisjoint(rows):
                for row in seen.intersection(rows):
                    self.share(row)
            seen.update(rows)
