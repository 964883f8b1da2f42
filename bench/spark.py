"""Spark: what the connector costs, against a source that hands Spark the same Arrow batches from
memory. Both run in the same session, one after the other; the broker is a process of its own."""

from __future__ import annotations

import shutil
from functools import cache
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

import nexo
from bench.result import Result
from bench.rpc import running_broker
from nexo.query.rows import declared, queue_rows
from nexo.spark import session
from nexo.vocabulary.batch import batch_of
from nexo.wire.columns import WirePart, encode_parts, raw_parts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

MESSAGES = 1_000_000
BODY = b"fifteen letters"
PUSHED_AT_ONCE = 50_000
ROWS = 32_768  # of one Arrow batch, as many as the connector hands over at once
ROUNDS = 3  # the best of them counts: the machine may be busy with something else
SMALL_BATCHES = 40


def run(directory: Path) -> list[Result]:
    spark = session("bench", "local[2]", {"spark.ui.enabled": "false"})
    spark.dataSource.register(MemorySource)
    try:
        with running_broker(directory / "data") as broker:
            client = nexo.connect(broker.url)
            results = [
                *_reading(spark, client, broker.url, directory),
                _writing(spark, client, broker.url),
                _latency(spark, client, broker.url, directory),
            ]
            client.close()
    finally:
        spark.stop()
    shutil.rmtree(directory, ignore_errors=True)
    return results


class MemorySource(DataSource):
    """The same rows as a queue has them, without a queue."""

    @classmethod
    def name(cls) -> str:
        return "bench-memory"

    def schema(self) -> str:
        return declared(with_state=True)

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802
        return MemoryReader(int(self.options["rows"]), int(self.options["batches"]))


class Run(InputPartition):
    def __init__(self, count: int) -> None:
        self.count = count


class MemoryReader(DataSourceStreamReader):
    def __init__(self, rows: int, batches: int) -> None:
        self._rows = rows
        self._batches = batches

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"batch": 0}

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:  # noqa: N802
        return {"batch": min(start["batch"] + 1, self._batches)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[Run]:
        slices = max(1, self._rows // 100_000)
        return [Run(self._rows // slices)] * slices if end != start else []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Run)
        left = partition.count
        while left > 0:
            yield _rows_in_memory().slice(0, min(left, ROWS))
            left -= ROWS


@cache
def _rows_in_memory() -> pa.RecordBatch:
    part = WirePart(0, 0, 0, 1, batch_of([BODY] * ROWS))
    return queue_rows(raw_parts(memoryview(b"".join(encode_parts([part])))), "q", 1, ["sealed"])


def _drained(rows: DataFrame, checkpoint: Path, sink: str, out: Path) -> float:
    """Seconds that Spark took for all micro-batches of what is there, start and end left out."""
    shutil.rmtree(checkpoint, ignore_errors=True)
    shutil.rmtree(out, ignore_errors=True)
    query = (
        rows.writeStream.format(sink)
        .option("path", str(out))
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    worked = [each for each in query.recentProgress if each["numInputRows"]]
    assert sum(each["numInputRows"] for each in worked) == MESSAGES
    return float(sum(each["durationMs"]["triggerExecution"] for each in worked)) / 1000


def _reading(
    spark: SparkSession, client: nexo.Client, url: str, directory: Path
) -> Iterator[Result]:
    memory = spark.readStream.format(MemorySource.name())
    bare = memory.option("rows", MESSAGES).option("batches", 1).load()
    options = {"endpoint": url, "queue": "read"}
    rows = spark.readStream.format("nexo").options(**options).load()
    queue = client.queue("read", create=True)
    for sink, share in (("noop", 0.5), ("parquet", 0.7)):
        rates: dict[str, float] = {"memory": 0.0, "queue": 0.0}
        for _ in range(ROUNDS):
            for _ in range(MESSAGES // PUSHED_AT_ONCE):
                queue.push_batch([BODY] * PUSHED_AT_ONCE)
            for name, source in (("memory", bare), ("queue", rows)):
                took = _drained(source, directory / "checkpoint", sink, directory / "out")
                rates[name] = max(rates[name], MESSAGES / took)
        bar = max(500e3, share * rates["memory"]) if sink == "noop" else share * rates["memory"]
        yield Result(f"in-memory source to {sink}", rates["memory"], "msg/s")
        yield Result(f"queue to {sink}", rates["queue"], "msg/s", bar)


def _writing(spark: SparkSession, client: nexo.Client, url: str) -> Result:
    queue = client.queue("written", create=True)
    rows = spark.range(MESSAGES).selectExpr("'fifteen letters' AS body").repartition(4).cache()
    rows.count()
    best = 0.0
    for _ in range(ROUNDS):
        queue.purge()
        began = perf_counter()
        options = {"endpoint": url, "queue": "written"}
        rows.write.format("nexo").options(**options).mode("append").save()
        best = max(best, MESSAGES / (perf_counter() - began))
    queue.purge()
    rows.unpersist()
    return Result("DataFrame to queue, durable", best, "msg/s", 300e3)


def _latency(spark: SparkSession, client: nexo.Client, url: str, directory: Path) -> Result:
    """What a micro-batch of one message takes, less what one of the bare source does."""
    queue = client.queue("small", create=True)
    queue.push_batch([BODY] * SMALL_BATCHES)
    options = {"endpoint": url, "queue": "small", "maxMessagesPerTrigger": "1"}
    rows = spark.readStream.format("nexo").options(**options).load()
    memory = spark.readStream.format(MemorySource.name())
    bare = memory.option("rows", 1).option("batches", SMALL_BATCHES).load()
    took: list[float] = []
    for source in (bare, rows):
        shutil.rmtree(directory / "checkpoint", ignore_errors=True)
        # Not available-now: of a source that does not know it, Spark takes all in one batch.
        writing = source.writeStream.format("noop").trigger(processingTime="0 seconds")
        query = writing.option("checkpointLocation", str(directory / "checkpoint")).start()
        query.processAllAvailable()
        query.stop()
        worked = [each for each in query.recentProgress if each["numInputRows"]]
        took.append(median(each["durationMs"]["triggerExecution"] for each in worked[5:]))
    return Result(
        "micro-batch of one message, above the bare source", took[1] - took[0], "ms", 30, "most"
    )
