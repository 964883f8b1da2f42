"""Large backlogs: memory, restart, disk space. Each case runs in a process of its own."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import resource
import shutil
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from bench.durable import BODY, engine_on
from bench.result import Result
from nexo.engine import process
from nexo.machine.push import push_one
from nexo.machine.settle import collect, settle
from nexo.vocabulary.batch import Batch, batch_of
from nexo.vocabulary.limits import POP_MESSAGES_MAX

if TYPE_CHECKING:
    from collections.abc import Callable

_MB = 1024 * 1024


def run(directory: Path, backlog: int = 20_000_000) -> list[Result]:
    results = []
    for case, argument in (
        (bytes_a_message, 1_000_000),
        (limited_memory, backlog),
        (reopen, 1_000_000),
        (file_size, 10_000_000),
    ):
        shutil.rmtree(directory, ignore_errors=True)
        results += _in_child(case, directory, argument)
    shutil.rmtree(directory, ignore_errors=True)
    return results


def bytes_a_message(_: Path, total: int) -> list[Result]:
    """What a queued message of 100 bytes takes in memory, pushed one at a time."""
    from bench.rules import new_queue

    queue = new_queue()
    before = _resident()
    for number in range(total):
        push_one(queue, BODY, number // 100)
        if number % 64 == 63:
            settle(queue, collect(queue).mark)
    used = (_resident() - before) / total
    assert queue.depth == total
    return [Result("memory of a queued 100-byte message", used, "bytes", 130, "most")]


def limited_memory(directory: Path, total: int) -> list[Result]:
    """A backlog far beyond the memory limit goes in and comes out whole."""
    limit = 256 * _MB
    pushing, draining, count = process.run(_fill_and_drain(directory, total, limit))
    assert count == total, f"{count} of {total} came back"
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    name = f"backlog of {total / 1e6:g}M with a 256 MB limit"
    return [
        Result(f"{name}: push", total / pushing, "msg/s"),
        Result(f"{name}: pop and ack", total / draining, "msg/s"),
        Result(f"{name}: highest resident memory", peak / _MB, "MB", 1.5 * limit / _MB, "most"),
    ]


async def _fill_and_drain(directory: Path, total: int, limit: int) -> tuple[float, float, int]:
    async with engine_on(directory, limit) as engine:
        queue = await engine.create_queue("bench")
        batch = batch_of([BODY] * 1_000)
        started = perf_counter()
        for _ in range(0, total, 4_000):
            await asyncio.gather(*[queue.push(_own(batch)) for _ in range(4)])
        filled = perf_counter()
        count = 0
        while count < total:
            delivery = await queue.pop(POP_MESSAGES_MAX, one_ack=True)
            assert delivery.parts, f"nothing ready after {count}"
            bounds = [(part.first, part.first + part.count) for part in delivery.parts]
            await asyncio.gather(*[queue.ack(delivery.lease, *each) for each in bounds])
            count += delivery.count
        return filled - started, perf_counter() - filled, count


def _own(batch: Batch) -> Batch:
    """A batch with buffers of its own, as one that came through a socket has."""
    return Batch(bytes(bytearray(batch.payload)), batch.offsets[:])


def reopen(directory: Path, total: int) -> list[Result]:
    """How long a start takes with a backlog, until the first message can be popped."""
    process.run(_fill_in_small_pushes(directory, total))

    async def first_pop() -> float:
        started = perf_counter()
        async with engine_on(directory) as engine:
            opened = perf_counter() - started
            queue = engine.queue("bench")
            assert queue.info().depth == total
            delivery = await queue.pop(1)
            assert delivery.count == 1
            return opened

    seconds = process.run(first_pop())
    return [Result(f"reopening {total / 1e6:g}M messages", seconds, "s", 0.5, "most")]


async def _fill_in_small_pushes(directory: Path, total: int) -> None:
    async with engine_on(directory) as engine:
        queue = await engine.create_queue("bench")
        for _ in range(total // 100):
            await asyncio.gather(*[queue.push_one(BODY) for _ in range(100)])


def file_size(directory: Path, total: int) -> list[Result]:
    """The disk space that is left after many messages came and went."""

    async def pass_through() -> None:
        async with engine_on(directory) as engine:
            queue = await engine.create_queue("bench")
            batch = batch_of([BODY] * 1_000)
            await asyncio.gather(*[queue.push(batch) for _ in range(10)])
            for _ in range(total // 2_000):
                await asyncio.gather(queue.push(batch), queue.push(batch))
                delivery = await queue.pop(2_000, one_ack=True)
                for part in delivery.parts:
                    await queue.ack(delivery.lease, part.first, part.first + part.count)

    process.run(pass_through())
    size = sum(file.stat().st_size for file in directory.iterdir())
    name = f"files after {total / 1e6:g}M messages came and went"
    return [Result(name, size / _MB, "MB", 100, "most")]


def _in_child(case: Callable[[Path, int], list[Result]], *arguments: Any) -> list[Result]:
    spawn = multiprocessing.get_context("spawn")
    with spawn.Pool(1, initializer=process.tune_process) as pool:
        return pool.apply(case, arguments)


def _resident() -> int:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()
