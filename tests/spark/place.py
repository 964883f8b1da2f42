"""What each test has to itself: names on the shared broker, and a folder."""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from typing import TYPE_CHECKING, Any

from nexo.spark.options import read_options
from nexo.spark.queue_stream import QueueStreamReader

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    import nexo
    from nexo import Client, Queue

# For a query to do its work: the first one of a session takes 40 s on a machine that is busy. The
# time limit of pytest watches for those that hang.
PATIENCE_S = 150


class Place:
    def __init__(self, url: str, client: Client, name: str, directory: Path) -> None:
        self.url = url
        self.client = client
        self.name = name
        self.directory = directory

    @cached_property
    def queue(self) -> Queue:
        return self.client.create_queue(self.name)

    def options(self, **more: Any) -> dict[str, str]:
        return {"endpoint": self.url, **{key: str(value) for key, value in more.items()}}

    def stream(self, spark: SparkSession, **options: Any) -> DataFrame:
        """The queue as a stream."""
        asked = self.options(queue=self.queue.name, **options)
        return spark.readStream.format("nexo").options(**asked).load()

    def table(self, spark: SparkSession, **options: Any) -> DataFrame:
        """A batch read, of the queue unless something else is named."""
        named = options if {"topic", "topicPattern"} & options.keys() else {"queue": self.name}
        return spark.read.format("nexo").options(**self.options(**{**named, **options})).load()

    def start(self, rows: DataFrame, where: str = "", **trigger: Any) -> StreamingQuery:
        """Into Parquet, with a checkpoint; all that is there unless a trigger is given."""
        writing = rows.selectExpr("*", "cast(body as string) text").writeStream.format("parquet")
        writing = writing.option("path", str(self.directory / f"out{where}"))
        writing = writing.option("checkpointLocation", str(self.directory / f"checkpoint{where}"))
        return writing.trigger(**(trigger or {"availableNow": True})).start()

    def drain(self, rows: DataFrame, where: str = "") -> StreamingQuery:
        running = self.start(rows, where)
        assert running.awaitTermination(PATIENCE_S), "it does not end"
        return running

    def written(self, spark: SparkSession, where: str = "") -> Counter[str]:
        """The texts in the sink, and how often each is there."""
        rows = spark.read.parquet(str(self.directory / f"out{where}")).select("text").collect()
        return Counter(row.text for row in rows)

    def reader(self, **options: Any) -> QueueStreamReader:
        """A driver's reader without Spark around it."""
        return QueueStreamReader(read_options(self.options(queue=self.queue.name, **options)))

    def assert_empty(self, acked: int) -> None:
        """Nothing is in the queue, nothing is held, and so many were acked."""
        info: nexo.QueueInfo = self.queue.info()
        assert (info.depth, info.in_flight, info.acked) == (0, 0, acked), info
        assert not any(info.claimed.values()), info
