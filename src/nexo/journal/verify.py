"""The offline check of a data directory: is everything there, and is it what was written?

It reads every page and every checksum of a journal that no broker has open, changes nothing, and
returns what it found. What the records mean is not known here: whoever folds them (the machine)
is given as a `Fold`, and tells which rows an owner's state refers to.
"""

from __future__ import annotations

import enum
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import apsw
import msgspec

from nexo.journal.connection import connect_to_read
from nexo.journal.fault import describe, translate
from nexo.journal.layout import Layout
from nexo.journal.rows import decode_row
from nexo.journal.sqlite import JOURNAL_FILE
from nexo.journal.tables import read_highest_row, read_meta, read_owners, scan_owner
from nexo.vocabulary.errors import DataCorrupt, InvalidArgument, VersionMismatch
from nexo.vocabulary.limits import VERIFIED_PROBLEMS_MAX

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from nexo.journal.port import Stored


class Severity(enum.Enum):
    ERROR = "error"  # something stored is wrong or missing
    WARNING = "warning"  # nothing is lost, but it should not be so


class Finding(msgspec.Struct, frozen=True):
    severity: Severity
    problem: str


class Report(msgspec.Struct, frozen=True):
    file: str
    format_version: int
    boot_epoch: int
    last_row: int
    rows: int
    messages: int
    payload_bytes: int
    owners: int
    records: int
    findings: list[Finding]
    # Known where somebody understood the records: the latest time in them, and what queues hold.
    latest_ms: int = 0
    queues: int = 0
    queued: int = 0

    @property
    def is_sound(self) -> bool:
        return not any(finding.severity is Severity.ERROR for finding in self.findings)


class Fold(Protocol):
    """Who understands records."""

    def rows_of(self, owner: int, stored: Stored) -> tuple[set[int], list[str]]:
        """The rows that the owner's state refers to, and complaints about that state."""


def verify(
    path: str | os.PathLike[str],
    fold: Fold | None = None,
    *,
    vfs: str | None = None,
    layout: Layout | None = None,
) -> Report:
    """Check the journal in a data directory. Raises only if it cannot be looked at: `NotReady`
    while a broker has it open, `InvalidArgument` if there is none."""
    file = str(Path(path) / JOURNAL_FILE)
    if vfs is None and not Path(file).exists():
        raise InvalidArgument(
            f"there is no broker data at {file}", "check the path of the data directory"
        )
    check = _Check(file, fold)
    try:
        connection, check.version = connect_to_read(
            file, vfs or apsw.vfs_names()[0], layout or Layout()
        )
    except (DataCorrupt, InvalidArgument, VersionMismatch) as error:
        check.complain(error.message)
        return check.report()
    except (apsw.CorruptError, apsw.NotADBError) as error:
        check.complain(f"{file}: {describe(error)}")
        return check.report()
    except apsw.Error as error:
        raise translate(error, "opening", file) from error
    try:
        if check.version == (layout or Layout()).version:
            check.run(connection)
        else:
            check.complain(
                f"{file} has format version {check.version}: start the broker once to upgrade it",
                Severity.WARNING,
            )
    finally:
        connection.close()
    return check.report()


class _Check:
    """One run: the counts and findings so far."""

    def __init__(self, file: str, fold: Fold | None) -> None:
        self._file = file
        self._fold = fold
        self.version = 0
        self._epoch = 0
        self._last_row = 0
        self._messages = 0
        self._payload_bytes = 0
        self._owners = 0
        self._records = 0
        self._present: set[int] = set()
        self._findings: list[Finding] = []

    def complain(self, problem: str, severity: Severity = Severity.ERROR) -> None:
        self._findings.append(Finding(severity, problem))

    def run(self, connection: apsw.Connection) -> None:
        """Each part by itself: damage in one table must not hide that in another."""
        for part in (self._pages, self._meta, self._payload, self._state):
            self._guarded(part, connection)

    def report(self) -> Report:
        return Report(
            file=self._file,
            format_version=self.version,
            boot_epoch=self._epoch,
            last_row=self._last_row,
            rows=len(self._present),
            messages=self._messages,
            payload_bytes=self._payload_bytes,
            owners=self._owners,
            records=self._records,
            findings=self._findings,
        )

    def _guarded(
        self, part: Callable[[apsw.Connection], None], connection: apsw.Connection
    ) -> None:
        try:
            part(connection)
        except DataCorrupt as error:
            self.complain(error.message)
        except (apsw.Error, UnicodeDecodeError) as error:
            name = part.__name__.strip("_")
            text = describe(error) if isinstance(error, apsw.Error) else str(error)
            self.complain(f"the check of {name} could not be finished: {text}")

    def _pages(self, connection: apsw.Connection) -> None:
        problems = connection.execute(f"PRAGMA integrity_check({VERIFIED_PROBLEMS_MAX})").fetchall()
        for (problem,) in problems:
            if problem != "ok":
                self.complain(f"the structure of the file is damaged: {problem}")

    def _meta(self, connection: apsw.Connection) -> None:
        self._epoch = read_meta(connection, "boot_epoch")
        noted = read_meta(connection, "last_row")
        self._last_row = max(noted, read_highest_row(connection))
        if self._epoch < 1:
            self.complain("table meta: the boot epoch is missing")

    def _payload(self, connection: apsw.Connection) -> None:
        for columns in connection.execute("SELECT * FROM payload ORDER BY row"):
            row = columns[0]
            if isinstance(row, int):
                self._present.add(row)
            try:
                batch = decode_row(columns)
            except DataCorrupt as error:
                self.complain(error.message)
                continue
            self._messages += batch.count
            self._payload_bytes += len(batch.payload)

    def _state(self, connection: apsw.Connection) -> None:
        referred: set[int] = set()
        is_complete = True
        for owner in read_owners(connection):
            self._owners += 1
            stored, problems = scan_owner(connection, owner)
            self._records += len(stored.records)
            if problems:
                is_complete = False
                for problem in problems:
                    self.complain(problem)
                continue
            if self._fold is not None:
                rows, complaints = self._fold.rows_of(owner, stored)
                for complaint in complaints:
                    self.complain(f"owner {owner}: {complaint}")
                for row in sorted(rows - self._present):
                    self.complain(f"owner {owner} refers to row {row}, which is missing")
                referred |= rows
        if self._fold is not None and is_complete:
            for row in sorted(self._present - referred):
                self.complain(f"row {row} belongs to no owner", Severity.WARNING)
