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
from urllib.request import urlopen

import msgspec

import nexo
from bench.result import Result

if TYPE_CHECKING:
    from collections.abc import Iterator

QUEUES = 200
PRODUCERS = 40
CONSUMERS = 40
BODY = b"x" * 100
_MB = 1024 * 1024


class Held(msgspec.Struct, frozen=True):
    """What the broker held at a moment, in bytes; `payload` and `counted` by its own account."""

    resident: int
    payload: int
    counted: int

    @property
    def outside(self) -> int:
        """What must be flat: a backlog in memory comes and goes, up to `memory_limit`."""
        return self.resident - self.payload


def run(directory: Path, minutes: float, memory_limit: str | None) -> Iterator[Result]:
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    settings = [] if memory_limit is None else ["--memory-limit", memory_limit]
    broker, ports, _ = _start(directory, settings)
    held, handled, slowest_ms = asyncio.run(_load(ports, minutes * 60))
    broker.send_signal(signal.SIGKILL)
    broker.wait()
    after = f"after {minutes:g} minutes"
    yield Result(f"messages handled {after}", handled, "messages")
    yield Result("memory, most of all", max(each.resident for each in held) / _MB, "MB")
    sizes = [each.outside for each in held]
    half, end = max(sizes[: len(sizes) // 2]), max(sizes[-len(sizes) // 4 :])
    yield Result("… without payloads, most in the first half", half / _MB, "MB")
    yield Result("… and what that grew by since", max(0, end - half) / _MB, "MB", 8, "most")
    yield Result("slowest push of a bystander", slowest_ms, "ms")
    for end_by, name in ((signal.SIGTERM, "kill -9"), (signal.SIGKILL, "a stop")):
        broker, _, took_s = _start(directory, settings)
        yield Result(f"start after {name}", took_s, "s", 1, "most")
        broker.send_signal(end_by)
        broker.wait()
    shutil.rmtree(directory, ignore_errors=True)


def _start(
    directory: Path, settings: list[str]
) -> tuple[subprocess.Popen[bytes], dict[str, int], float]:
    """The process, its ports, and the seconds until it was ready."""
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
    return broker, json.loads(ports.read_text()), took_s


async def _load(ports: dict[str, int], seconds: float) -> tuple[list[Held], int, float]:
    """What the broker held every second, how many messages went through, and the slowest push of
    somebody who does nothing else."""
    url = f"nexo://127.0.0.1:{ports['rpc']}"
    held: list[Held] = []
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
            tasks.create_task(_watch(ports["http"], until, held))
    return held, handled[0], slowest[0] * 1000


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


async def _watch(port: int, until: float, held: list[Held]) -> None:
    while monotonic() < until:
        await asyncio.sleep(1)
        held.append(await asyncio.to_thread(_held, port))
        if len(held) % 60 == 0:  # an hour without a word looks like a bench that hangs
            most = max(held[-60:], key=lambda each: each.outside)
            print(
                f"minute {len(held) // 60}: at most {most.outside / _MB:.1f} MB without "
                f"{most.payload / _MB:.1f} MB of payloads; {most.counted / _MB:.1f} MB are counted",
                file=sys.stderr,
                flush=True,
            )


def _held(port: int) -> Held:
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        samples = dict(line.rsplit(" ", 1) for line in answer.read().decode().splitlines())
    return Held(
        resident=int(float(samples["process_resident_memory_bytes"])),
        payload=int(float(samples["nexo_payload_memory_bytes"])),
        counted=int(float(samples["nexo_bookkeeping_memory_bytes"])),
    )
