"""Where a world keeps its data: a simulated disk under SQLite, or memory that outlives a crash."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from nexo.engine.audit import RecordFold, audit
from nexo.journal.connection import Tuning
from nexo.journal.memory import MemoryDisk, MemoryJournal
from nexo.journal.sqlite import SqliteJournal
from nexo.simulation.disk import FaultKind, SimulatedDisk
from nexo.simulation.history import Violation
from nexo.simulation.watched import Mishap, WatchedJournal

if TYPE_CHECKING:
    from random import Random

    from nexo.simulation.ledger import Ledger
    from nexo.simulation.plan import Boot

# Small pages and early checkpoints: a short life then meets every kind of operation.
_TUNING = Tuning(
    page_bytes=2048, cache_bytes=256 * 1024, checkpoint_pages=40, vacuum_pages=4, free_pages_kept=4
)
_PROMISE = "the journal is sound"


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
