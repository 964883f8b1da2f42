"""The jobs that there are, and what each is given when it runs: a session, a lake, a broker.

All of it is known without Spark, so that jobs can be listed where there is none.
"""

from __future__ import annotations

import difflib
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

import nexo
from nexo.vocabulary.errors import InvalidArgument
from nexo.vocabulary.units import parse_duration

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from nexo import Client
    from nexo.pipeline.status import Teller


class Job(msgspec.Struct, frozen=True):
    name: str
    does: str
    reads: str
    writes: str


JOBS = (
    Job(
        "archive",
        "copies topics, archived queues and events into the lake",
        "topics, nexo.archive.<queue>, nexo.events",
        "LAKE/messages, LAKE/events",
    ),
    Job(
        "insights",
        "computes statistics per queue and minute from the events",
        "nexo.events, or LAKE/events with --from-lake",
        "LAKE/insights",
    ),
    Job(
        "replay",
        "pushes messages from the lake to a queue or topic again",
        "LAKE/messages",
        "a queue or a topic",
    ),
    Job(
        "redrive",
        "redrives dead letters, selected by SQL and repaired by SQL",
        "a dead-letter queue",
        "the source queues",
    ),
    Job("compact", "merges many small files into few large ones", "the lake", "the lake"),
)


def unknown_job(name: str) -> InvalidArgument:
    """What to say of a job that is not there."""
    names = [each.name for each in JOBS]
    if name.endswith(".py") or "/" in name:
        return InvalidArgument(
            f"the file {name!r:.80} does not exist", "check the path of your job"
        )
    near = difflib.get_close_matches(name, names, 1)
    hint = f"did you mean {near[0]}?" if near else f"jobs: {', '.join(names)}, or a Python file"
    return InvalidArgument(f"unknown job {name!r:.80}", hint)


def is_file(name: str) -> bool:
    """Whether this names a file of the user's rather than one of our jobs."""
    return name not in {each.name for each in JOBS} and Path(name).is_file()


class JobRun:
    """`broker` has the options of the data source that say where and who."""

    def __init__(
        self,
        spark: SparkSession,
        broker: dict[str, str],
        teller: Teller,
        *,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self.spark = spark
        self.broker = broker
        self.teller = teller
        self.should_stop = should_stop

    def now(self) -> datetime:
        return datetime.now(UTC)

    def client(self) -> Client:
        return nexo.connect(
            self.broker["endpoint"],
            token=self.broker.get("token"),
            tls_ca=self.broker.get("tlsCa"),
            timeout=parse_duration(self.broker.get("timeout", "30s")),
        )

    def stream(self, **options: Any) -> DataFrame:
        """Messages of the broker, as they come."""
        return self.spark.readStream.format("nexo").options(**self.broker, **options).load()

    def table(self, **options: Any) -> DataFrame:
        """Messages of the broker, as they are now."""
        return self.spark.read.format("nexo").options(**self.broker, **options).load()


def trigger(once: bool, every_s: float) -> dict[str, Any]:
    """All there is and then an end, or a micro-batch every so often."""
    return {"availableNow": True} if once else {"processingTime": f"{every_s} seconds"}
