"""A database that takes so many orders a second, and refuses more."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

# What it lets pass above its limit: the queue may give 100 ms' worth at once, and the worker holds
# two batches.
GRACE = 1.3
WINDOW_S = 1.0


class Overloaded(Exception):
    """More came within a second than the database takes."""


class Database:
    """SQLite, with a limit. An order is stored once however often it is delivered."""

    def __init__(self, path: Path, orders_per_second: int) -> None:
        self._connection = sqlite3.connect(path, check_same_thread=False)
        self._connection.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, customer TEXT)")
        self._limit = orders_per_second * WINDOW_S * GRACE
        self._taken: deque[tuple[float, int]] = deque()  # when, how many
        self._lock = threading.Lock()
        self.stored = 0
        self.refused = 0

    def handle(self, event: dict[str, Any], context: Any) -> None:
        """The handler of the worker: a batch of orders is one transaction."""
        orders = [json.loads(record["body"]) for record in event["Records"]]
        with self._lock:
            self._admit(len(orders))
            with self._connection:
                rows = [(order["id"], order["customer"]) for order in orders]
                stored = self._connection.executemany(
                    "INSERT OR IGNORE INTO orders VALUES (?, ?)", rows
                )
            self.stored += stored.rowcount

    def count(self) -> int:
        """What is really there."""
        (count,) = self._connection.execute("SELECT count(*) FROM orders").fetchone()
        return int(count)

    def close(self) -> None:
        self._connection.close()

    def _admit(self, count: int) -> None:
        now = time.monotonic()
        while self._taken and now - self._taken[0][0] > WINDOW_S:
            self._taken.popleft()
        if count + sum(each for _, each in self._taken) > self._limit:
            self.refused += count
            raise Overloaded(f"more than {self._limit / WINDOW_S:,.0f} orders a second")
        self._taken.append((now, count))
