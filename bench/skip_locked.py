"""What many use instead of a broker: a table with a row a message, taken with SKIP LOCKED.

Producers insert batches of rows; consumers delete batches of rows that nobody else has locked, and
the commit is their ack. Everything is synced to disk. In the same server the journal of a broker
lies, with its producer and consumer as processes of their own over RPC.
"""

from __future__ import annotations

import threading
from time import perf_counter
from typing import TYPE_CHECKING

import psycopg

from bench.rpc import BODY, SECONDS, throughput, together

if TYPE_CHECKING:
    from pathlib import Path

SIZE = 1_000
HANDS = 2  # connections of each side
_TABLE = "CREATE TABLE jobs (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, body bytea)"
_PUSH = "INSERT INTO jobs (body) SELECT unnest(%b::bytea[])"
_TAKE = """
    DELETE FROM jobs WHERE id IN (
        SELECT id FROM jobs ORDER BY id LIMIT %b FOR UPDATE SKIP LOCKED
    ) RETURNING body
"""


def table(url: str) -> float:
    """Messages a second, from the push to the ack."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS jobs")
        connection.execute(_TABLE.encode())
    (began, _), (ended, count) = together((_produce, (url,)), (_consume, (url,)))
    return float(count / (ended - began))


def broker(directory: Path, url: str) -> float:
    """The same through a broker."""
    return throughput(directory, SIZE, 8, url)


def _produce(url: str) -> tuple[float, int]:
    began = perf_counter()

    def push(connection: psycopg.Connection[tuple[object, ...]]) -> int:
        connection.execute(_PUSH, ([BODY] * SIZE,))
        return SIZE

    return began, _work(url, push, began + SECONDS)


def _consume(url: str) -> tuple[float, int]:
    def take(connection: psycopg.Connection[tuple[object, ...]]) -> int:
        return len(connection.execute(_TAKE, (SIZE,), binary=True).fetchall())

    count = _work(url, take, perf_counter() + SECONDS)
    return perf_counter(), count


def _work(url: str, step, until: float) -> int:
    """What all hands have done by then."""
    counts = []

    def work() -> None:
        with psycopg.connect(url, autocommit=True, prepare_threshold=0) as connection:
            count = 0
            while perf_counter() < until:
                count += step(connection)
            counts.append(count)

    hands = [threading.Thread(target=work) for _ in range(HANDS)]
    for hand in hands:
        hand.start()
    for hand in hands:
        hand.join()
    return sum(counts)
