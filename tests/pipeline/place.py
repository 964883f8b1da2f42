"""What each test has to itself: a name on the shared broker, a lake, and jobs to run on it."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from deltalake import DeltaTable

from nexo.pipeline import archive
from nexo.pipeline.archive import Archive
from nexo.pipeline.job import JobRun
from nexo.pipeline.lake import Lake
from nexo.pipeline.status import Status, Teller

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from nexo import Client


class Place:
    def __init__(self, url: str, client: Client, name: str, directory: Path) -> None:
        self.url = url
        self.client = client
        self.name = name
        self.directory = directory
        self.lake = Lake(directory / "lake")

    def running(
        self,
        spark: SparkSession,
        job: str,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> JobRun:
        teller = Teller(job, self.lake)
        return JobRun(spark, {"endpoint": self.url}, teller, should_stop=should_stop)

    def archive(self, spark: SparkSession, **asked: Any) -> Status:
        """Everything that is there, into the lake."""
        running = self.running(spark, "archive")
        archive.run(running, self.lake, Archive(once=True, **asked))
        running.teller.tell("finished")
        return running.teller.status

    def messages(self, source: str) -> list[dict[str, Any]]:
        """What the lake has of a source, as anyone reads it who does not know Spark."""
        rows = [row for row in self._rows("messages") if row["source"] == source]
        return sorted(rows, key=lambda row: row["offset"])

    def events(self) -> list[dict[str, Any]]:
        """What the lake has of the life of this test's queues."""
        rows = [row for row in self._rows("events") if row["queue"].startswith(self.name)]
        return sorted(rows, key=lambda row: row["offset"])

    def insights(self, table: str) -> list[dict[str, Any]]:
        rows = self._rows("insights", table)
        rows = [row for row in rows if row["queue"].startswith(self.name)]
        return sorted(rows, key=lambda row: [str(value) for value in row.values()])

    def _rows(self, *table: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.table(*table).to_pyarrow_table().to_pylist()
        return rows

    def table(self, *names: str) -> DeltaTable:
        """A table of the lake, as anyone opens it."""
        return DeltaTable(self.lake.table(*names), storage_options=self.lake.options)


def some_bodies(count: int, seed: int = 1) -> list[bytes]:
    """Bodies of all sorts: empty, not UTF-8, short and long."""
    random = Random(seed)
    return [random.randbytes(random.choice([0, 1, 15, 400])) for _ in range(count)]
