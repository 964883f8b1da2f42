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
    from pyspark.sql.streaming.query import StreamingQuery

MESSAGES = 1_000_000
BODY = b"fifteen letters"
PUSHED_AT_ONCE = 50_000
ROWS = 32_768  # of one Arrow batch, as many as the connector hands over at once
ROUNDS = 3  # the best of them counts: the machine may be busy with something else
SMALL_BATCHES = 40
PUSHED_SMALL = 200  # at once, where it matters in how many pieces a backlog lies
ASKED_FOR = 200_000  # messages of a micro-batch
LARGE_BODY = b"x" * 1024
LARGE_MESSAGES = 200_000


def run(directory: Path) -> list[Result]:
    spark = session("bench", "local[2]", {"spark.ui.enabled": "false"})
    spark.dataSource.register(MemorySource)
    try:
        with running_broker(directory / "data") as broker:
            client = nexo.connect(broker.url)
            _warm_up(spark, client, broker.url, directory)
            results = [
                *_reading(spark, client, broker.url, directory),
                _writing(spark, client, broker.url),
                _latency(spark, client, broker.url, directory),
                _large(spark, client, broker.url, directory),
                _two_queries(spark, client, broker.url, directory),
            ]
            client.close()
        results += _after_a_restart(spark, directory)
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
    query = _started(rows, checkpoint, sink, out)
    query.awaitTermination()
    worked = _worked(query)
    assert sum(each["numInputRows"] for each in worked) == MESSAGES
    return _seconds(worked)


def _started(rows: DataFrame, checkpoint: Path, sink: str, out: Path) -> StreamingQuery:
    return (
        rows.writeStream.format(sink)
        .option("path", str(out))
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )


def _worked(query: StreamingQuery) -> list[Any]:
    return [each for each in query.recentProgress if each["numInputRows"]]


def _seconds(worked: list[Any]) -> float:
    return float(sum(each["durationMs"]["triggerExecution"] for each in worked)) / 1000


def _warm_up(spark: SparkSession, client: nexo.Client, url: str, directory: Path) -> None:
    """The first query of a session compiles code and starts Python processes, for seconds: no
    figure here is about that."""
    client.queue("warm", create=True).push_batch([BODY] * PUSHED_AT_ONCE)
    rows = spark.readStream.format("nexo").options(endpoint=url, queue="warm").load()
    _started(rows, directory / "checkpoint-warm", "noop", directory / "out").awaitTermination()


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


def _large(spark: SparkSession, client: nexo.Client, url: str, directory: Path) -> Result:
    """Messages of 1 KiB: what counts is the bytes."""
    queue = client.queue("large", create=True)
    rows = spark.readStream.format("nexo").options(endpoint=url, queue="large").load()
    best = 0.0
    for number in range(ROUNDS):
        for _ in range(LARGE_MESSAGES // 10_000):
            queue.push_batch([LARGE_BODY] * 10_000)
        checkpoint = directory / f"checkpoint-large-{number}"
        query = _started(rows, checkpoint, "noop", directory / "out")
        query.awaitTermination()
        best = max(best, LARGE_MESSAGES / _seconds(_worked(query)))
    return Result("queue of 1 KiB messages to noop", best, "msg/s")


def _two_queries(spark: SparkSession, client: nexo.Client, url: str, directory: Path) -> Result:
    """At once, each on a queue of its own, from the start of the first to the end of the last."""
    names = ("left", "right")
    best = 0.0
    for number in range(ROUNDS):
        for name in names:
            queue = client.queue(name, create=True)
            for _ in range(MESSAGES // 2 // PUSHED_AT_ONCE):
                queue.push_batch([BODY] * PUSHED_AT_ONCE)
        queries = []
        began = perf_counter()
        for name in names:
            rows = spark.readStream.format("nexo").options(endpoint=url, queue=name).load()
            checkpoint = directory / f"checkpoint-{name}-{number}"
            queries.append(_started(rows, checkpoint, "noop", directory / "out"))
        for query in queries:
            query.awaitTermination()
        best = max(best, MESSAGES / (perf_counter() - began))
    return Result("two queries on two queues to noop, starts included", best, "msg/s")


def _after_a_restart(spark: SparkSession, directory: Path) -> Iterator[Result]:
    """A backlog of small pushes, drained by the broker that took it, and by one that was started
    since and has none of it in memory; in turns."""
    rates = {"kept": 0.0, "restarted": 0.0}
    smallest = MESSAGES
    for number in range(ROUNDS):
        for name in rates:
            data = directory / f"{name}-{number}"
            with running_broker(data) as broker:
                _push_small(broker.url)
                if name == "kept":
                    took = _drain_sized(spark, broker.url, data)[1]
                    rates[name] = max(rates[name], MESSAGES / took)
            if name == "restarted":
                with running_broker(data, fresh=False) as broker:
                    sizes, took = _drain_sized(spark, broker.url, data)
                rates[name] = max(rates[name], MESSAGES / took)
                smallest = min(smallest, *sizes[:-1])
            shutil.rmtree(data, ignore_errors=True)
    yield Result(f"queue of pushes of {PUSHED_SMALL} to noop", rates["kept"], "msg/s")
    bar = 0.7 * rates["kept"]
    yield Result("the same after a restart of the broker", rates["restarted"], "msg/s", bar)
    yield Result(f"its smallest micro-batch of {ASKED_FOR:,}", smallest, "messages", ASKED_FOR)


def _push_small(url: str) -> None:
    with nexo.connect(url) as client:
        queue = client.queue("backlog", create=True)
        for _ in range(MESSAGES // PUSHED_SMALL):
            queue.push_batch([BODY] * PUSHED_SMALL)


def _drain_sized(spark: SparkSession, url: str, data: Path) -> tuple[list[int], float]:
    """The sizes of the micro-batches, and the seconds that all of them took."""
    options = {"endpoint": url, "queue": "backlog", "maxMessagesPerTrigger": str(ASKED_FOR)}
    rows = spark.readStream.format("nexo").options(**options).load()
    query = _started(rows, data / "checkpoint", "noop", data / "out")
    query.awaitTermination()
    worked = _worked(query)
    sizes = [each["numInputRows"] for each in worked]
    assert sum(sizes) == MESSAGES
    return sizes, _seconds(worked)
