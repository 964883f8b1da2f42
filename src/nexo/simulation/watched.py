"""A journal under watch: it tells of boot epochs, holds the engine to one call at a time, and lets
commits fail where the store beneath cannot by itself (memory does not break)."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from nexo.simulation.history import Violation
from nexo.vocabulary.errors import ReadOnly

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nexo.journal.port import Commit, Copy, Journal, Stored, Usage
    from nexo.simulation.ledger import Ledger
    from nexo.vocabulary.batch import Batch


_CHANGE_BYTES = 16  # the least that a change takes in a record


class Mishap(enum.Enum):
    REFUSED = "refused"  # nothing is stored
    IN_DOUBT = "in doubt"  # it is stored, and the caller is told that it failed


class WatchedJournal:
    def __init__(self, inner: Journal, ledger: Ledger) -> None:
        self._inner = inner
        self._ledger = ledger
        self._epoch = 0  # of an open whose state the engine has not taken up yet
        self.reserved = False  # a call is under way in a thread of its own …
        self.inside = False  # … and this one comes from there
        self.mishaps: dict[int, Mishap] = {}  # by number of the commit
        self.commits = 0
        self.bytes_read = 0
        self.units = 0  # of work: what was asked of it, and again when the outcome is told
        self._units_untold = 0

    def open(self) -> int:
        self._alone("open")
        self._epoch = self._inner.open()
        return self._epoch

    def owners(self) -> list[int]:
        self._alone("owners")
        return self._inner.owners()

    def load(self, owner: int) -> Stored:
        self._alone("load")
        epoch, self._epoch = self._epoch, 0
        if epoch:
            self._ledger.begin_epoch(epoch)
        stored = self._inner.load(owner)
        self._count((len(stored.snapshot or b"") + sum(map(len, stored.records))) // _CHANGE_BYTES)
        return stored

    def last_row(self) -> int:
        self._alone("last_row")
        return self._inner.last_row()

    def commit(self, commit: Commit) -> float:
        self._alone("commit")
        self.commits += 1
        mishap = self.mishaps.pop(self.commits, None)
        self._ledger.commits_begun += 1
        self._count(
            sum(len(write.record) for write in commit.writes) // _CHANGE_BYTES
            + sum(batch.count for _, batch in commit.rows)
        )
        took_s = 0.0
        if mishap is not Mishap.REFUSED:
            took_s = self._inner.commit(commit)
            self._ledger.commits_done = self._ledger.commits_begun
        if mishap is not None:
            raise ReadOnly(f"commit {self.commits} failed as planned ({mishap.value})")
        return took_s

    def fetch(self, rows: Sequence[int]) -> list[Batch]:
        self._alone("fetch")
        batches = self._inner.fetch(rows)
        self._count(sum(batch.count for batch in batches))
        self.bytes_read += sum(len(batch.payload) for batch in batches)
        return batches

    def usage(self) -> Usage:
        self._alone("usage")
        return self._inner.usage()

    def tidy(self) -> bool:
        self._alone("tidy")
        return self._inner.tidy()

    def copy(self) -> Copy:
        self._alone("copy")
        return self._inner.copy()

    def close(self) -> None:
        self._alone("close")
        self._inner.close()

    def told(self) -> None:
        """The outcome of the last call is about to be told: what it brought is work again."""
        self.units += self._units_untold
        self._units_untold = 0

    def _count(self, units: int) -> None:
        self.units += units
        self._units_untold += units

    def _alone(self, call: str) -> None:
        if self.reserved and not self.inside:
            raise Violation("the journal has one caller at a time", f"{call} during another call")
