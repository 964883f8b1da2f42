"""The jobs of the pipeline on this machine: broker in a process of its own, Spark on all cores.

A job is measured from its start to its end over what the broker holds, in a session that has run
the same job on a little data before: code is compiled, workers are up. Files are written to disk,
and the rows are counted there. Live, a job runs while messages come, until it has all of them.
"""

from __future__ import annotations

import asyncio
import shutil
import threading
from time import perf_counter, sleep
from typing import TYPE_CHECKING

import pyarrow.dataset as ds

import nexo
from bench.result import Result
from bench.rpc import running_broker
from nexo.pipeline import archive, insights
from nexo.pipeline.archive import Archive
from nexo.pipeline.insights import Insights
from nexo.pipeline.job import JobRun
from nexo.pipeline.lake import EVENTS, Lake
from nexo.pipeline.status import Teller
from nexo.spark import session

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from bench.rpc import RunningBroker

BODY = bytes(100)
ARCHIVED = 3_000_000  # twenty seconds at the bar: what is sustained, not what fits a buffer
WARM = 20_000
PUBLISHED_AT_ONCE = 100_000
LIVE_S = 10.0  # for so long messages come …
LIVE_RATE = 100_000  # … this many a second: broker and publisher need a core of the two
QUEUES, CONSUMERS = 16, 64
TOGETHER, BATCHES = 10, 250  # of each consumer, so many messages in so many batches …
LIVED = CONSUMERS * BATCHES * TOGETHER  # … are pushed, delivered and acked
EVENTS_KEPT = 1_000_000  # more than can be brought about in the time: made up, read from Parquet
EVENT_FILES = 8
# The life of messages in batches of ten, as the broker tells it, over ten minutes.
_MADE_UP = f"""
    element_at(array('pushed', 'delivered', 'acked'), int(id % 3) + 1) as kind,
    concat('q', (id div 3) % {QUEUES}) as queue, id * {TOGETHER} as first_seq,
    {TOGETHER}L as count, timestamp_millis(1780228800000 + id * 600000 div {EVENTS_KEPT}) as at,
    timestamp_millis(1780228800000 + id * 600000 div {EVENTS_KEPT} - id % 50) as created_at,
    if(id % 3 = 0, 0, 1) as attempts, if(id % 3 = 0, '', concat('c', id % 7)) as consumer,
    '' as reason, timestamp_millis(1780228800000 + id * 600000 div {EVENTS_KEPT} - id % 9) as
    delivered_at, id as offset, date'2026-05-31' as date
"""


def run(directory: Path) -> Iterator[Result]:
    """Each figure as soon as it is known."""
    shutil.rmtree(directory, ignore_errors=True)
    spark = session("bench", config={"spark.ui.enabled": "false"})
    try:
        with running_broker(directory / "data") as broker:
            yield from _archive(spark, broker, directory)
            yield from _live(spark, broker, directory)
            yield from _insights(spark, broker, directory)
        yield from _insights_of_many(spark, directory)
    finally:
        spark.stop()
        shutil.rmtree(directory, ignore_errors=True)


def _archive(spark: SparkSession, broker: RunningBroker, directory: Path) -> Iterator[Result]:
    with nexo.connect(broker.url) as client:
        for name, count in (("warm", WARM), ("bench", ARCHIVED)):
            topic = client.create_topic(name)
            for start in range(0, count, PUBLISHED_AT_ONCE):
                topic.publish_batch([BODY] * min(PUBLISHED_AT_ONCE, count - start))

    def take(name: str) -> float:
        lake = Lake(directory / name)
        running = JobRun(spark, {"endpoint": broker.url}, Teller("archive", lake))
        began = perf_counter()
        archive.run(running, lake, Archive(topics=(name,), once=True))
        return perf_counter() - began

    take("warm")
    before_s, _ = broker.usage()
    seconds = take("bench")
    after_s, _ = broker.usage()
    kept = _kept(Lake(directory / "bench"))
    yield Result("archive, a topic to Parquet", kept / seconds, "msg/s", 150e3)
    yield Result("published and not in the lake", abs(ARCHIVED - kept), "", 0, "most")
    yield Result("CPU of the broker", (after_s - before_s) / kept * 1e6, "us/msg")


def _live(spark: SparkSession, broker: RunningBroker, directory: Path) -> Iterator[Result]:
    """An archive with a micro-batch every second, while messages come."""
    lake = Lake(directory / "live")
    published, is_over = 0, threading.Event()
    began = perf_counter()

    def publish() -> None:
        nonlocal published
        with nexo.connect(broker.url) as client:
            topic = client.topic("live")
            while (now := perf_counter() - began) < LIVE_S:
                due = min(int(now * LIVE_RATE) - published, PUBLISHED_AT_ONCE)
                if due > 0:
                    topic.publish_batch([BODY] * due)
                    published += due
                sleep(0.02)
        is_over.set()

    def is_done() -> bool:
        part = teller.status.sources.get("live")
        return is_over.is_set() and part is not None and part.rows == published

    with nexo.connect(broker.url) as client:
        client.create_topic("live")
    teller = Teller("archive", lake)
    running = JobRun(spark, {"endpoint": broker.url}, teller, should_stop=is_done)
    publisher = threading.Thread(target=publish)
    publisher.start()
    archive.run(running, lake, Archive(topics=("live",), every_s=1.0))
    seconds = perf_counter() - began
    publisher.join()
    yield Result(f"live archive, {LIVE_RATE:,} msg/s come", _kept(lake) / seconds, "msg/s")
    yield Result("live archive, in the lake after the last came", seconds - LIVE_S, "s")
    yield Result("published and not in the lake", abs(published - _kept(lake)), "", 0, "most")


def _insights(spark: SparkSession, broker: RunningBroker, directory: Path) -> Iterator[Result]:
    """From the broker: that all of it arrives."""
    lake = Lake(directory / "insights")
    asyncio.run(_lives(broker.url))
    running = JobRun(spark, {"endpoint": broker.url}, Teller("insights", lake))
    began = perf_counter()
    insights.run(running, lake, Insights(once=True))
    seconds = perf_counter() - began
    rows = ds.dataset(lake.insights / "queue_minutes", format="parquet").to_table().to_pylist()
    counted = sum(row["departures"] for row in rows)
    events = running.teller.status.rows
    yield Result("insights, events of the broker, with its start", events / seconds, "events/s")
    yield Result("acked and not in the insights", abs(LIVED - counted), "", 0, "most")


async def _lives(url: str) -> None:
    """Messages that come, are worked on and go, some at a time, by many at once."""
    async with nexo.connect_async(url) as client:

        async def live(number: int) -> None:
            queue = client.queue(f"queue-{number % QUEUES}")
            for _ in range(BATCHES):
                await queue.push_batch([BODY] * TOGETHER)
                left = TOGETHER
                while left:
                    taken = await queue.pop_batch(left, wait=5.0)
                    assert not await queue.ack_batch(taken)
                    left -= len(taken)

        for number in range(QUEUES):
            await client.create_queue(f"queue-{number}")
        async with asyncio.TaskGroup() as tasks:
            for number in range(CONSUMERS):
                tasks.create_task(live(number))


def _insights_of_many(spark: SparkSession, directory: Path) -> Iterator[Result]:
    """The same job on more events than the bench can bring about: how fast it computes."""
    folder, lake = str(directory / "events"), Lake(directory / "many")
    made_up = f"SELECT {_MADE_UP} FROM range(0, {EVENTS_KEPT}, 1, {EVENT_FILES})"  # noqa: S608
    spark.sql(made_up).write.parquet(folder)
    stream = spark.readStream.schema(EVENTS).option("maxFilesPerTrigger", 2).parquet(folder)
    began = perf_counter()
    query = insights.start(stream, lake, Insights(once=True))
    query.awaitTermination()
    seconds = perf_counter() - began
    table = ds.dataset(lake.insights / "queue_minutes", format="parquet").to_table()
    counted = sum(table["departures"].to_pylist())
    acked = len(range(2, EVENTS_KEPT, 3)) * TOGETHER
    yield Result("insights, events from Parquet", EVENTS_KEPT / seconds, "events/s", 50e3)
    yield Result("of these acked and not in the insights", abs(acked - counted), "", 0, "most")


def _kept(lake: Lake) -> int:
    kept: int = ds.dataset(lake.messages, partitioning="hive", format="parquet").count_rows()
    return kept
