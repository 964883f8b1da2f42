"""The jobs of the pipeline on this machine: broker in a process of its own, Spark on all cores.

What is measured is a job from its start to its end over what the broker holds, in a session that
has run the same job on a little data before: code is compiled, workers are up. Files are written to
disk, and the rows are counted there.
"""

from __future__ import annotations

import shutil
from time import perf_counter
from typing import TYPE_CHECKING

import pyarrow.dataset as ds

import nexo
from bench.result import Result
from bench.rpc import running_broker
from nexo.pipeline import archive, insights
from nexo.pipeline.archive import Archive
from nexo.pipeline.insights import Insights
from nexo.pipeline.lake import Lake
from nexo.pipeline.running import Running
from nexo.pipeline.status import Teller
from nexo.spark import session

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

BODY = bytes(100)
ARCHIVED = 6_000_000  # half a minute at the bar: what is sustained, not what fits a buffer
WARM = 20_000
LIVED = 1_000_000  # messages that are pushed, delivered and acked …
TOGETHER = 10  # … in batches of this many, so that an event tells of so many
_PUBLISH = 10_000


def run(directory: Path) -> list[Result]:
    shutil.rmtree(directory, ignore_errors=True)
    spark = session("bench", config={"spark.ui.enabled": "false"})
    try:
        return [*_archive(spark, directory / "archive"), *_insights(spark, directory / "insights")]
    finally:
        spark.stop()
        shutil.rmtree(directory, ignore_errors=True)


def _archive(spark: SparkSession, directory: Path) -> list[Result]:
    with running_broker(directory / "data") as broker, nexo.connect(broker.url) as client:
        for name, count in (("warm", WARM), ("bench", ARCHIVED)):
            topic = client.create_topic(name)
            for _ in range(0, count, _PUBLISH):
                topic.publish_batch([BODY] * _PUBLISH)

        def take(name: str) -> float:
            lake = Lake(directory / name)
            running = Running(spark, {"endpoint": broker.url}, Teller("archive", lake))
            began = perf_counter()
            archive.run(running, lake, Archive(topics=(name,), once=True))
            return perf_counter() - began

        take("warm")
        before_s, _ = broker.usage()
        seconds = take("bench")
        after_s, _ = broker.usage()
    table = Lake(directory / "bench").messages
    kept = ds.dataset(table, partitioning="hive", format="parquet").count_rows()
    return [
        Result("archive, a topic to Parquet", kept / seconds, "msg/s", 150e3),
        Result("published and not in the lake", abs(ARCHIVED - kept), "", 0, "most"),
        Result("CPU of the broker", (after_s - before_s) / kept * 1e6, "us/msg"),
    ]


def _insights(spark: SparkSession, directory: Path) -> list[Result]:
    lake = Lake(directory / "lake")
    with running_broker(directory / "data") as broker, nexo.connect(broker.url) as client:

        def measure(name: str, count: int) -> tuple[float, int]:
            """Seconds and events; the job goes on from its checkpoint, as it does in use."""
            _live(client, name, count)
            running = Running(spark, {"endpoint": broker.url}, Teller("insights", lake))
            began = perf_counter()
            insights.run(running, lake, Insights(once=True))
            return perf_counter() - began, running.teller.status.rows

        measure("warm", WARM)
        seconds, events = measure("bench", LIVED)
    rows = ds.dataset(lake.insights / "queue_minutes", format="parquet").to_table().to_pylist()
    counted = sum(row["departures"] for row in rows if row["queue"] == "bench")
    name = f"insights, events of batches of {TOGETHER}"
    return [
        Result(f"{name}: messages that lived", LIVED / seconds, "msg/s", 50e3),
        Result(f"{name}: events", events / seconds, "events/s"),
        Result("acked and not in the insights", abs(LIVED - counted), "", 0, "most"),
    ]


def _live(client: nexo.Client, name: str, count: int) -> None:
    """Messages that come, are worked on and go, some at a time."""
    queue = client.create_queue(name)
    for _ in range(0, count, TOGETHER):
        queue.push_batch([BODY] * TOGETHER)
        assert not queue.ack_batch(queue.pop_batch(TOGETHER, wait=1.0))
