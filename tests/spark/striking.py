"""A data source that is `nexo` in everything, but strikes at some points of a query: it kills a
process with -9 there, once each. What is to be struck stands in the environment of the driver,
which all of Spark's Python processes inherit."""

from __future__ import annotations

import os
import signal
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from nexo.spark.queue_stream import QueueStreamReader
from nexo.spark.source import NexoDataSource

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql.datasource import InputPartition

VARIABLE = "NEXO_TEST_STRIKE"


class Point(StrEnum):
    CLAIMED = "claimed"  # before Spark has written its offsets log
    LOGGED = "logged"  # after that, before the batch is sealed
    SEALED = "sealed"
    READING = "reading"  # some rows are with Spark
    WRITTEN = "written"  # the sink has committed, and the commits log cannot be written
    COMMITTED = "committed"  # after the commits log, before the ack
    ACKED = "acked"


class Strike(msgspec.Struct, frozen=True):
    point: Point
    batch: int  # at the first batch from this one on
    group: int = 0  # the process group to kill
    process: int = 0  # or the process
    worker: bool = False  # or the very process that reads
    machine: bool = False  # or all that would be lost with its machine: worker and executor too
    checkpoint: str = ""
    marker: str = ""  # a file that says that it has struck

    def land(self) -> None:
        marker = Path(self.marker)
        try:
            marker.open("x").close()
        except FileExistsError:
            return  # another task was first
        if self.point is Point.WRITTEN:
            commits = Path(self.checkpoint) / "commits"
            commits.rename(commits.with_name("commits-kept"))
            commits.touch()  # a file in the way of the folder: the commits log cannot be written
        elif self.worker:
            os.kill(os.getpid(), signal.SIGKILL)
        elif self.machine:
            for process in reversed(_java_ancestors(os.getpid())):  # the worker first
                os.kill(process, signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)
        elif self.process:
            os.kill(self.process, signal.SIGKILL)
        else:
            os.killpg(self.group, signal.SIGKILL)


def _java_ancestors(process: int) -> list[int]:
    """The executor that a Python process belongs to, and the worker that has started it."""
    found: list[int] = []
    while process > 1 and len(found) < 2:
        name, fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)
        if name.endswith("(java"):
            found.append(process)
        process = int(fields.split()[1])
    return found


def strikes_of_environment() -> list[Strike]:
    return msgspec.json.decode(os.environ.get(VARIABLE) or "[]", type=list[Strike])


class StrikingReader(QueueStreamReader):
    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:  # noqa: N802
        self._strike(Point.COMMITTED, start["batch"])
        latest = super().latestOffset(start, limit)
        self._strike(Point.ACKED, start["batch"])
        if latest != start:
            self._strike(Point.CLAIMED, latest["batch"])
        return latest

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        self._strike(Point.LOGGED, end["batch"])
        planned = super().partitions(start, end)
        self._strike(Point.SEALED, end["batch"])
        return planned

    def read(self, partition: Any) -> Iterator[Any]:
        for rows in super().read(partition):
            yield rows.slice(0, rows.num_rows // 2)
            self._strike(Point.READING, partition.number)
            self._strike(Point.WRITTEN, partition.number)
            yield rows.slice(rows.num_rows // 2)

    def _strike(self, point: Point, batch: int) -> None:
        for strike in strikes_of_environment():
            if strike.point is point and batch >= strike.batch:
                strike.land()


class StrikingSource(NexoDataSource):
    @classmethod
    def name(cls) -> str:
        return "nexo-striking"

    def streamReader(self, schema: Any) -> StrikingReader:  # noqa: N802
        return StrikingReader(self._asked)
