"""Topics over TCP, everything fsynced, and what the stream of events costs those who push.

Fan-out is counted in messages published, each of which two consumers have acked: a message is
counted when the slower of the two is done with it. The cost of events is measured in process, where
nothing hides it, with the two kinds of queue taking turns on the same machine.
"""

from __future__ import annotations

import asyncio
import shutil
from time import perf_counter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import nexo
from bench.durable import engine_on
from bench.result import Result
from bench.rpc import ROUNDS, running_broker, together
from nexo.engine import process
from nexo.spark.link import Link, raw_call
from nexo.vocabulary.batch import batch_of
from nexo.vocabulary.settings import QueueSettings
from nexo.wire import calls
from nexo.wire.columns import raw_parts

if TYPE_CHECKING:
    from pathlib import Path

    from nexo.engine.queue_actor import QueueActor

BODY = bytes(100)
END = b"end"
BATCH = 1_000
SECONDS = 4.0
KEPT = 1_000_000  # messages of the topic that is read
READERS = 4  # reads under way at the same time
TURN_SECONDS = 1.5  # of pushing with events, then without, and so on
TURNS = 4
SINGLES = 20_000  # messages that were published one by one
QUEUES = ("bench.one", "bench.two")


def run(directory: Path) -> list[Result]:
    results = []
    rate = max(_fan_out(directory) for _ in range(ROUNDS))
    results.append(
        Result("publish, 2 bound queues drained, batches of 1,000", rate, "msg/s", 500e3)
    )
    rate = max(_read_kept(directory) for _ in range(ROUNDS))
    results.append(Result("read a kept topic, batches of 1,000", rate, "msg/s", 1e6))
    rate, cpu_us = max(_claim_after_restart(directory) for _ in range(ROUNDS))
    claimed = f"claim and read {SINGLES:,} published singles after a restart"
    results.append(Result(claimed, rate, "rows/s", 46e3))
    results.append(Result("  … CPU of the broker", cpu_us, "us a row"))
    process.tune_process()
    for pushers, size in ((64, 1), (4, 100), (2, 1_000)):
        shutil.rmtree(directory, ignore_errors=True)
        told, untold = process.run(_push_in_turns(directory, pushers, size))
        cost = max(0.0, 100 * (1 - told / untold))
        results.append(
            Result(f"cost of events, durable push, {pushers}x{size}", cost, "%", 10, "most")
        )
        results.append(Result(f"  … with events, {pushers}x{size}", told, "msg/s"))
    shutil.rmtree(directory, ignore_errors=True)
    return results


# -- Claims -------------------------------------------------------------------------------------


def _claim_after_restart(directory: Path) -> tuple[float, float]:
    """Rows a second as a streaming query of Spark gets them, and what one costs the broker:
    messages that were published one by one lie in as many rows of the journal, and none of them is
    in memory."""
    with running_broker(directory) as broker, nexo.connect(broker.url) as client:
        topic = client.create_topic("bench")
        topic.bind("bench.claimed")
        for _ in range(SINGLES):  # each waits for its commit, so that each is a row
            topic.publish(BODY)
    with running_broker(directory, fresh=False) as broker:
        options = SimpleNamespace(endpoint=broker.url, token=None, tls_ca=None, tls_verify=True)
        link = Link(cast("Any", options))
        before_s, started = broker.usage()[0], perf_counter()
        rows = _claim_all(link)
        took_s, used_s = perf_counter() - started, broker.usage()[0] - before_s
        link.close()
    assert rows == SINGLES, rows
    return rows / took_s, 1e6 * used_s / rows


def _claim_all(link: Link) -> int:
    """Batch after batch, each acked by the claim of the next."""
    queue, consumer = "bench.claimed", "bench"
    epoch = link.call(calls.OpenClaims(queue, consumer))
    rows = number = 0
    while True:
        claim = calls.Claim(
            name=queue,
            consumer=consumer,
            epoch=epoch,
            after=number,
            count=SINGLES,
            timeout_ms=30_000,
        )
        number = link.call(claim).number
        if not number:
            return rows
        link.call(calls.SealClaim(queue, consumer, epoch, number))
        start = 0
        while True:
            request = calls.ReadClaim(queue, consumer, epoch, number, start)
            answer = link.wait(link.begin(raw_call(request)))
            read = sum(part.count for part in raw_parts(answer.body))
            if not read:
                break
            start += read
        rows += start


# -- Fan-out ------------------------------------------------------------------------------------


def _fan_out(directory: Path) -> float:
    with running_broker(directory) as broker:
        with nexo.connect(broker.url) as client:
            topic = client.create_topic("bench", retention_messages=BATCH)
            for name in QUEUES:
                topic.bind(name)
        works = [(_drain, (broker.url, name)) for name in QUEUES]
        (started, published), *ended = together((_publish, (broker.url,)), *works)
    return float(published / (max(ended) - started))


def _publish(url: str) -> tuple[float, int]:
    """Publish for a while; returns when it began, and how many that were."""
    return process.run(_publishing(url))


async def _publishing(url: str) -> tuple[float, int]:
    bodies, published = [BODY] * BATCH, 0
    async with nexo.connect_async(url) as client:
        topic = client.topic("bench")
        started = perf_counter()

        async def publisher() -> None:
            nonlocal published
            while perf_counter() < started + SECONDS:
                await topic.publish_batch(bodies)
                published += BATCH

        async with asyncio.TaskGroup() as tasks:
            for _ in range(8):
                tasks.create_task(publisher())
        await topic.publish(END)
        return started, published


def _drain(url: str, name: str) -> float:
    """Take and ack until the end comes; returns when that was."""
    return process.run(_draining(url, name))


async def _draining(url: str, name: str) -> float:
    async with nexo.connect_async(url) as client:
        queue = client.queue(name)
        async with queue.subscribe_batches(BATCH, prefetch=8 * BATCH) as batches:
            is_over = False  # asking a closed subscription would open it again

            async def work() -> None:
                nonlocal is_over
                while not is_over and (taken := await batches.get()) is not None:
                    is_last = taken[-1].body == END
                    await queue.ack_batch(taken)
                    if is_last:
                        is_over = True
                        await batches.close()

            async with asyncio.TaskGroup() as tasks:
                for _ in range(8):
                    tasks.create_task(work())
        return perf_counter()


# -- Reading ------------------------------------------------------------------------------------


def _read_kept(directory: Path) -> float:
    with running_broker(directory) as broker:
        with nexo.connect(broker.url) as client:
            topic = client.create_topic("bench")
            for _ in range(KEPT // BATCH):
                topic.publish_batch([BODY] * BATCH)
        (seconds,) = together((_read, (broker.url,)))
    return float(KEPT / seconds)


def _read(url: str) -> float:
    return process.run(_reading(url))


async def _reading(url: str) -> float:
    """Read everything, and look at every body; returns how long that took."""
    async with nexo.connect_async(url) as client:
        topic, following, payload_bytes = client.topic("bench"), 0, 0
        started = perf_counter()

        async def reader() -> None:
            nonlocal following, payload_bytes
            while following < KEPT:
                offset, following = following, following + BATCH
                events = await topic.read(offset, BATCH)
                assert len(events) == BATCH, f"{len(events)} events at {offset}"
                payload_bytes += sum(len(event.body) for event in events)

        async with asyncio.TaskGroup() as tasks:
            for _ in range(READERS):
                tasks.create_task(reader())
        assert payload_bytes == KEPT * len(BODY)
        return perf_counter() - started


# -- Events -------------------------------------------------------------------------------------


async def _push_in_turns(directory: Path, pushers: int, size: int) -> tuple[float, float]:
    """Rates with and without events: the best turn of each, so that what else the machine does
    counts for neither."""
    async with engine_on(directory) as engine:
        rates: dict[bool, list[float]] = {True: [], False: []}
        for turn in range(TURNS):
            for is_told in (True, False) if turn % 2 else (False, True):
                name = f"bench-{turn}-{is_told}"
                queue = await engine.create_queue(name, QueueSettings(events=is_told))
                rates[is_told].append(await _push(queue, pushers, size))
                await engine.delete_queue(name)  # every turn begins with an empty store
        return max(rates[True]), max(rates[False])


async def _push(queue: QueueActor, pushers: int, size: int) -> float:
    batch = batch_of([BODY] * size)
    started, pushed = perf_counter(), 0

    async def pusher() -> None:
        nonlocal pushed
        while perf_counter() < started + TURN_SECONDS:
            if size == 1:
                await queue.push_one(BODY)
            else:
                await queue.push(batch)
            pushed += size

    await asyncio.gather(*[pusher() for _ in range(pushers)])
    return pushed / (perf_counter() - started)
