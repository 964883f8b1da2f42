"""The tally: every position that was sent, and whether the broker confirmed it. On disk, so that
the accounting does not rest on anybody's memory."""

from __future__ import annotations

import sqlite3
import threading
from typing import TYPE_CHECKING, Any, NamedTuple, Self

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

PATHS = ("udp", "sqs", "native")
_TABLES = """
PRAGMA journal_mode = WAL;
CREATE TABLE IF NOT EXISTS positions (
    id TEXT PRIMARY KEY, confirmed INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS totals (
    path TEXT PRIMARY KEY, sent INTEGER NOT NULL DEFAULT 0, confirmed INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
"""


class Total(NamedTuple):
    sent: int = 0
    confirmed: int = 0


class Tally:
    """Threads may share it."""

    def __init__(self, file: Path) -> None:
        self._connection = sqlite3.connect(file, check_same_thread=False, timeout=30.0)
        self._connection.executescript(_TABLES)
        self._connection.executemany(
            "INSERT OR IGNORE INTO totals (path) VALUES (?)", [(path,) for path in PATHS]
        )
        self._connection.commit()
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()

    def send(self, path: str, ids: Iterable[str]) -> None:
        """These are about to be sent."""
        rows = [(each,) for each in ids]
        with self._lock, self._connection:
            self._connection.executemany("INSERT INTO positions (id) VALUES (?)", rows)
            self._connection.execute(
                "UPDATE totals SET sent = sent + ? WHERE path = ?", (len(rows), path)
            )

    def confirm(self, path: str, ids: Iterable[str]) -> None:
        """The broker has said that it keeps these."""
        rows = [(each,) for each in ids]
        with self._lock, self._connection:
            done = self._connection.executemany(
                "UPDATE positions SET confirmed = 1 WHERE id = ? AND confirmed = 0", rows
            )
            self._connection.execute(
                "UPDATE totals SET confirmed = confirmed + ? WHERE path = ?", (done.rowcount, path)
            )


def read_totals(file: Path) -> dict[str, Total]:
    """How many there are, by path; nothing if there is no tally yet."""
    rows = _read(file, "SELECT path, sent, confirmed FROM totals")
    return {path: Total(sent, confirmed) for path, sent, confirmed in rows}


def read_positions(file: Path) -> dict[str, bool]:
    """Every position that was sent, and whether it was confirmed."""
    rows = _read(file, "SELECT id, confirmed FROM positions")
    return {each: bool(confirmed) for each, confirmed in rows}


def _read(file: Path, sql: str) -> list[tuple[Any, ...]]:
    if not file.exists():
        return []
    connection = sqlite3.connect(f"file:{file}?mode=ro", uri=True, timeout=30.0)
    try:
        return connection.execute(sql).fetchall()
    except sqlite3.OperationalError as error:
        if "no such table" in str(error):
            return []  # it is being made
        raise
    finally:
        connection.close()
