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
from nexo.journal.wal import rewrite_wal, wal_bytes


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
