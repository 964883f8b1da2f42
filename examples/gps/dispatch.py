"""The process that handles alerts: `python -m examples.gps.dispatch`. SIGTERM ends it.

A call to a driver takes a moment, and does not always come through: some are busy and are called
again, some have no telephone, and their alerts end as dead letters.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import time
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import nexo
from examples.gps.names import ALERTS

if TYPE_CHECKING:
    from collections.abc import Iterable

CALL_S = 0.1
BUSY_OF_100, GONE_OF_100 = 20, 7
_TABLE = """
PRAGMA journal_mode = WAL;
CREATE TABLE IF NOT EXISTS handled (
    id TEXT PRIMARY KEY, at REAL NOT NULL, body TEXT NOT NULL, attempts INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS handled_at ON handled (at);
"""


class Handled(NamedTuple):
    id: str
    at: float
    alert: dict[str, Any]
    attempts: int


class Dispatch:
    """Calls drivers, and writes down whom it has reached: an alert that comes twice is there
    once."""

    def __init__(self, file: Path, call_s: float = CALL_S) -> None:
        self._connection = sqlite3.connect(file, check_same_thread=False, timeout=30.0)
        self._connection.executescript(_TABLE)
        self._call_s = call_s

    def handle(self, event: dict[str, Any], context: Any) -> dict[str, Any]:
        """The handler of the worker, in the form of AWS Lambda."""
        failures = []
        for record in event["Records"]:
            alert = json.loads(record["body"])
            attempts = int(record["attributes"]["ApproximateReceiveCount"])
            time.sleep(self._call_s)
            reason = trouble(alert["id"], attempts)
            if reason:
                failures.append({"itemIdentifier": record["messageId"], "reason": reason})
                continue
            with self._connection:
                self._connection.execute(
                    "INSERT OR IGNORE INTO handled VALUES (?, ?, ?, ?)",
                    (alert["id"], time.time(), record["body"], attempts),
                )
        return {"batchItemFailures": failures}

    def close(self) -> None:
        self._connection.close()


def trouble(name: str, attempts: int) -> str:
    """Why a driver cannot be reached; the same alert has the same trouble each time."""
    drawn = zlib.crc32(name.encode()) % 100
    if drawn < GONE_OF_100:
        return "the driver has no telephone"
    if drawn < GONE_OF_100 + BUSY_OF_100 and attempts == 1:
        return "the line is busy"
    return ""


def read_handled(file: Path, limit: int = -1) -> list[Handled]:
    """What was handled, the newest first."""
    rows = _read(file, "SELECT id, at, body, attempts FROM handled ORDER BY at DESC LIMIT ?", limit)
    return [Handled(name, at, json.loads(body), attempts) for name, at, body, attempts in rows]


def count_handled(file: Path) -> int:
    return int(next(iter(_read(file, "SELECT count(*) FROM handled")), (0,))[0])


def _read(file: Path, sql: str, *values: int) -> Iterable[tuple[Any, ...]]:
    if not file.exists():
        return []
    connection = sqlite3.connect(f"file:{file}?mode=ro", uri=True, timeout=5.0)
    try:
        return connection.execute(sql, values).fetchall()
    except sqlite3.OperationalError as error:
        if "no such table" in str(error):
            return []  # it is being made
        raise
    finally:
        connection.close()


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m examples.gps.dispatch", description=__doc__)
    parser.add_argument("--url", default="nexo://127.0.0.1:9325", help="of the broker")
    parser.add_argument("--handled", type=Path, required=True, help="a file for what was handled")
    return parser.parse_args(given)


def main(given: list[str] | None = None) -> int:
    plan = arguments(given)
    dispatch = Dispatch(plan.handled)
    with nexo.connect(plan.url) as client:
        nexo.Worker(client, ALERTS, dispatch.handle, batch_size=2).run()
    dispatch.close()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
