"""What running a broker costs: access checks, metrics of thousands of queues, a backup under load.

Shares are of one run: rounds with and without follow each other, and the medians are compared.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
import urllib.request
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING

import nexo
from bench.result import Result
from bench.rpc import BODY, running_broker, together

if TYPE_CHECKING:
    from pathlib import Path

    from bench.rpc import RunningBroker

SECONDS = 3.0
ROUNDS = 5
QUEUES = 5_000
BACKLOG = 1_000_000
FLOW = 100_000  # messages a second that go through while a backup is taken


def run(directory: Path) -> list[Result]:
    results = [
        Result("access checks: share of throughput", _access(directory), "%", 5, "most"),
        Result(f"/metrics of {QUEUES:,} queues", _metrics(directory), "ms", 200, "most"),
        *_backup(directory),
    ]
    shutil.rmtree(directory, ignore_errors=True)
    return results


# -- Access ---------------------------------------------------------------------------------------


def _access(directory: Path) -> float:
    """How much slower single pushes are when each is checked, in percent."""
    with running_broker(directory) as broker, nexo.connect(broker.url) as client:
        client.create_queue("bench")
        token = client.create_token("bench", ["bench:push,pop", "other.*:push"]).token
        assert token is not None
    open_rates, checked_rates = [], []
    for _ in range(ROUNDS):
        with running_broker(directory, fresh=False) as broker:
            open_rates.append(together((_push, (broker.url, None)))[0])
        with running_broker(directory, fresh=False, access="required") as broker:
            checked_rates.append(together((_push, (broker.url, token)))[0])
    return float(100 * (1 - median(checked_rates) / median(open_rates)))


def _push(url: str, token: str | None) -> float:
    """Messages a second, one a call, 500 in flight."""
    if token is not None:
        os.environ["NEXO_TOKEN"] = token
    return asyncio.run(_pushing(url))


async def _pushing(url: str) -> float:
    count = 0
    async with nexo.connect_async(url) as client:
        queue = client.queue("bench")
        started = perf_counter()

        async def one_at_a_time() -> None:
            nonlocal count
            while perf_counter() - started < SECONDS:
                await queue.push(BODY)
                count += 1

        async with asyncio.TaskGroup() as tasks:
            for _ in range(500):
                tasks.create_task(one_at_a_time())
        return count / (perf_counter() - started)


# -- Metrics --------------------------------------------------------------------------------------


def _metrics(directory: Path) -> float:
    with running_broker(directory) as broker:
        asyncio.run(create_queues(broker.url))
        took_ms = []
        for _ in range(ROUNDS):
            started = perf_counter()
            with urllib.request.urlopen(f"http://127.0.0.1:{broker.ports.http}/metrics") as answer:
                answer.read()
            took_ms.append((perf_counter() - started) * 1000)
    return median(took_ms)


async def create_queues(url: str) -> None:
    async with nexo.connect_async(url) as client:
        for start in range(0, QUEUES, 500):
            names = [f"queue-{number}" for number in range(start, start + 500)]
            await asyncio.gather(*[client.create_queue(name) for name in names])


# -- Backup ---------------------------------------------------------------------------------------


def _backup(directory: Path) -> list[Result]:
    with running_broker(directory) as broker, nexo.connect(broker.url) as client:
        backlog = client.create_queue("backlog")
        for _ in range(BACKLOG // 1_000):
            backlog.push_batch([BODY] * 1_000)
        client.create_queue("flow")
        alone = _flow(broker, None)
        during = _flow(broker, directory / "backup.nexo")
    share = 100 * (1 - during[0] / alone[0])
    return [
        Result("flow beside no backup", alone[0], "msg/s", FLOW * 0.95),
        Result(f"backup of {BACKLOG / 1e6:g}M: took", during[1], "s"),
        Result("backup: share of the flow's throughput", share, "%", 20, "most"),
        Result("backup: pushes refused", during[2], "", 0, "most"),
    ]


def _flow(broker: RunningBroker, backup: Path | None) -> tuple[float, float, int]:
    """Messages a second through a queue, how long the backup took, and refused pushes."""
    ending = threading.Event()
    took_s = 0.0
    counted: list[tuple[int, int]] = []
    worker = threading.Thread(target=lambda: counted.append(_push_and_pop(broker.url, ending)))
    started = perf_counter()
    worker.start()
    if backup is not None:
        with nexo.connect(broker.url) as client:
            client.backup(backup, replace=True)
        took_s = perf_counter() - started
    else:
        ending.wait(SECONDS)
    ending.set()
    worker.join()
    seconds = perf_counter() - started
    count, refused = counted[0]
    return count / seconds, took_s, refused


def _push_and_pop(url: str, ending: threading.Event) -> tuple[int, int]:
    """Keep the flow at its rate, as far as the broker keeps up; acked, and refused pushes."""
    acked = refused = 0
    with nexo.connect(url) as client:
        queue = client.queue("flow")
        started = perf_counter()
        while not ending.is_set():
            if acked > FLOW * (perf_counter() - started):
                ending.wait(0.001)
                continue
            try:
                queue.push_batch([BODY] * 500)
            except nexo.NexoError:
                refused += 1
                continue
            messages = queue.pop_batch(500)
            queue.ack_batch(messages)
            acked += len(messages)
    return acked, refused
