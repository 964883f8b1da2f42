"""The journal in PostgreSQL beside the one on SQLite, in turns, and how large its tables get.

The server is the one that tests use, with everything synced to disk; both journals lie on the same
disk and are driven by the same engine.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import statistics
from contextlib import asynccontextmanager
from time import perf_counter
from typing import TYPE_CHECKING

import psycopg

from bench import skip_locked
from bench.result import Result
from nexo.engine import process
from nexo.engine.engine import Engine
from nexo.server.broker import journal_of, runner_of
from nexo.vocabulary.batch import batch_of
from tests.postgresql import postgresql_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable
    from pathlib import Path

    from tests.postgresql import PostgresqlServer

BODY = bytes(100)
TURNS = 3
TURN_S = 2.0
PUSHES = 400  # one at a time, for the median
THROUGH = 10_000_000  # messages that pass through a queue that never holds more than …
HELD = 50_000  # … this many
SHARE_MIN = 0.45  # of what SQLite does
SLOWER_MAX = 2.0  # a single push, against SQLite
TABLE_TIMES_MIN = 3.0  # end to end, against a table with SKIP LOCKED


@asynccontextmanager
async def engine_on(place: str) -> AsyncIterator[Engine]:
    draw = random.Random(1)
    url = place if place.startswith("postgresql://") else None
    engine = Engine(
        journal_of(place, url),
        runner=runner_of(url),
        new_incarnation=lambda: draw.getrandbits(64),
    )
    await engine.open()
    try:
        yield engine
    finally:
        await engine.close()


def run(directory: Path, through: int = THROUGH) -> Iterable[Result]:
    process.tune_process()
    with postgresql_server(durable=True) as server:
        for pushers, size in ((64, 1), (4, 100), (2, 1_000)):
            rates: dict[str, list[float]] = {"sqlite": [], "postgresql": []}
            for _ in range(TURNS):
                for kind, place in _places(directory, server):
                    rates[kind].append(process.run(_push(place, pushers, size)))
            ours, theirs = (statistics.median(rates[kind]) for kind in ("postgresql", "sqlite"))
            name = f"durable push, {pushers}x{size}: "
            yield Result(name + "PostgreSQL", ours, "msg/s")
            yield Result(name + "SQLite", theirs, "msg/s")
            yield Result(name + "share", ours / theirs, "of SQLite's", SHARE_MIN)
        medians: dict[str, list[float]] = {"sqlite": [], "postgresql": []}
        for _ in range(TURNS):
            for kind, place in _places(directory, server):
                medians[kind].append(process.run(_one_at_a_time(place)))
        ours, theirs = (statistics.median(medians[kind]) for kind in ("postgresql", "sqlite"))
        yield Result("one push at a time, PostgreSQL: p50", ours, "ms")
        yield Result("one push at a time, SQLite: p50", theirs, "ms")
        yield Result("one push at a time, times SQLite's", ours / theirs, "x", SLOWER_MAX, "most")
        yield Result("BEGIN, INSERT, COMMIT by psycopg: p50", _bare(server.url), "ms")
        yield from _beside_a_table(directory, server)
        yield from _sizes(server, through)
    shutil.rmtree(directory, ignore_errors=True)


def _places(directory: Path, server: PostgresqlServer) -> list[tuple[str, str]]:
    shutil.rmtree(directory, ignore_errors=True)
    server.execute("DROP SCHEMA IF EXISTS nexo CASCADE")
    return [("sqlite", str(directory)), ("postgresql", server.url)]


async def _push(place: str, pushers: int, size: int) -> float:
    async with engine_on(place) as engine:
        queue = await engine.create_queue("bench")
        batch = batch_of([BODY] * size)
        ends = perf_counter() + TURN_S
        pushed = 0

        async def pusher() -> None:
            nonlocal pushed
            while perf_counter() < ends:
                await (queue.push_one(BODY) if size == 1 else queue.push(batch))
                pushed += size

        began = perf_counter()
        await asyncio.gather(*[pusher() for _ in range(pushers)])
        return pushed / (perf_counter() - began)


async def _one_at_a_time(place: str) -> float:
    async with engine_on(place) as engine:
        queue = await engine.create_queue("bench")
        took = []
        for _ in range(PUSHES):
            began = perf_counter()
            await queue.push_one(BODY)
            took.append((perf_counter() - began) * 1000)
        return statistics.median(took)


def _bare(url: str) -> float:
    """The least that a commit could take: a row by psycopg alone, in three round trips."""
    took = []
    with psycopg.connect(url, autocommit=True, prepare_threshold=0) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS bare (id bigint PRIMARY KEY, body bytea)")
        connection.execute("TRUNCATE bare")
        for number in range(PUSHES):
            began = perf_counter()
            connection.execute("BEGIN")
            connection.execute("INSERT INTO bare VALUES (%b, %b)", (number, BODY))
            connection.execute("COMMIT")
            took.append((perf_counter() - began) * 1000)
    return statistics.median(took)


def _beside_a_table(directory: Path, server: PostgresqlServer) -> Iterable[Result]:
    rates: dict[str, list[float]] = {"table": [], "broker": []}
    for _ in range(TURNS):
        server.execute("DROP SCHEMA IF EXISTS nexo CASCADE")
        rates["table"].append(skip_locked.table(server.url))
        rates["broker"].append(skip_locked.broker(directory, server.url))
    ours, theirs = (statistics.median(rates[kind]) for kind in ("broker", "table"))
    yield Result("end to end over RPC, batches of 1,000: PostgreSQL", ours, "msg/s")
    yield Result("a table with SKIP LOCKED, batches of 1,000", theirs, "msg/s")
    yield Result("times the table's", ours / theirs, "x", TABLE_TIMES_MIN)


def _sizes(server: PostgresqlServer, through: int) -> Iterable[Result]:
    """What the tables take while messages pass through, and how much of it is in use."""
    server.execute("DROP SCHEMA IF EXISTS nexo CASCADE")
    rate = process.run(_pass_through(server.url, through))
    yield Result(f"{through:,} messages through PostgreSQL, push to ack", rate, "msg/s")
    found = server.execute(
        "SELECT relname, pg_total_relation_size(oid) FROM pg_class "
        "WHERE relnamespace = 'nexo'::regnamespace AND relkind = 'r'"
    )
    for name, size in found:
        if name in ("payload", "record", "snapshot"):
            assert isinstance(size, int)
            yield Result(f"table {name} afterwards", size / 2**20, "MB")


async def _pass_through(url: str, through: int) -> float:
    async with engine_on(url) as engine:
        queue = await engine.create_queue("bench")
        batch = batch_of([BODY] * 1_000)
        began, pushed = perf_counter(), 0
        while pushed < through:
            await queue.push(batch)
            pushed += 1_000
            if queue.queue.depth > HELD:
                delivery = await queue.pop(1_000, one_ack=True)
                for part in delivery.parts:
                    await queue.ack(delivery.lease, part.first, part.first + part.count)
        return pushed / (perf_counter() - began)
