"""The whole way: producer, broker and consumer as three processes over TCP, everything fsynced.

A message is counted when its ack is confirmed. Latency is from the call of push in one process to
the message in the hands of the other; both read the same monotonic clock.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import resource
import shutil
import struct
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal

import nexo
from bench.result import Result
from nexo.engine import process
from nexo.server.broker import Broker
from nexo.server.configuration import Configuration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from multiprocessing.connection import Connection

    from nexo.server.broker import Ports

BODY = bytes(100)
SECONDS = 4.0
# Size of a push, how many of them each side has under way, and the messages a second to reach.
# With few small batches under way all three processes sleep in between, and what is measured is how
# quickly they wake each other; eight of 100 stand beside the 32 to show how much that is.
LOADS = ((1, 1_000, 100e3), (100, 32, 500e3), (100, 8, None), (1_000, 8, 1e6))
ROUNDS = 3  # the best of them counts: the machine may be busy with something else
NAIVE_BACKLOG = 1_000  # so that the consumer never waits for the producer
LATENCY_MESSAGES = 1_500
BACKLOG = 1_000_000
SUBSCRIBERS = 500
_MB = 1024 * 1024
_spawn = multiprocessing.get_context("spawn")


def run(directory: Path) -> list[Result]:
    results = []
    for size, calls, bar in LOADS:
        rate = max(throughput(directory, size, calls) for _ in range(ROUNDS))
        what = "singles" if size == 1 else f"batches of {size:,}"
        results.append(Result(f"end to end, {what}, {calls:,} in flight", rate, "msg/s", bar))
    rounds = [naive(directory) for _ in range(ROUNDS)]
    for index, what in enumerate(("push", "pop and ack")):
        rate = max(each[index] for each in rounds)
        results.append(Result(f"naive, one call at a time: {what}", rate, "msg/s", 2_000))
    median_ms, high_ms = min(_latency(directory) for _ in range(ROUNDS))
    results.append(Result("push to consumer at 500/s: p50", median_ms, "ms", 0.8, "most"))
    results.append(Result("push to consumer at 500/s: p99", high_ms, "ms", 3.0, "most"))
    results += _backlog(directory)
    results.append(_idle_subscribers(directory))
    results.append(_import_of_the_client())
    shutil.rmtree(directory, ignore_errors=True)
    return results


# -- The processes --------------------------------------------------------------------------------


class RunningBroker:
    def __init__(self, child: Any, pipe: Connection) -> None:
        self._child = child
        self._pipe = pipe
        self.ports: Ports = pipe.recv()
        self.url = f"nexo://127.0.0.1:{self.ports.rpc}"

    def usage(self) -> tuple[float, float]:
        """Seconds of CPU that it used, and megabytes that it holds."""
        self._pipe.send("usage")
        seconds, megabytes = self._pipe.recv()
        return seconds, megabytes

    def stop(self) -> None:
        self._pipe.send("stop")
        self._child.join(60)


@contextmanager
def running_broker(
    directory: Path,
    fresh: bool = True,
    access: Literal["development", "required"] = "development",
    journal: str | None = None,
) -> Iterator[RunningBroker]:
    if fresh:
        shutil.rmtree(directory, ignore_errors=True)
    near, far = _spawn.Pipe()
    child = _spawn.Process(target=_serve, args=(str(directory), far, access, journal))
    child.start()
    broker = RunningBroker(child, near)
    try:
        yield broker
    finally:
        broker.stop()


def _serve(
    directory: str,
    pipe: Connection,
    access: Literal["development", "required"],
    journal: str | None,
) -> None:
    process.tune_process()
    configuration = Configuration(
        data=directory, http_port=0, rpc_port=0, udp_port=0, access=access, journal=journal
    )
    process.run(_broker(configuration, pipe))


async def _broker(configuration: Configuration, pipe: Connection) -> None:
    broker = Broker(configuration)
    pipe.send(await broker.start())
    asked = asyncio.Event()
    asyncio.get_running_loop().add_reader(pipe.fileno(), asked.set)
    while True:
        await asked.wait()
        asked.clear()
        if pipe.recv() == "stop":
            break
        pipe.send((time.process_time(), _resident_mb()))
    await broker.stop()


def together(*works: tuple[Callable[..., Any], tuple[Any, ...]]) -> list[Any]:
    """Run functions in processes of their own, begun at the same moment; their results."""
    started = _spawn.Barrier(len(works))
    children = []
    for work, arguments in works:
        near, far = _spawn.Pipe()
        child = _spawn.Process(target=_child, args=(far, started, work, arguments))
        child.start()
        children.append((child, near))
    results = [near.recv() for _, near in children]
    for child, _ in children:
        child.join()
    return results


def _child(pipe: Connection, started: Any, work: Callable[..., Any], arguments: Any) -> None:
    process.tune_process()
    started.wait()
    pipe.send(work(*arguments))


# -- Throughput -----------------------------------------------------------------------------------


def throughput(directory: Path, size: int, calls: int, journal: str | None = None) -> float:
    with running_broker(directory, journal=journal) as broker:
        with nexo.connect(broker.url) as client:
            client.create_queue("bench")
        arguments = (broker.url, size, calls)
        started, (count, ended) = together((_produce, arguments), (_consume, arguments))
    return float(count / (ended - started))


def _produce(url: str, size: int, calls: int) -> float:
    return process.run(_producing(url, size, calls))


def _consume(url: str, size: int, calls: int) -> tuple[int, float]:
    return process.run(_consuming(url, size, calls))


async def _producing(url: str, size: int, calls: int) -> float:
    """Push for a while; returns when it began."""
    async with nexo.connect_async(url) as client:
        queue = client.queue("bench")
        bodies = [BODY] * size
        started = perf_counter()
        ends = started + SECONDS

        async def one_at_a_time() -> None:
            while perf_counter() < ends:
                await queue.push(BODY)

        async def batches() -> None:
            while perf_counter() < ends:
                await queue.push_batch(bodies)

        async with asyncio.TaskGroup() as tasks:
            for _ in range(calls):
                tasks.create_task(one_at_a_time() if size == 1 else batches())
        await queue.push(b"end")
        return started


async def _consuming(url: str, size: int, calls: int) -> tuple[int, float]:
    """Take and ack until the end comes; returns how many and when that was."""
    async with nexo.connect_async(url) as client:
        queue = client.queue("bench")
        count, ended = 0, False
        if size == 1:
            async with queue.subscribe(prefetch=2 * calls) as messages:

                async def work() -> None:
                    nonlocal count, ended
                    while not ended:
                        message = await messages.get()
                        if message is None:
                            return
                        last = message.body == b"end"
                        await message.ack()
                        count += 1
                        if last:
                            ended = True
                            await messages.close()

                async with asyncio.TaskGroup() as tasks:
                    for _ in range(calls):
                        tasks.create_task(work())
            return count, perf_counter()
        async with queue.subscribe_batches(size, prefetch=calls * size) as batches:

            async def work_in_batches() -> None:
                nonlocal count, ended
                while not ended:
                    taken = await batches.get()
                    if taken is None:
                        return
                    last = taken[-1].body == b"end"
                    await queue.ack_batch(taken)
                    count += len(taken)
                    if last:
                        ended = True
                        await batches.close()

            async with asyncio.TaskGroup() as tasks:
                for _ in range(calls):
                    tasks.create_task(work_in_batches())
        return count, perf_counter()


# -- One call at a time ---------------------------------------------------------------------------


def naive(directory: Path) -> tuple[float, float]:
    """Messages a second of a producer and of a consumer that both work at the same time."""
    with running_broker(directory) as broker:
        with nexo.connect(broker.url) as client:
            queue = client.create_queue("bench")
            queue.push_batch([BODY] * NAIVE_BACKLOG)
        pushed, popped = together((_push_naively, (broker.url,)), (_pop_naively, (broker.url,)))
    return float(pushed), float(popped)


def _push_naively(url: str) -> float:
    with nexo.connect(url) as client:
        queue = client.queue("bench")
        count, started = 0, perf_counter()
        while perf_counter() - started < SECONDS:
            queue.push(BODY)
            count += 1
        return count / (perf_counter() - started)


def _pop_naively(url: str) -> float:
    with nexo.connect(url) as client:
        queue = client.queue("bench")
        count, started = 0, perf_counter()
        while perf_counter() - started < SECONDS:
            message = queue.pop(wait=1.0)
            if message is not None:
                message.ack()
                count += 1
        return count / (perf_counter() - started)


# -- Latency --------------------------------------------------------------------------------------


def _latency(directory: Path) -> tuple[float, float]:
    with running_broker(directory) as broker:
        with nexo.connect(broker.url) as client:
            client.create_queue("bench")
        _, took = together((_push_steadily, (broker.url,)), (_take_steadily, (broker.url,)))
    took = sorted(took[100:])
    return took[len(took) // 2] * 1000, took[len(took) * 99 // 100] * 1000


def _push_steadily(url: str) -> None:
    with nexo.connect(url) as client:
        queue = client.queue("bench")
        started = time.monotonic()
        for number in range(LATENCY_MESSAGES):
            time.sleep(max(0.0, started + number / 500 - time.monotonic()))
            queue.push(struct.pack("<d", time.monotonic()) + bytes(92))


def _take_steadily(url: str) -> list[float]:
    took: list[float] = []
    with nexo.connect(url) as client:
        for message in client.queue("bench").subscribe():
            took.append(time.monotonic() - struct.unpack_from("<d", message.body)[0])
            message.ack()
            if len(took) == LATENCY_MESSAGES:
                break
    return took


# -- A backlog, and consumers that only wait ------------------------------------------------------


def _backlog(directory: Path) -> list[Result]:
    with running_broker(directory) as broker:
        with nexo.connect(broker.url) as client:
            queue = client.create_queue("bench")
            for _ in range(BACKLOG // 1_000):
                queue.push_batch([BODY] * 1_000)
        resident_mb = broker.usage()[1]
    started = perf_counter()
    with running_broker(directory, fresh=False) as broker, nexo.connect(broker.url) as client:
        message = client.queue("bench").pop(wait=10)
        assert message is not None
        seconds = perf_counter() - started
        message.nack(delay=0)
    name = f"backlog of {BACKLOG / 1e6:g}M"
    return [
        Result(f"{name}: resident memory of the broker", resident_mb, "MB", 180, "most"),
        Result(f"{name}: start of the process to the first pop", seconds, "s", 1.5, "most"),
    ]


def _idle_subscribers(directory: Path) -> Result:
    with running_broker(directory) as broker:
        share = process.run(_waiting(broker))
    return Result(f"{SUBSCRIBERS} idle subscribers: CPU of the broker", share, "%", 2, "most")


async def _waiting(broker: RunningBroker) -> float:
    clients = [nexo.connect_async(broker.url) for _ in range(SUBSCRIBERS)]
    for client in clients:
        await client.__aenter__()
    await clients[0].create_queue("bench")
    subscriptions = [client.queue("bench").subscribe() for client in clients]
    for subscription in subscriptions:
        await subscription.__aenter__()
    await asyncio.sleep(1.0)
    before, _ = broker.usage()
    await asyncio.sleep(10.0)
    after, _ = broker.usage()
    for client in clients:
        await client.close()
    return (after - before) * 10


def _import_of_the_client() -> Result:
    """CPU time: of a machine that is busy, that is still what the client costs."""
    code = "import time; t = time.process_time(); import nexo; nexo.connect; nexo.Client; "
    code += "print(time.process_time() - t)"
    command = [sys.executable, "-c", code]
    took_s = [float(subprocess.check_output(command, timeout=60)) for _ in range(5)]
    return Result("import of the client", min(took_s) * 1000, "ms", 150, "most")


def _resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / _MB
