"""Starts after long pasts: what a start costs must follow what is held, not what happened.

Each past is lived by a process of its own that ends by `kill -9`; another one starts on what is
left. `python -m bench.restart PAST DIRECTORY COUNT` lives one, to look at it by hand.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import random
import shutil
import signal
import sys
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from bench.durable import BODY, engine_on
from bench.result import Result
from nexo.engine import process
from nexo.vocabulary.batch import batch_of
from nexo.vocabulary.events import Event
from nexo.vocabulary.limits import POP_MESSAGES_MAX
from nexo.vocabulary.names import EVENTS_TOPIC
from nexo.vocabulary.settings import QueueSettings
from nexo.vocabulary.states import EventKind

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from nexo.engine.engine import Engine
    from nexo.engine.queue_actor import QueueActor

_MB = 1024 * 1024


class Past(NamedTuple):
    live: Callable[[Engine, int], Awaitable[None]]
    messages: int
    title: str
    bar_s: float


def run(directory: Path) -> list[Result]:
    results = []
    for name, past in PASTS.items():
        shutil.rmtree(directory, ignore_errors=True)
        lived = _SPAWN.Process(target=live, args=(name, directory, past.messages))
        lived.start()
        lived.join()
        if lived.exitcode != -signal.SIGKILL:
            raise RuntimeError(f"the past {name!r} ended with {lived.exitcode}")
        with _SPAWN.Pool(1, initializer=process.tune_process) as pool:
            seconds, resident = pool.apply(start, (directory,))
        title = past.title.format(past.messages)
        results.append(Result(f"start after {title}", seconds, "s", past.bar_s, "most"))
        results.append(Result(f"… memory of {title}", resident / _MB, "MB"))
    shutil.rmtree(directory, ignore_errors=True)
    return results


def live(name: str, directory: Path, count: int) -> None:
    """Live through a past, and be killed."""

    async def living() -> None:
        async with engine_on(directory) as engine:
            await PASTS[name].live(engine, count)
            await engine.drain()
            os.kill(os.getpid(), signal.SIGKILL)

    process.tune_process()
    process.run(living())


def start(directory: Path) -> tuple[float, float]:
    """How long a start takes, and the memory that the process has then."""

    async def opening() -> tuple[float, float]:
        started = perf_counter()
        async with engine_on(directory):
            seconds = perf_counter() - started
            return seconds, _resident()

    before = _resident()
    seconds, after = process.run(opening())
    return seconds, after - before


async def mixed_load(engine: Engine, count: int) -> None:
    """Pushes, pops and acks over 200 queues; nearly everything is acked."""
    queues = [await engine.create_queue(f"mixed-{number}") for number in range(200)]
    draw = random.Random(7)
    done = 0

    async def worker() -> None:
        nonlocal done
        while done < count:
            queue = draw.choice(queues)
            size = draw.choice((1, 1, 1, 10, 100))
            if size == 1:
                await queue.push_one(BODY)
            else:
                await queue.push(batch_of([BODY] * size))
            await _take(queue, size)
            done += size

    await asyncio.gather(*[worker() for _ in range(64)])


async def empty_queues(engine: Engine, count: int) -> None:
    """A thousand queues through which messages went one by one."""
    queues = [await engine.create_queue(f"past-{number}") for number in range(1_000)]
    for _ in range(count // len(queues)):
        await asyncio.gather(*[queue.push_one(BODY) for queue in queues])
        await asyncio.gather(*[_take(queue, 1) for queue in queues])


async def archived_singles(engine: Engine, count: int) -> None:
    """Messages that were pushed, one a commit, to a queue that keeps an archive, and acked."""
    queue = await engine.create_queue("kept", QueueSettings(archive=True))
    for number in range(count):
        await queue.push_one(BODY)
        if number % 100 == 99:
            await _take(queue, 100)


async def full_events(engine: Engine, count: int) -> None:
    """`nexo.events` with many small publications."""
    actor = engine.topics[EVENTS_TOPIC]
    for number in range(count):
        now_ms = engine.now_ms()
        told = Event(
            kind=EventKind.PUSHED,
            queue="orders",
            first_seq=number,
            count=40,
            at_ms=now_ms,
            created_ms=now_ms,
            attempts=0,
            consumer="",
            reason="",
        )
        actor.tell_late([told] * 40)  # type: ignore[attr-defined]
        await engine.committer.drain()


async def distinct_delays(engine: Engine, count: int) -> None:
    """Messages that are all due at another time."""
    queue = await engine.create_queue("later")
    draw = random.Random(7)
    for _ in range(count // 1_000):
        delays = [draw.randrange(600_000, 300_000_000) for _ in range(1_000)]
        await queue.push(msgspec.structs.replace(batch_of([BODY] * 1_000), delay_ms=delays))


PASTS = {
    "mixed": Past(mixed_load, 500_000, "{:,} messages through 200 queues", 1.0),
    "empty": Past(empty_queues, 100_000, "{:,} messages through 1,000 queues", 1.0),
    "archive": Past(archived_singles, 20_000, "{:,} archived singles", 1.0),
    "events": Past(full_events, 10_000, "{:,} publications of events", 1.0),
    "delays": Past(distinct_delays, 1_000_000, "{:,} distinct delays", 3.0),
}
_SPAWN = multiprocessing.get_context("spawn")


async def _take(queue: QueueActor, count: int) -> None:
    delivery = await queue.pop(min(count, POP_MESSAGES_MAX), one_ack=True)
    bounds = [(part.first, part.first + part.count) for part in delivery.parts]
    await asyncio.gather(*[queue.ack(delivery.lease, *each) for each in bounds])


def _resident() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    live(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
