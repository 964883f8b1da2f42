"""Where a world keeps its data: a simulated disk under SQLite, or memory that outlives a crash, and
the watch over the journal on it."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Protocol

from nexo.engine.audit import RecordFold, audit
from nexo.journal.connection import Tuning
from nexo.journal.memory import MemoryDisk, MemoryJournal
from nexo.journal.sqlite import SqliteJournal
from nexo.simulation.disk import FaultKind, SimulatedDisk
from nexo.simulation.history import Violation
from nexo.vocabulary.errors import ReadOnly

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from nexo.journal.port import Commit, Copy, Journal, Stored, Usage
    from nexo.simulation.ledger import Ledger
    from nexo.simulation.plan import Boot
    from nexo.vocabulary.batch import Batch

# Small pages and early checkpoints: a short life then meets every kind of operation.
_TUNING = Tuning(
    page_bytes=2048, cache_bytes=256 * 1024, checkpoint_pages=40, vacuum_pages=4, free_pages_kept=4
)
_PROMISE = "the journal is sound"
_CHANGE_BYTES = 16  # the least that a change takes in a record


class Store(Protocol):
    def journal(self, ledger: Ledger) -> WatchedJournal:
        """A journal for the next start."""

    def arm(self, boot: Boot, journal: WatchedJournal) -> None:
        """Let happen what the plan says."""

    def heal(self, journal: WatchedJournal) -> None:
        """Nothing fails from now on."""

    def make_room(self) -> None:
        """The disk is no longer full."""

    def lag_ms(self) -> float:
        """How slow it was since this was asked last."""

    def end(self, power_lost: bool) -> None:
        """The process that used it is gone."""

    def verify(self) -> None:
        """Everything is there, and nothing else."""

    def close(self) -> None: ...


class DiskStore:
    def __init__(self, random: Random, reserve_bytes: int) -> None:
        self._disk = SimulatedDisk(random)
        self._random = random
        self._reserve_bytes = reserve_bytes
        self._inner: SqliteJournal | None = None

    def journal(self, ledger: Ledger) -> WatchedJournal:
        self._inner = SqliteJournal(
            "data", vfs=self._disk.name, tuning=_TUNING, reserve_bytes=self._reserve_bytes
        )
        return WatchedJournal(self._inner, ledger)

    def arm(self, boot: Boot, journal: WatchedJournal) -> None:
        disk, now = self._disk, self._disk.operations
        disk.faults.clear()
        for operation in boot.failures:
            disk.faults[now + operation] = FaultKind.FAIL
        if boot.full_at is not None:
            disk.faults[now + boot.full_at] = FaultKind.FULL
        if boot.end.name == "POWER_AT_OPERATION":
            disk.faults[now + boot.operation] = FaultKind.CRASH
        disk.write_ms, disk.sync_ms = (0.5, 4.0) if boot.is_slow else (0.0, 0.0)

    def heal(self, journal: WatchedJournal) -> None:
        self._disk.faults.clear()
        self.make_room()
        self._disk.write_ms = self._disk.sync_ms = 0.0

    def make_room(self) -> None:
        self._disk.capacity_bytes = None

    def lag_ms(self) -> float:
        lag_ms, self._disk.elapsed_ms = self._disk.elapsed_ms, 0.0
        return lag_ms

    def end(self, power_lost: bool) -> None:
        self._disk.faults.clear()
        if power_lost or self._disk.is_down:
            self._disk.restart()
        else:
            self._disk.kill()
        if self._inner is not None:
            self._inner.close()

    def verify(self) -> None:
        report = audit("data", vfs=self._disk.name)
        if report.findings:
            raise Violation(_PROMISE, "; ".join(each.problem for each in report.findings))

    def close(self) -> None:
        self._disk.faults.clear()
        if self._inner is not None:
            self._inner.close()
        self._disk.close()


class MemoryStore:
    def __init__(self, random: Random) -> None:
        self._disk = MemoryDisk()
        self._random = random
        self._is_slow = False

    def journal(self, ledger: Ledger) -> WatchedJournal:
        return WatchedJournal(MemoryJournal(self._disk), ledger)

    def arm(self, boot: Boot, journal: WatchedJournal) -> None:
        # A commit is about five operations of a disk.
        for operation in boot.failures:
            mishap = self._random.choice(list(Mishap))
            journal.mishaps[operation // 5 + 1] = mishap
        self._is_slow = boot.is_slow

    def heal(self, journal: WatchedJournal) -> None:
        journal.mishaps.clear()
        self._is_slow = False

    def make_room(self) -> None: ...

    def lag_ms(self) -> float:
        return self._random.choice([1.0, 5.0, 20.0]) if self._is_slow else 0.0

    def end(self, power_lost: bool) -> None: ...

    def verify(self) -> None:
        journal, fold = MemoryJournal(self._disk), RecordFold()
        epoch = self._disk.epoch
        journal.open()
        self._disk.epoch = epoch  # looking is no start
        rows: set[int] = set()
        for owner in journal.owners():
            found, complaints = fold.rows_of(owner, journal.load(owner))
            rows |= found
            if complaints:
                raise Violation(_PROMISE, f"owner {owner}: {complaints}")
        if rows != self._disk.rows.keys():
            missing, orphans = sorted(rows - self._disk.rows.keys()), self._disk.rows.keys() - rows
            raise Violation(_PROMISE, f"rows {missing} are missing, rows {sorted(orphans)} orphans")

    def close(self) -> None: ...


class Mishap(enum.Enum):
    REFUSED = "refused"  # nothing is stored
    IN_DOUBT = "in doubt"  # it is stored, and the caller is told that it failed


class WatchedJournal:
    """It tells of boot epochs, holds the engine to one call at a time, and lets commits fail where
    the store beneath cannot by itself (memory does not break)."""

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

    @property
    def next_is_long(self) -> bool:
        return self._inner.next_is_long

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
