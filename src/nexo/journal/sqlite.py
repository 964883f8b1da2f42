"""The embedded journal: one SQLite file in the data directory, a transaction a commit.

What a commit costs is the pages it dirties (each goes to the WAL whole) and one fdatasync. So a
batch is one row, an owner's change is one row, and the highest row number is only written down
when no stored row says it any more.

After any failure but a full disk the journal is broken: the connection is closed without another
write, and everything raises `ReadOnly` until `open()` has recovered the file from what the disk
holds. A full disk is different. SQLite reports it when a write came back short, so the WAL's last
frame is incomplete for sure, its checksum cannot match, and the next commit overwrites it: the
transaction is known not to have happened, and the journal goes on.
"""

from __future__ import annotations

import contextlib
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

import apsw

from nexo.journal.backup import COPY_FILE, JournalCopy, remove_copy
from nexo.journal.connection import Tuning, abandon, connect
from nexo.journal.directory import DataDirectory
from nexo.journal.fault import FAILED_HINT, describe, disk_full, translate
from nexo.journal.layout import Layout
from nexo.journal.port import Commit, Stored, Usage
from nexo.journal.reserve import Reserve
from nexo.journal.rows import (
    CORRUPT_HINT,
    encode_row,
    meta_checksum,
    record_checksum,
    snapshot_checksum,
)
from nexo.journal.tables import (
    DELETE_RECORDS,
    DELETE_ROWS,
    DELETE_SNAPSHOT,
    INSERT_RECORD,
    INSERT_ROW,
    REPLACE_META,
    REPLACE_SNAPSHOT,
    ranges,
    read_highest_row,
    read_last_number,
    read_meta,
    read_owner,
    read_owners,
    read_row,
)
from nexo.journal.wal import lay_out_wal, wal_bytes_of
from nexo.vocabulary.errors import DataCorrupt, InvalidArgument, NexoError, NotReady, ReadOnly
from nexo.vocabulary.limits import RESERVE_BYTES

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

    from nexo.journal.rows import RowColumns
    from nexo.vocabulary.batch import Batch

JOURNAL_FILE = "journal.db"
RESERVE_FILE = "journal.reserve"


class SqliteJournal:
    """`path` is the data directory; with `vfs` it is a name inside that file system instead."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        vfs: str | None = None,
        layout: Layout | None = None,
        tuning: Tuning | None = None,
        reserve_bytes: int = RESERVE_BYTES,
    ) -> None:
        directory = Path(path)
        self._directory = DataDirectory(directory) if vfs is None else None
        self._file = str(directory / JOURNAL_FILE)
        self._vfs = vfs or apsw.vfs_names()[0]
        self._layout = layout or Layout()
        self._tuning = tuning or Tuning()
        free_bytes = self._directory.free_bytes if self._directory is not None else None
        self._reserve = Reserve(str(directory / RESERVE_FILE), self._vfs, reserve_bytes, free_bytes)
        self._private = [directory / JOURNAL_FILE]
        if reserve_bytes:
            self._private.append(directory / RESERVE_FILE)
        self._is_first = True  # it has not been open yet
        self._connection: apsw.Connection | None = None
        self._fault = ""  # why it is broken; empty while it is not
        self._last_row = 0
        self._numbers: dict[int, int] = {}  # the last record number of each owner seen
        self._wal_pages = 0
        self._sync_s = 0.0  # what writing and synchronizing took of the last commit
        self._checkpoint_at_pages = self._tuning.checkpoint_pages
        self._shrunk = False

    # -- Opening and closing ------------------------------------------------------------------

    def open(self) -> int:
        self.close()
        if self._directory is not None:
            self._directory.make()
            for file in self._private:
                self._directory.keep_private(file)
        try:
            self._connection = connect(self._file, self._vfs, self._layout, self._tuning)
            if self._directory is not None:
                self._directory.settle()
                self._directory.sign()
                if self._is_first:  # later, a finished copy may be on its way to whoever asked
                    remove_copy(Path(self._file).with_name(COPY_FILE))
                    self._is_first = False
            self._fault = ""
            self._numbers.clear()
            self._wal_pages = 0
            self._connection.set_wal_hook(self._count_wal_pages)
            self._reserve.prepare()
            if not self._reserve.spent:  # else the room is needed for more than speed
                page_bytes = self._connection.pragma("page_size")
                length = wal_bytes_of(self._tuning.checkpoint_pages, page_bytes)
                lay_out_wal(self._file, self._vfs, length)
            self._last_row = max(
                read_meta(self._connection, "last_row"), read_highest_row(self._connection)
            )
            epoch = read_meta(self._connection, "boot_epoch") + 1
            columns = ("boot_epoch", epoch, meta_checksum("boot_epoch", epoch))
            write_epoch = partial(self._connection.execute, REPLACE_META, columns)
            self._in_spite_of_a_full_disk(write_epoch, may_spend=True)
        except apsw.BusyError as error:
            self._stop("")
            raise self._in_use() from error
        except apsw.Error as error:
            self._stop(describe(error))
            raise translate(error, "opening", self._file) from error
        except BaseException:
            self._stop("it could not be opened")
            raise
        return epoch

    def close(self) -> None:
        """A clean stop folds the WAL into the file. A failure to do so loses nothing: what was
        committed is in the WAL, and the next `open` recovers it."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        with contextlib.suppress(apsw.Error):
            connection.close()
        if self._directory is not None:
            self._directory.unsign()

    def _in_use(self) -> NotReady:
        owner = self._directory.owner() if self._directory is not None else None
        process = f"process {owner}" if owner is not None else "another process"
        return NotReady(
            f"the data directory {Path(self._file).parent} is in use by {process}",
            "stop that broker, or give this one a data directory of its own",
        )

    # -- Reading ------------------------------------------------------------------------------

    def owners(self) -> list[int]:
        connection = self._open_connection()
        try:
            return read_owners(connection)
        except apsw.Error as error:
            raise self._unreadable(error) from error

    def load(self, owner: int) -> Stored:
        connection = self._open_connection()
        try:
            return read_owner(connection, owner)
        except (apsw.Error, UnicodeDecodeError) as error:
            raise self._unreadable(error) from error

    def last_row(self) -> int:
        self._open_connection()
        return self._last_row

    def fetch(self, rows: Sequence[int]) -> list[Batch]:
        connection = self._open_connection()
        try:
            return [read_row(connection, row) for row in rows]
        except (apsw.Error, UnicodeDecodeError) as error:
            raise self._unreadable(error) from error

    def usage(self) -> Usage:
        connection = self._open_connection()
        try:
            page_bytes = connection.pragma("page_size")
            pages = connection.pragma("page_count")
            free_pages = connection.pragma("freelist_count")
        except apsw.Error as error:
            raise self._unreadable(error) from error
        wal = wal_bytes_of(self._wal_pages, page_bytes)
        return Usage(stored_bytes=pages * page_bytes + wal, free_bytes=free_pages * page_bytes)

    def copy(self) -> JournalCopy:
        connection = self._open_connection()
        if self._directory is None:
            raise InvalidArgument("a journal in a file system of its own cannot be copied")
        file = str(Path(self._file).with_name(COPY_FILE))
        return JournalCopy(connection, file, self._directory.free_bytes())

    # -- Writing ------------------------------------------------------------------------------

    @property
    def next_is_long(self) -> bool:
        """It folds the WAL: some 30 MB are written once more, and synced."""
        return self._wal_pages >= self._checkpoint_at_pages

    def commit(self, commit: Commit) -> float:
        self._open_connection()
        folds = self.next_is_long  # as whoever decided where this runs was told
        dropped = set(commit.dropped_rows)
        rows = [encode_row(row, batch) for row, batch in commit.rows]
        if rows and self._reserve.spent and not self._reserve.restore():
            raise disk_full(self._file)
        try:
            self._in_spite_of_a_full_disk(partial(self._transact, commit, rows, dropped), not rows)
        except apsw.ConstraintError as error:
            raise InvalidArgument("a row of this number is stored already") from error
        except apsw.Error as error:
            if rows and isinstance(error, apsw.FullError):
                # Acks have room from now on, and payloads need more than the next few bytes that
                # become free: whoever asks in between would only meet the full disk again.
                self._spend_reserve()
            raise self._failed(error) from error
        if folds:
            self._checkpoint()
        return self._sync_s

    def _in_spite_of_a_full_disk(self, write: Callable[[], object], may_spend: bool) -> None:
        """Fold the WAL, which then starts over in the room that it has; if that does not help,
        do it again in the room of the reserve."""
        remedies = iter(
            [self._checkpoint, self._spend_reserve] if may_spend else [self._checkpoint]
        )
        while True:
            try:
                write()
            except apsw.FullError:
                if not any(remedy() for remedy in remedies):
                    raise
            else:
                return

    def _spend_reserve(self) -> bool:
        is_spent = self._reserve.spend()
        if is_spent:
            self._checkpoint()
        return is_spent

    def _transact(self, commit: Commit, rows: list[RowColumns], dropped: set[int]) -> None:
        """One transaction, rolled back whatever stops it."""
        connection = self._open_connection()
        execute = connection.execute
        last_row = max([self._last_row, *[columns[0] for columns in rows]])
        numbers: dict[int, int] = {}
        execute("BEGIN IMMEDIATE")
        try:
            for columns in rows:
                if columns[0] not in dropped:
                    execute(INSERT_ROW, columns)
            for write in commit.writes:
                owner = write.owner
                number = (numbers.get(owner) or self._last_number(owner)) + 1
                numbers[owner] = number
                if write.snapshot is None:
                    checksum = record_checksum(owner, number, write.record)
                    execute(INSERT_RECORD, (owner, number, checksum, write.record))
                else:
                    checksum = snapshot_checksum(owner, number, write.snapshot)
                    execute(DELETE_RECORDS, (owner,))
                    execute(REPLACE_SNAPSHOT, (owner, number, checksum, write.snapshot))
            if dropped:
                for bounds in ranges(dropped):
                    execute(DELETE_ROWS, bounds)
                if last_row in dropped:
                    checksum = meta_checksum("last_row", last_row)
                    execute(REPLACE_META, ("last_row", last_row, checksum))
            for owner in commit.dropped_owners:
                execute(DELETE_RECORDS, (owner,))
                execute(DELETE_SNAPSHOT, (owner,))
            began_s = perf_counter()
            execute("COMMIT")
            self._sync_s = perf_counter() - began_s
        except apsw.Error:
            self._roll_back(connection)
            raise
        except BaseException:
            self._stop("a commit was interrupted")
            raise
        self._last_row = last_row
        self._numbers.update(numbers)
        for owner in commit.dropped_owners:
            self._numbers.pop(owner, None)

    def _last_number(self, owner: int) -> int:
        number = self._numbers.get(owner)
        return read_last_number(self._open_connection(), owner) if number is None else number

    def _roll_back(self, connection: apsw.Connection) -> None:
        """SQLite may have rolled back by itself. What cannot be rolled back is not gone on with."""
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        except apsw.Error as error:
            self._stop(describe(error))

    # -- Idle work ----------------------------------------------------------------------------

    def tidy(self) -> bool:
        connection = self._open_connection()
        try:
            has_more = connection.pragma("freelist_count") > self._tuning.free_pages_kept
            if has_more and self._wal_pages < 4 * self._tuning.vacuum_pages:
                connection.pragma("incremental_vacuum", self._tuning.vacuum_pages)
                self._shrunk = True
                return True
        except apsw.FullError:
            return False
        except apsw.Error as error:
            raise self._failed(error) from error
        # The file only gets shorter when the WAL is folded in. Doing it while idle also spares
        # the commits to come the wait.
        if has_more or self._shrunk or self._wal_pages >= self._tuning.checkpoint_pages // 4:
            self._shrunk = False
            if self._checkpoint() and has_more:
                return True
        if self._reserve.spent:
            self._reserve.restore()
        return False

    def _checkpoint(self) -> bool:
        """Fold the WAL into the file; false if that failed. It does no harm to what is committed,
        but after anything else than a full disk nothing more is written."""
        connection = self._open_connection()
        try:
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        except apsw.FullError:
            self._checkpoint_at_pages = self._wal_pages + self._tuning.checkpoint_pages // 4
            return False
        except apsw.Error as error:
            self._stop(describe(error))
            return False
        self._wal_pages = 0
        self._checkpoint_at_pages = self._tuning.checkpoint_pages
        return True

    def _count_wal_pages(self, connection: apsw.Connection, name: str, pages: int) -> int:
        self._wal_pages = pages
        return apsw.SQLITE_OK

    # -- Faults -------------------------------------------------------------------------------

    def _open_connection(self) -> apsw.Connection:
        if self._connection is not None:
            return self._connection
        if self._fault:
            raise ReadOnly(
                f"the journal {self._file} stopped after a fault: {self._fault}", FAILED_HINT
            )
        raise NotReady(f"the journal {self._file} is not open", "call open() first")

    def _unreadable(self, error: apsw.Error | UnicodeDecodeError) -> NexoError:
        """The error to raise. A failed read endangers nothing: the journal goes on."""
        if isinstance(error, UnicodeDecodeError):
            return DataCorrupt(f"{self._file}: a text is not UTF-8", CORRUPT_HINT)
        return translate(error, "reading", self._file)

    def _failed(self, error: apsw.Error) -> NexoError:
        """The error to raise. Unless the disk is merely full, the journal stops."""
        if not isinstance(error, apsw.FullError):
            self._stop(describe(error))
        return translate(error, "writing", self._file)

    def _stop(self, fault: str) -> None:
        """Close without another write."""
        self._fault = fault
        connection, self._connection = self._connection, None
        if connection is not None:
            abandon(connection)
            if self._directory is not None:
                self._directory.unsign()
