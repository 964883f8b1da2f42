"""The jobs of the pipeline on this machine: broker in a process of its own, Spark on all cores.

A job is measured from its start to its end over what the broker holds, in a session that has run
the same job on a little data before: code is compiled, workers are up. Files are written to disk,
and the rows are counted there. Live, a job runs while messages come, until it has all of them.
"""

from __future__ import annotations

import asyncio
import shutil
import threading
from datetime import UTC, datetime, timedelta
from time import perf_counter, sleep
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import functions as f

import nexo
from bench.result import Result
from bench.rpc import running_broker
from nexo.pipeline import archive, compact, insights
from nexo.pipeline.archive import Archive
from nexo.pipeline.commits import Commits
from nexo.pipeline.compact import Compact
from nexo.pipeline.delta import EVENTS_TABLE, MESSAGES_TABLE, find_table
from nexo.pipeline.files import write_files
from nexo.pipeline.insights import Insights
from nexo.pipeline.job import JobRun
from nexo.pipeline.lake import Lake
from nexo.pipeline.parts import columns_of
from nexo.pipeline.replay import Found, Replay
from nexo.pipeline.status import Teller
from nexo.pipeline.tables import Tables
from nexo.query.rows import TOPIC_SCHEMA
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
MANY_QUEUES, DAY_MINUTES, TICKS = 500, 1_380, 12
SMALL_FILES, SMALL_ROWS = 1_000, 200
LIVED = CONSUMERS * BATCHES * TOGETHER  # … are pushed, delivered and acked
EVENTS_KEPT = 1_000_000  # more than can be brought about in the time: made up, read from Parquet
EVENT_FILES = 8
_NOON = datetime(2026, 5, 31, 12, 0, tzinfo=UTC)
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
        yield from _ticks(directory)
        yield from _small_files(spark, directory)
        yield from _an_hour(spark, directory)
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
    spark_s = _by_spark_itself(spark, broker, directory)
    yield Result("archive, a topic to the lake", kept / seconds, "msg/s", 250e3)
    yield Result("the same rows by Spark's Parquet writer", ARCHIVED / spark_s, "msg/s")
    yield Result("archive, of the speed of that writer", 100 * spark_s / seconds, "%", 90)
    yield Result("published and not in the lake", abs(ARCHIVED - kept), "", 0, "most")
    yield Result("CPU of the broker", (after_s - before_s) / kept * 1e6, "us/msg")


def _by_spark_itself(spark: SparkSession, broker: RunningBroker, directory: Path) -> float:
    """Seconds that Spark takes to read the same topic and write it as Parquet."""

    def take(topic: str) -> float:
        options = {"endpoint": broker.url, "topic": topic, "startingOffsets": "earliest"}
        began = perf_counter()
        rows = spark.readStream.format("nexo").options(**options, maxMessagesPerTrigger=1_000_000)
        writing = rows.load().withColumn("date", f.to_date("created_at")).writeStream
        writing = writing.partitionBy("date").format("parquet").trigger(availableNow=True)
        place = str(directory / f"spark-{topic}")
        writing.option("checkpointLocation", f"{place}-checkpoint").start(place).awaitTermination()
        return perf_counter() - began

    take("warm")
    return take("bench")


def _live(spark: SparkSession, broker: RunningBroker, directory: Path) -> Iterator[Result]:
    """An archive with a micro-batch every second, while messages come."""
    lake = Lake(directory / "live")
    published, is_over = 0, threading.Event()
    told: list[tuple[int, float]] = []
    seen: list[tuple[float, float]] = []
    began = perf_counter()

    def publish() -> None:
        nonlocal published, began
        with nexo.connect(broker.url) as client:
            topic = client.topic("live")
            topic.publish(BODY)
            published = 1
            while rows() < published:  # what the start of a query takes is not the question
                sleep(0.05)
            began = perf_counter()
            while (now := perf_counter() - began) < LIVE_S:
                due = min(int(now * LIVE_RATE) - published, PUBLISHED_AT_ONCE)
                if due > 0:
                    topic.publish_batch([BODY] * due)
                    published += due
                    told.append((published, perf_counter()))
                sleep(0.02)
        is_over.set()

    def look() -> None:
        """When what was published is in the table, for everybody to see."""
        while not is_over.is_set() or told:
            table = find_table(lake, MESSAGES_TABLE)
            end = table.transaction_version("nexo.offset/live") if table is not None else None
            while told and end is not None and told[0][0] <= end:
                seen.append((told.pop(0)[1], perf_counter()))
            sleep(0.05)

    def rows() -> int:
        part = teller.status.sources.get("live")
        return part.rows if part is not None else 0

    def is_done() -> bool:
        return is_over.is_set() and rows() == published

    with nexo.connect(broker.url) as client:
        client.create_topic("live")
    teller = Teller("archive", lake)
    running = JobRun(spark, {"endpoint": broker.url}, teller, should_stop=is_done)
    publisher, looker = threading.Thread(target=publish), threading.Thread(target=look)
    publisher.start()
    looker.start()
    archive.run(running, lake, Archive(topics=("live",), every_s=1.0))
    seconds = perf_counter() - began
    publisher.join()
    looker.join()
    delays = sorted(shown_at - told_at for told_at, shown_at in seen)
    yield Result(
        "live archive, published to visible, p50", delays[len(delays) // 2], "s", 2, "most"
    )
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
    rows = DeltaTable(lake.table("insights", "queue_minutes")).to_pyarrow_table().to_pylist()
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
    stream = (
        spark.readStream.schema(columns_of(EVENTS_TABLE))
        .option("maxFilesPerTrigger", 2)
        .parquet(folder)
    )
    began = perf_counter()
    query = insights.start(stream, lake, Insights(once=True))
    query.awaitTermination()
    seconds = perf_counter() - began
    table = DeltaTable(lake.table("insights", "queue_minutes")).to_pyarrow_table()
    counted = sum(table["departures"].to_pylist())
    acked = len(range(2, EVENTS_KEPT, 3)) * TOGETHER
    yield Result("insights, events from Parquet", EVENTS_KEPT / seconds, "events/s", 50e3)
    yield Result("of these acked and not in the insights", abs(acked - counted), "", 0, "most")


def _kept(lake: Lake) -> int:
    return DeltaTable(lake.table("messages")).count()


# -- The lake alone ------------------------------------------------------------------------------


def _ticks(directory: Path) -> Iterator[Result]:
    """What insights of many queues cost at each tick, late in a day."""
    tables = Tables(Lake(directory / "ticks"))
    begin = datetime(2026, 5, 31, tzinfo=UTC)
    for first in range(0, DAY_MINUTES, 60):
        tables.put(_figures([begin + timedelta(minutes=first + each) for each in range(60)]))
    took = []
    for tick in range(TICKS):
        rows = _figures([begin + timedelta(minutes=DAY_MINUTES + tick // 6)])
        began = perf_counter()
        tables.put(rows)
        took.append(perf_counter() - began)
    yield Result(
        f"insights, a tick of {MANY_QUEUES} queues", sorted(took)[TICKS // 2], "s", 0.3, "most"
    )


def _figures(minutes: list[datetime]) -> pa.Table:
    """As Spark hands them over: each queue in each minute, and its one consumer."""
    count = MANY_QUEUES * len(minutes)
    queues = [f"q{number}" for number in range(MANY_QUEUES)] * len(minutes)
    times = [minute for minute in minutes for _ in range(MANY_QUEUES)]
    columns: dict[str, Any] = {
        "queue": queues * 2,
        "minute": pa.array(times * 2, pa.timestamp("us", tz="UTC")),
        "facet": ["minute"] * count + ["consumer"] * count,
        "detail": [""] * count + ["c"] * count,
    }
    counted = ("arrivals", "departures", "retries", "dead_letters", "deliveries", "acks")
    columns |= {name: [5] * 2 * count for name in counted}
    for name in ("wait_ms_p50", "wait_ms_p99", "work_ms_p50", "work_ms_p99"):
        columns[name] = [1.5] * 2 * count
    return pa.table(columns)


def _small_files(spark: SparkSession, directory: Path) -> Iterator[Result]:
    """A thousand of them are compacted while commits go on; then an hour of it is replayed."""
    lake = Lake(directory / "small")
    commits = Commits(lake, MESSAGES_TABLE)
    for number in range(SMALL_FILES):
        _commit(lake, commits, number)
    running = JobRun(spark, {}, Teller("compact", lake))
    is_over, gaps, number = threading.Event(), [0.0], SMALL_FILES

    def go_on() -> None:
        nonlocal number
        mine = Commits(lake, MESSAGES_TABLE)
        while not is_over.is_set():
            began = perf_counter()
            _commit(lake, mine, number)
            gaps.append(perf_counter() - began)
            number += 1

    archiving = threading.Thread(target=go_on)
    archiving.start()
    began = perf_counter()
    found = compact.run(running, lake, Compact())
    seconds = perf_counter() - began
    is_over.set()
    archiving.join()
    yield Result(f"compact, {found['files_before']:,} small files", seconds, "s")
    yield Result("the longest commit meanwhile", max(gaps), "s")
    yield Result("rows lost or doubled", abs(_kept(lake) - number * SMALL_ROWS), "", 0, "most")


def _an_hour(spark: SparkSession, directory: Path) -> Iterator[Result]:
    """One hour out of a million messages of ten hours."""
    lake = Lake(directory / "hours")
    commits = Commits(lake, MESSAGES_TABLE)
    for number in range(100):
        _commit(lake, commits, number, 10_000, 0.036)
    running = JobRun(spark, {}, Teller("replay", lake))
    since = _NOON + timedelta(hours=2)
    asked = Replay(source="a", since=since, until=since + timedelta(hours=1))
    began = perf_counter()
    found = Found(running, lake, asked)
    rows, opened = found.all().count(), len(found.holding(0, 10**9))
    yield Result("replay, an hour of a million messages, read in", perf_counter() - began, "s")
    yield Result("files that it opens of 100", opened, "", 11, "most")
    yield Result("messages of that time that it misses", abs(100_000 - rows), "", 0, "most")


def _commit(
    lake: Lake, commits: Commits, number: int, rows: int = SMALL_ROWS, every_s: float = 0.001
) -> None:
    first = number * rows
    offsets = np.arange(first, first + rows, dtype=np.int64)
    times = offsets * round(every_s * 1e6) + round(_NOON.timestamp()) * 1_000_000  # exact
    columns = {
        "id": [f"a:{each}" for each in offsets.tolist()],
        "body": [BODY] * rows,
        "priority": np.zeros(rows, np.int32),
        "attempts": np.zeros(rows, np.int32),
        "created_at": pa.array(times, pa.timestamp("us", tz="UTC")),
        "attributes": pa.nulls(rows, TOPIC_SCHEMA.field("attributes").type),
        "group_id": pa.nulls(rows, pa.string()),
        "source": ["a"] * rows,
        "offset": offsets,
    }
    batch = pa.RecordBatch.from_pydict(columns, schema=TOPIC_SCHEMA)
    commits.commit(write_files(lake, [("a", batch)]), "bench", number)
