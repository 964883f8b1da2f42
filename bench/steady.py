"""A broker under mixed load for minutes: what it holds must not grow, and a start after it must not
pay for what has passed.

The broker is a process as users run it; at the end it is killed, started, stopped and started.
"""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Any

import nexo
from bench.result import Result

if TYPE_CHECKING:
    from collections.abc import Iterator

QUEUES = 200
PRODUCERS = 40
CONSUMERS = 40
BODY = b"x" * 100
_MB = 1024 * 1024


def run(directory: Path, minutes: float, memory_limit: str | None) -> Iterator[Result]:
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    settings = [] if memory_limit is None else ["--memory-limit", memory_limit]
    broker, url, _ = _start(directory, settings)
    sizes, handled, slowest_ms = asyncio.run(_load(url, broker.pid, minutes * 60))
    broker.send_signal(signal.SIGKILL)
    broker.wait()
    after = f"after {minutes:g} minutes"
    yield Result(f"messages handled {after}", handled, "messages")
    half, end = max(sizes[: len(sizes) // 2]), max(sizes[-len(sizes) // 4 :])
    yield Result("memory, most in the first half", half / _MB, "MB")
    yield Result("… and what it grew by since", max(0, end - half) / _MB, "MB", 8, "most")
    yield Result("slowest push of a bystander", slowest_ms, "ms")
    for end_by, name in ((signal.SIGTERM, "kill -9"), (signal.SIGKILL, "a stop")):
        broker, _, took_s = _start(directory, settings)
        yield Result(f"start after {name}", took_s, "s", 1, "most")
        broker.send_signal(end_by)
        broker.wait()
    shutil.rmtree(directory, ignore_errors=True)


def _start(directory: Path, settings: list[str]) -> tuple[subprocess.Popen[bytes], str, float]:
    """The process, its address, and the seconds until it was ready."""
    ports = directory / "ports"
    ports.unlink(missing_ok=True)
    command = [
        *(str(Path(sys.executable).with_name("nexo")), "serve", "--data", str(directory / "data")),
        *("--http-port", "0", "--rpc-port", "0", "--udp-port", "0", "--ports-file", str(ports)),
        *settings,
    ]
    started = perf_counter()
    with (directory / "log").open("ab") as log:
        broker = subprocess.Popen(command, stdout=log, stderr=log)
    while not (ports.exists() and ports.stat().st_size):
        if broker.poll() is not None:
            raise RuntimeError(f"the broker ended with {broker.returncode}")
        with suppress(subprocess.TimeoutExpired):
            broker.wait(0.01)
    took_s = perf_counter() - started
    return broker, f"nexo://127.0.0.1:{json.loads(ports.read_text())['rpc']}", took_s


async def _load(url: str, pid: int, seconds: float) -> tuple[list[int], int, float]:
    """What the broker held every second, how many messages went through, and the slowest push of
    somebody who does nothing else."""
    sizes: list[int] = []
    handled = [0]
    slowest = [0.0]
    until = monotonic() + seconds
    async with nexo.connect_async(url) as client, nexo.connect_async(url) as other:
        for number in range(QUEUES):
            await client.create_queue(f"queue-{number}", **_settings(number))
        async with asyncio.TaskGroup() as tasks:
            for number in range(PRODUCERS):
                tasks.create_task(_produce(client, random.Random(number), until))
            for number in range(CONSUMERS):
                tasks.create_task(_consume(client, random.Random(number), until, handled))
            tasks.create_task(_stand_by(other, until, slowest))
            tasks.create_task(_watch(pid, until, sizes))
    return sizes, handled[0], slowest[0] * 1000


def _settings(number: int) -> dict[str, Any]:
    """Most are plain; some have what keeps state of its own."""
    kind = number % 20
    if kind == 0:
        return {"fifo": True}
    if kind == 1:
        return {"deduplication": "id", "deduplication_window": 30.0}
    if kind == 2:
        return {"archive": True, "archive_retention": 60.0}
    if kind == 3:
        return {"backoff": {"initial": 0.1}}
    return {}


async def _produce(client: nexo.AsyncClient, chance: random.Random, until: float) -> None:
    while monotonic() < until:
        number = chance.randrange(QUEUES)
        queue = client.queue(f"queue-{number}")
        group = f"g{chance.randrange(50)}" if number % 20 in (0, 4) else None
        if chance.random() < 0.5:
            await queue.push(
                BODY,
                group_id=group,
                delay=chance.choice([None, None, 0.5, 5.0]),
                deduplication_id=f"{chance.random()}" if number % 20 == 1 else None,
            )
        else:
            await queue.push_batch([BODY] * chance.choice([2, 10, 100]), group_id=group)


async def _consume(
    client: nexo.AsyncClient, chance: random.Random, until: float, handled: list[int]
) -> None:
    while monotonic() < until:
        queue = client.queue(f"queue-{chance.randrange(QUEUES)}")
        messages = list(await queue.pop_batch(chance.choice([1, 10, 1_000]), wait=0.01))
        if messages and chance.random() < 0.02:
            await messages.pop().nack()
        if messages:
            await queue.ack_batch(messages)
            handled[0] += len(messages)


async def _stand_by(client: nexo.AsyncClient, until: float, slowest: list[float]) -> None:
    queue = await client.create_queue("bystander", max_depth=None, retention=60.0)
    while monotonic() < until:
        started = perf_counter()
        await queue.push(b"x")
        slowest[0] = max(slowest[0], perf_counter() - started)
        await asyncio.sleep(0.05)


async def _watch(pid: int, until: float, sizes: list[int]) -> None:
    status = Path(f"/proc/{pid}/status")
    while monotonic() < until:
        await asyncio.sleep(1)
        text = await asyncio.to_thread(status.read_text)
        sizes.append(1024 * int(text.split("VmRSS:")[1].split()[0]))
        if len(sizes) % 60 == 0:  # an hour without a word looks like a bench that hangs
            most = max(sizes[-60:]) / _MB
            print(f"minute {len(sizes) // 60}: at most {most:.1f} MB", file=sys.stderr, flush=True)
