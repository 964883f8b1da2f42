"""The process that runs Spark: `python -m examples.gps.pipeline`.

    gps.positions (queue) ─┐
    gps.udp (topic) ───────┴─▶ clean ─▶ LAKE/positions

    nexo.archive.gps.positions ─┐
    gps.udp ────────────────────┴─▶ clean ─▶ windows ─▶ LAKE/windows
                                                └─▶ alerts ─▶ gps.alerts (queue), LAKE/alerts

The first query takes the positions: what it has committed is acked. The second one only reads what
the broker keeps of them. Both are exactly once, whatever is killed. SIGTERM ends the process when
all that is there has been worked on.
"""

from __future__ import annotations

import argparse
import signal
import threading
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nexo.spark
from examples.gps.motion import alerts, cleaned, windows
from examples.gps.names import ALERTS, BY_UDP, POSITIONS, POSITIONS_KEPT
from examples.gps.progress import Progress

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

BATCH_MESSAGES = 20_000
LAKE_EVERY, WINDOWS_EVERY = "1 second", "3 seconds"
LOOK_S = 0.25
# Short runs on a small machine: start quickly, compile lightly.
CONFIG = {
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.metricsEnabled": "false",
}


class Pipeline:
    def __init__(self, spark: SparkSession, url: str, lake: Path) -> None:
        self._spark = spark
        self._url = url
        self._lake = lake

    def keep_positions(self) -> StreamingQuery:
        """Every position into the lake, once: Spark's file sink knows which batches it has."""
        taken = [self._stream(queue=POSITIONS), self._stream(topic=BY_UDP)]
        rows = cleaned(reduce(_union, taken)).coalesce(1)  # one small file, not many smaller ones
        return (
            rows.writeStream.queryName("positions")
            .format("parquet")
            .partitionBy("date")
            .option("path", str(self._lake / "positions"))
            .option("checkpointLocation", self._checkpoint("positions"))
            .trigger(processingTime=LAKE_EVERY)
            .start()
        )

    def watch_motion(self) -> StreamingQuery:
        """Windows into the lake, and alerts for those that need one."""
        read = self._stream(topic=f"{BY_UDP},{POSITIONS_KEPT}")
        return (
            windows(cleaned(read))
            .writeStream.queryName("windows")
            .foreachBatch(self.keep_windows)
            .option("checkpointLocation", self._checkpoint("windows"))
            .trigger(processingTime=WINDOWS_EVERY)
            .start()
        )

    def keep_windows(self, batch: DataFrame, number: int) -> None:
        """A batch that is run again writes the same files, and its push counts once, because the
        connector names it after the query and the batch: what is done twice is there once."""
        moves = batch.coalesce(1).persist()
        try:
            if moves.isEmpty():
                return
            moves.write.mode("overwrite").parquet(str(self._lake / "windows" / f"batch={number}"))
            due = alerts(moves)
            (
                due.write.format("nexo")
                .option("endpoint", self._url)
                .option("queue", ALERTS)
                .mode("append")
                .save()
            )
            due.write.mode("overwrite").parquet(str(self._lake / "alerts" / f"batch={number}"))
        finally:
            moves.unpersist()

    def _stream(self, **source: str) -> DataFrame:
        reading = self._spark.readStream.format("nexo").option("endpoint", self._url)
        if "topic" in source:
            reading = reading.option("startingOffsets", "earliest")
        return reading.options(**source).option("maxMessagesPerTrigger", BATCH_MESSAGES).load()

    def _checkpoint(self, name: str) -> str:
        return str(self._lake / "_checkpoints" / name)


def work(spark: SparkSession, plan: argparse.Namespace, over: threading.Event) -> None:
    """Until it is over or a query fails; then what is there is finished."""
    progress = Progress(spark, plan.lake / "_progress.json")
    pipeline = Pipeline(spark, plan.url, plan.lake)
    queries = [pipeline.keep_positions()]
    progress.tell("running")
    while not over.wait(LOOK_S):
        # One after the other: on a small machine the first batch is there in half the time.
        if len(queries) == 1 and queries[0].lastProgress:
            queries.append(pipeline.watch_motion())
        for query in queries:
            if not query.isActive:
                query.awaitTermination()  # raises what made it fail
    if len(queries) == 1:
        queries.append(pipeline.watch_motion())
    progress.tell("finishing")
    for query in queries:
        query.processAllAvailable()
        query.stop()
    progress.tell("ended")


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m examples.gps.pipeline", description=__doc__)
    parser.add_argument("--url", default="nexo://127.0.0.1:9325", help="of the broker")
    parser.add_argument("--lake", type=Path, required=True, help="a folder")
    parser.add_argument("--master", default="local[2]", help="a Spark cluster, or this machine")
    parser.add_argument("--ui", action="store_true", help="serve Spark's pages too")
    return parser.parse_args(given)


def main(given: list[str] | None = None) -> int:
    plan = arguments(given)
    over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    plan.lake.mkdir(parents=True, exist_ok=True)
    config: dict[str, Any] = {**CONFIG, "spark.ui.enabled": str(plan.ui).lower()}
    spark = nexo.spark.session("gps", plan.master, config)
    work(spark, plan, over)
    spark.stop()
    return 0


def _union(some: DataFrame, others: DataFrame) -> DataFrame:
    return some.unionByName(others, allowMissingColumns=True)


if __name__ == "__main__":
    raise SystemExit(main())
