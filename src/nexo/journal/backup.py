"""A copy of a journal while it is in use, and the way back from one.

SQLite copies page by page on the connection that also writes: what a commit changes in pages that
were copied already is changed in the copy too. So commits go on between two steps, and when the
last page is there the copy is the journal as of its last commit.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

import apsw

from nexo.journal.connection import connect_to_read
from nexo.journal.directory import DataDirectory, make_private
from nexo.journal.fault import describe, translate
from nexo.journal.layout import Layout
from nexo.journal.port import Copied
from nexo.journal.rows import meta_checksum
from nexo.journal.tables import REPLACE_META, read_meta
from nexo.vocabulary.errors import InvalidArgument, NotReady, ReadOnly
from nexo.vocabulary.limits import BACKUP_READ_BYTES, BACKUP_STEP_PAGES

if TYPE_CHECKING:
    from collections.abc import Callable

COPY_FILE = "journal.copy"  # one at a time, so that one forgotten by a crash is overwritten
# Receipts and lease numbers carry the epoch of the boot. The brokers that ran after the backup
# was taken had epochs that the restored one must not use again.
EPOCHS_SKIPPED = 1_000
_INTERRUPTED = "the backup was interrupted: the journal had to be opened again"


class JournalCopy:
    """A backup under way; `step` until it is done, then `read`."""

    def __init__(self, source: apsw.Connection, file: str, free_bytes: int) -> None:
        self._file = Path(file)
        self._page_bytes = int(source.pragma("page_size"))
        self._total_bytes = int(source.pragma("page_count")) * self._page_bytes
        self._left_bytes = self._total_bytes
        if self._total_bytes > free_bytes:
            raise ReadOnly(
                f"a backup needs {self._total_bytes:,} bytes beside the journal, "
                f"and {free_bytes:,} are free",
                "free some space on the disk of the data directory",
            )
        remove_copy(self._file)
        try:
            make_private(self._file)
        except OSError as error:
            raise ReadOnly(f"cannot create {file}: {error.strerror}", "check the disk") from error
        self._target = apsw.Connection(file)
        self._done = False
        try:
            self._target.pragma("synchronous", "OFF")  # it is synchronized once, at the end
            self._target.pragma("journal_mode", "OFF")
            self._backup = self._target.backup("main", source, "main")
        except apsw.Error as error:
            self._target.close(True)
            remove_copy(self._file)
            raise translate(error, "copying to", file) from error

    def step(self) -> Copied:
        """Copy some more."""
        if not self._done:
            try:
                is_last = self._backup.step(BACKUP_STEP_PAGES)
            except apsw.ConnectionClosedError:
                raise NotReady(_INTERRUPTED, "begin it again") from None
            except apsw.Error as error:
                raise translate(error, "copying to", str(self._file)) from error
            self._total_bytes = self._backup.page_count * self._page_bytes
            self._left_bytes = self._backup.remaining * self._page_bytes
            if is_last:
                self._finish()
        return Copied(self._total_bytes - self._left_bytes, self._total_bytes, self._done)

    def read(self, offset: int, size: int) -> bytes:
        """A part of the finished copy; empty at its end. Any thread may call this."""
        with self._file.open("rb") as copy:
            copy.seek(offset)
            return copy.read(size)

    def close(self) -> None:
        """Forget it."""
        if not self._done:
            with contextlib.suppress(apsw.Error):
                self._backup.close(True)
            with contextlib.suppress(apsw.Error):
                self._target.close(True)
        remove_copy(self._file)

    def _finish(self) -> None:
        try:
            self._backup.finish()
            self._target.close()
            _synchronize(self._file)
        except (apsw.Error, OSError) as error:
            text = describe(error) if isinstance(error, apsw.Error) else str(error.strerror)
            raise ReadOnly(f"copying to {self._file} failed: {text}", "check the disk") from error
        self._done = True


def remove_copy(file: Path) -> None:
    """Also one that a crash left: it takes as much room as the journal, and holds its secrets."""
    for suffix in ("", "-journal", "-wal"):
        with contextlib.suppress(OSError):
            Path(f"{file}{suffix}").unlink(missing_ok=True)


def restore(
    backup: str | os.PathLike[str],
    directory: str | os.PathLike[str],
    journal_file: str,
    copied: Callable[[int, int], None],
) -> None:
    """Make a data directory from a backup. `copied` hears how many bytes of how many are there."""
    source, place = Path(backup), DataDirectory(Path(directory))
    target = Path(directory) / journal_file
    if target.exists():
        raise InvalidArgument(
            f"{directory} already holds the data of a broker",
            "restore into another directory with --data, or move the old one away first",
        )
    _require_journal(source)
    place.make()
    unfinished = target.with_name(f"{journal_file}.restoring")
    unfinished.unlink(missing_ok=True)
    try:
        make_private(unfinished)
        _copy(source, unfinished, copied)
        _skip_epochs(str(unfinished))
        _synchronize(unfinished)
        unfinished.rename(target)  # only now it is there: a crash before leaves no half a journal
    except OSError as error:
        raise ReadOnly(
            f"cannot write {unfinished}: {error.strerror}", "check the disk and the permissions"
        ) from error
    finally:
        unfinished.unlink(missing_ok=True)
    place.settle()


def _require_journal(file: Path) -> None:
    if not file.is_file():
        raise InvalidArgument(
            f"there is no backup at {file}", "give a file written by `nexo backup`"
        )
    foreign = InvalidArgument(f"{file} is not a backup", "give a file written by `nexo backup`")
    try:
        connection, version = connect_to_read(str(file), apsw.vfs_names()[0], Layout())
    except apsw.NotADBError:
        raise foreign from None
    except apsw.Error as error:
        raise translate(error, "opening", str(file)) from error
    connection.close()
    if version == 0:  # an empty file
        raise foreign


def _copy(source: Path, target: Path, copied: Callable[[int, int], None]) -> None:
    total, done = source.stat().st_size, 0
    with source.open("rb") as reading, target.open("r+b") as writing:
        while piece := reading.read(BACKUP_READ_BYTES):
            writing.write(piece)
            done += len(piece)
            copied(done, total)


def _skip_epochs(file: str) -> None:
    connection = apsw.Connection(file)
    try:
        connection.pragma("locking_mode", "EXCLUSIVE")
        epoch = read_meta(connection, "boot_epoch") + EPOCHS_SKIPPED
        connection.execute(REPLACE_META, ("boot_epoch", epoch, meta_checksum("boot_epoch", epoch)))
    except apsw.Error as error:
        raise translate(error, "restoring", file) from error
    finally:
        connection.close()


def _synchronize(file: Path) -> None:
    descriptor = os.open(file, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
