"""The lake: a folder of tables that Spark, pandas, DuckDB and people can read.

    LAKE/messages/source=<topic or queue>/date=<YYYY-MM-DD>/   what was published and pushed
    LAKE/events/date=<YYYY-MM-DD>/                             the life of messages, as ranges
    LAKE/insights/<table>/<YYYY-MM-DD>.parquet                 figures by queue and minute
    LAKE/_nexo/                                                checkpoints, commits, status, locks

Only complete files ever appear in a table: they are written elsewhere and moved in (`commits`).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path
from typing import TYPE_CHECKING

from nexo.vocabulary.errors import InvalidArgument, WrongState

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

MESSAGES = (
    "id string, body binary, priority int, attempts int, created_at timestamp, "
    "attributes map<string,string>, group_id string, offset long, source string, date date"
)
EVENTS = (
    "kind string, queue string, first_seq long, count long, at timestamp, created_at timestamp, "
    "attempts int, consumer string, reason string, delivered_at timestamp, offset long, date date"
)
_COLUMNS = {"messages": MESSAGES, "events": EVENTS}
_INTERNAL = "_nexo"


class Lake:
    """`root` is a folder that the driver and all executors see under the same name."""

    def __init__(self, root: str | Path, table_format: str = "parquet") -> None:
        text = str(root).removeprefix("file://")
        if "://" in text:
            raise InvalidArgument(
                f"the lake {text!r:.80} is not a folder",
                "mount it, so that driver and executors see it under the same path",
            )
        self.root = Path(text).absolute()
        self.format = table_format

    @property
    def messages(self) -> Path:
        return self.root / "messages"

    @property
    def events(self) -> Path:
        return self.root / "events"

    @property
    def insights(self) -> Path:
        return self.root / "insights"

    def internal(self, *names: str) -> Path:
        """A place of our own, which is no table."""
        return self.root.joinpath(_INTERNAL, *names)

    def checkpoint(self, job: str, chosen: str | None) -> str:
        return chosen or str(self.internal("checkpoints", job))

    # -- Reading ------------------------------------------------------------------------------

    def read_messages(self, spark: SparkSession, files: list[str] | None = None) -> DataFrame:
        """All of them, or those in some files of the table."""
        return self._read(spark, self.messages, files)

    def read_events(self, spark: SparkSession) -> DataFrame:
        return self._read(spark, self.events)

    def _read(self, spark: SparkSession, table: Path, files: list[str] | None = None) -> DataFrame:
        self.require(table)
        reading = spark.read.format(self.format)
        if self.format == "parquet":
            # A queue may be named 2026, which is no number: types are told, not guessed.
            reading = reading.schema(_COLUMNS[table.name]).option("basePath", str(table))
        return reading.load(files or str(table))

    def require(self, table: Path) -> None:
        if not table.is_dir():
            raise InvalidArgument(
                f"there is no archive in {table}",
                "run nexo pipeline run archive first, or name another --lake",
            )

    # -- Who may change it --------------------------------------------------------------------

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Nobody else moves files in or out for the length of a `with` block."""
        with self._lock("lake") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """The files that are listed stay for the length of a `with` block."""
        with self._lock("readers") as file:
            fcntl.flock(file, fcntl.LOCK_SH)
            yield

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """None of our jobs reads for the length of a `with` block."""
        with self._lock("readers") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    @contextlib.contextmanager
    def only_one(self, job: str) -> Iterator[None]:
        """One process at a time runs this job on this lake."""
        with self._lock(job) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                holder = os.pread(file, 64, 0).decode(errors="replace").strip()
                raise WrongState(
                    f"{job} runs on {self.root} already ({holder or 'another process'})",
                    "stop that one first, or use another --lake",
                ) from None
            os.ftruncate(file, 0)
            os.pwrite(file, f"process {os.getpid()} on {os.uname().nodename}".encode(), 0)
            yield

    @contextlib.contextmanager
    def _lock(self, name: str) -> Iterator[int]:
        path = self.internal("locks", name)
        path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            yield file
        finally:
            os.close(file)  # which also ends the lock, as does the end of the process


def prepare(spark: SparkSession) -> None:
    """Settings of a session that writes tables."""
    # Others than Spark read them too: times as all of them know them.
    spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    # Without this Spark sorts what each task writes by date, for what are one or two dates.
    spark.conf.set("spark.sql.maxConcurrentOutputFileWriters", "8")


def write_atomically(path: Path, content: bytes) -> None:
    """A small file that is there whole or not at all, also after a power failure."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    fresh.write_bytes(content)
    put_in_place(fresh, path)


def put_in_place(fresh: Path, path: Path) -> None:
    """A file that was written next to another takes its place, on disk when this returns."""
    sync(fresh)
    fresh.replace(path)
    sync(path.parent)


def sync(path: Path) -> None:
    """What a file holds is on disk, or which files a folder has."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
