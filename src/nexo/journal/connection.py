"""A connection to the journal's file: identified, locked, recovered and in the right mode.

The order matters. Nothing is written before the file is known to be ours and the lock is held;
`locking_mode=EXCLUSIVE` comes before the first read, so that the index of the WAL (SQLite's
write-ahead log) lives in memory instead of a shared file, a second broker is refused, and a
simulated disk needs no shared memory.
"""

from __future__ import annotations

import contextlib

import apsw
import msgspec

from nexo.journal.layout import Layout, bring_up, require_readable, stored_version

_COPY_BYTES = 64 * 1024  # SQLite's file system takes less than 128 KiB at a time


class Tuning(msgspec.Struct, frozen=True):
    """Knobs that were set by measurement; see docs/decisions/0001-embedded-journal.md."""

    page_bytes: int = 8 * 1024  # of a new file; an old one keeps its own
    cache_bytes: int = 16 * 1024 * 1024
    checkpoint_pages: int = 4_000  # the WAL is folded into the file when it holds this many
    wal_bytes_max: int = 64 * 1024 * 1024  # a WAL that grew beyond is cut back
    vacuum_pages: int = 128  # one step of giving space back: a few milliseconds
    free_pages_kept: int = 512  # room for the next backlog is not given back


def connect(file: str, vfs: str, layout: Layout, tuning: Tuning) -> apsw.Connection:
    """Open for writing; makes or migrates the file where needed."""
    connection = apsw.Connection(file, vfs=vfs)
    try:
        connection.pragma("locking_mode", "EXCLUSIVE")
        version = stored_version(connection, file)
        require_readable(version, layout, file)
        connection.wal_autocheckpoint(0)  # the journal does it, and sees how it went
        connection.pragma("temp_store", "MEMORY")
        connection.pragma("cache_size", -(tuning.cache_bytes // 1024))
        if version == 0:
            connection.pragma("page_size", tuning.page_bytes)
            connection.pragma("auto_vacuum", "INCREMENTAL")
        connection.pragma("journal_mode", "WAL")
        connection.pragma("synchronous", "FULL")
        connection.pragma("journal_size_limit", tuning.wal_bytes_max)
        if version != 0:
            rewrite_wal(file, vfs)
        bring_up(connection, version, layout)
    except BaseException:
        abandon(connection)
        raise
    return connection


def connect_to_read(file: str, vfs: str, layout: Layout) -> tuple[apsw.Connection, int]:
    """Open to look only: nothing is written, created, migrated or checkpointed."""
    connection = apsw.Connection(file, flags=apsw.SQLITE_OPEN_READWRITE, vfs=vfs)
    try:
        connection.pragma("locking_mode", "EXCLUSIVE")
        if wal_bytes(file, vfs) > 0:  # else closing removes the empty one that reading makes
            connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        version = stored_version(connection, file)
        require_readable(version, layout, file)
        connection.pragma("query_only", "ON")
    except BaseException:
        abandon(connection)
        raise
    return connection, version


def abandon(connection: apsw.Connection) -> None:
    """Close without the last checkpoint: after a fault nothing more may be written."""
    with contextlib.suppress(apsw.Error):  # the file is given up either way
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        connection.close(True)


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
        for offset in range(0, size_bytes, _COPY_BYTES):
            amount = min(_COPY_BYTES, size_bytes - offset)
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
