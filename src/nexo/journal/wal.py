"""The WAL (SQLite's write-ahead log) as a file: how long it is, and what is written beside SQLite.

SQLite knows of none of this. It reads the WAL up to the first frame that does not follow from
the one before, so zeros behind the last frame are nothing to it.
"""

from __future__ import annotations

import contextlib

import apsw

_STEP_BYTES = 64 * 1024  # SQLite's file system takes less than 128 KiB at a time
_HEADER_BYTES = 32
_FRAME_HEADER_BYTES = 24


def wal_bytes_of(pages: int, page_bytes: int) -> int:
    """How long a WAL of so many pages is."""
    return _HEADER_BYTES + pages * (_FRAME_HEADER_BYTES + page_bytes)


def lay_out_wal(file: str, vfs: str, size_bytes: int) -> None:
    """Make the WAL as long as it gets before the first commit, so that no commit makes it longer.

    Writing over what is there and synchronizing takes two thirds of the time of appending: a
    file that grows has its length synchronized as well. Without room for it nothing is done.
    """
    wal = _open_wal(file, vfs)
    try:
        length = wal.xFileSize()
        try:
            for offset in range(length, size_bytes, _STEP_BYTES):
                wal.xWrite(bytes(min(_STEP_BYTES, size_bytes - offset)), offset)
            wal.xSync(apsw.SQLITE_SYNC_NORMAL)
        except apsw.FullError:
            with contextlib.suppress(apsw.Error):  # then the zeros stay, and do no harm
                wal.xTruncate(length)
    finally:
        wal.xClose()


def rewrite_wal(file: str, vfs: str) -> None:
    """Write the WAL over itself and synchronize it, before anything builds on it.

    After a failed fsync the system may hold in memory what never reached the disk, and consider
    it clean: no later fsync writes it. Recovery reads that memory and takes the transaction in
    doubt for committed; the next commits would follow it in the WAL, and a power loss would cut
    them all off. Writing the same bytes again makes the system write them in earnest. A clean
    stop leaves no WAL, so this costs only after a crash.
    """
    size_bytes = wal_bytes(file, vfs)
    if size_bytes == 0:
        return
    wal = _open_wal(file, vfs)
    try:
        for offset in range(0, size_bytes, _STEP_BYTES):
            amount = min(_STEP_BYTES, size_bytes - offset)
            wal.xWrite(wal.xRead(amount, offset), offset)
        wal.xSync(apsw.SQLITE_SYNC_NORMAL)
    finally:
        wal.xClose()


def wal_bytes(file: str, vfs: str) -> int:
    """The size of the WAL, 0 if there is none."""
    try:
        wal = _open_wal(file, vfs)
    except apsw.CantOpenError:
        return 0
    try:
        return wal.xFileSize()
    finally:
        wal.xClose()


def _open_wal(file: str, vfs: str) -> apsw.VFSFile:
    flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_WAL
    return apsw.VFSFile(vfs, f"{file}-wal", [flags, 0])
