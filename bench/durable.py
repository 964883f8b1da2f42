"""Durable pushes through engine and journal, in process: confirmed means on disk."""

from __future__ import annotations

import asyncio
import random
import shutil
from contextlib import asynccontextmanager
from time import perf_counter
from typing import TYPE_CHECKING

from bench.result import Result
from nexo.engine import process
from nexo.engine.engine import Engine
from nexo.journal.sqlite import SqliteJournal
from nexo.vocabulary.batch import batch_of
from nexo.vocabulary.limits import MEMORY_LIMIT_BYTES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

SECONDS = 4.0
BODY = bytes(100)


@asynccontextmanager
async def engine_on(
    directory: Path, memory_limit_bytes: int = MEMORY_LIMIT_BYTES
) -> AsyncIterator[Engine]:
    draw = random.Random(1)
    engine = Engine(
        SqliteJournal(directory),
        memory_limit_bytes=memory_limit_bytes,
        new_incarnation=lambda: draw.getrandbits(64),
    )
    await engine.open()
    try:
        yield engine
    finally:
        await engine.close()


def run(directory: Path) -> list[Result]:
    process.tune_process()
    results = []
    for pushers, size, bar in ((64, 1, 100e3), (4, 100, 700e3), (2, 1_000, 1e6)):
        shutil.rmtree(directory, ignore_errors=True)
        rate = process.run(_push(directory, pushers, size))
        results.append(Result(f"durable push, {pushers}x{size}", rate, "msg/s", bar))
    shutil.rmtree(directory, ignore_errors=True)
    median_ms, high_ms = process.run(_latency(directory))
    results.append(Result("one push at a time, 500/s: p50", median_ms, "ms"))
    results.append(Result("one push at a time, 500/s: p99", high_ms, "ms"))
    shutil.rmtree(directory, ignore_errors=True)
    return results


async def _push(directory: Path, pushers: int, size: int) -> float:
    async with engine_on(directory) as engine:
        queue = await engine.create_queue("bench")
        batch = batch_of([BODY] * size)
        ends = perf_counter() + SECONDS
        pushed = 0

        async def pusher() -> None:
            nonlocal pushed
            while perf_counter() < ends:
                if size == 1:
                    await queue.push_one(BODY)
                else:
                    await queue.push(batch)
                pushed += size

        started = perf_counter()
        await asyncio.gather(*[pusher() for _ in range(pushers)])
        return pushed / (perf_counter() - started)


async def _latency(directory: Path) -> tuple[float, float]:
    async with engine_on(directory) as engine:
        queue = await engine.create_queue("bench")
        took = []
        for _ in range(1_500):
            started = perf_counter()
            await queue.push_one(BODY)
            took.append((perf_counter() - started) * 1000)
            await asyncio.sleep(max(0.0, 0.002 - (perf_counter() - started)))
        took.sort()
        return took[len(took) // 2], took[len(took) * 99 // 100]
