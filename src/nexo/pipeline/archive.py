"""archive: topics, archived queues and the events of a broker, kept in the lake.

Each source is a stream of its own with a checkpoint of its own, so sources can be added and left
out between runs. A micro-batch becomes part of the table in one commit (`commits`): killed at any
moment and run again, nothing is lost or doubled. Bodies are kept as they are.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from pyspark.sql import functions as f

from nexo.pipeline.commits import Commits
from nexo.pipeline.formats import require_format, start_table_stream
from nexo.pipeline.job import trigger
from nexo.pipeline.lake import prepare
from nexo.pipeline.watch import Watch
from nexo.vocabulary.errors import InvalidArgument
from nexo.vocabulary.names import EVENTS_TOPIC, archive_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from nexo.pipeline.job import JobRun
    from nexo.pipeline.lake import Lake

BATCH_MESSAGES = 1_000_000
# A micro-batch waits for the next tick however early it ended, so its size bounds the speed: this
# is more than a source can bring.
MESSAGES_PER_SECOND = 500_000
EVERY_S = 10.0
_QUERY = "sql.streaming.queryId"
_EVENT = (
    "kind string, queue string, first_seq long, count long, at_ms long, created_ms long, "
    "attempts int, consumer string, reason string, delivered_ms long"
)


class Archive(msgspec.Struct, frozen=True):
    topics: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    once: bool = False
    every_s: float = EVERY_S
    batch_messages: int | None = None  # by default as many as may come in the time of one
    fail_on_data_loss: bool = True
    checkpoint: str | None = None

    @property
    def messages_max(self) -> int:
        """Of a micro-batch. With `once` the next one follows at once."""
        per_tick = 0 if self.once else int(self.every_s * MESSAGES_PER_SECOND)
        return self.batch_messages or max(BATCH_MESSAGES, per_tick)


class Source(msgspec.Struct, frozen=True):
    """A topic and the name under which the lake has its messages."""

    topic: str
    name: str

    @property
    def folder(self) -> str:
        """Its name as a folder: a queue of another SQS account has slashes in it."""
        return self.topic.replace("/", "%2F")

    @property
    def is_events(self) -> bool:
        return self.topic == EVENTS_TOPIC


def run(job: JobRun, lake: Lake, asked: Archive) -> None:
    require_format(job.spark, lake.format)
    sources = chosen(job, asked)
    prepare(job.spark)
    with lake.only_one("archive"):
        watch = Watch(job.spark, job.teller)
        starts = {each.name: partial(_start, job, lake, asked, each) for each in sources}
        watch.run(starts, job.should_stop)


def chosen(job: JobRun, asked: Archive) -> list[Source]:
    """The sources, checked: what is not there or not archived is said before anything starts."""
    both = set(asked.topics) & set(asked.queues)
    if both:
        raise InvalidArgument(
            f"{', '.join(sorted(both))} is named as a topic and as a queue",
            "one lake has one source of a name: archive the other into a lake of its own",
        )
    with job.client() as client:
        for name in asked.topics:
            client.topic(name).info()
        for name in asked.queues:
            if not client.queue(name).info().settings.archive:
                raise InvalidArgument(
                    f"queue {name!r} keeps no archive", f"nexo queue edit {name} --archive"
                )
    sources = [Source(name, name) for name in asked.topics if name != EVENTS_TOPIC]
    sources += [Source(archive_name(name), name) for name in asked.queues]
    return [*dict.fromkeys(sources), Source(EVENTS_TOPIC, EVENTS_TOPIC)]


def event_rows(messages: DataFrame) -> DataFrame:
    """Messages of `nexo.events` as the columns of the lake."""
    event = f.from_json(f.col("body").cast("string"), _EVENT)
    return (
        messages.select(event.alias("event"), "offset")
        .select("event.*", "offset")
        .select(
            *("kind", "queue", "first_seq", "count"),
            f.timestamp_millis("at_ms").alias("at"),
            f.timestamp_millis("created_ms").alias("created_at"),
            *("attempts", "consumer", "reason"),
            f.timestamp_millis(f.nullif("delivered_ms", f.lit(0))).alias("delivered_at"),
            "offset",
        )
    )


def _start(job: JobRun, lake: Lake, asked: Archive, source: Source) -> StreamingQuery:
    table = lake.events if source.is_events else lake.messages / _partition(source)
    commits = Commits(lake, f"archive-{source.folder}", table)
    commits.recover()
    if not asked.fail_on_data_loss and _is_another(job, source, commits):
        commits.begin_anew()
    checkpoint = str(Path(lake.checkpoint("archive", asked.checkpoint), source.folder))
    messages = job.stream(
        topic=source.topic,
        startingOffsets=_start_offsets(source, commits),
        maxMessagesPerTrigger=asked.messages_max,
        failOnDataLoss=str(asked.fail_on_data_loss).lower(),
    )
    rows = event_rows(messages) if source.is_events else messages.drop("source")
    when = "at" if source.is_events else "created_at"
    rows = rows.withColumn("date", f.to_date(when))
    if lake.format != "parquet":
        return start_table_stream(
            rows if source.is_events else rows.withColumn("source", f.lit(source.name)),
            lake.events if source.is_events else lake.messages,
            lake.format,
            ["date"] if source.is_events else ["source", "date"],
            checkpoint,
            source.name,
            trigger(asked.once, asked.every_s),
        )

    def keep(batch: DataFrame, number: int) -> None:
        query = batch.sparkSession.sparkContext.getLocalProperty(_QUERY) or source.topic
        if not commits.holds(query, number):
            batch = batch.where(f.col("offset") >= commits.floor(query, number))
            batch.write.partitionBy("date").parquet(str(commits.stage(number)))
            commits.commit(query, number)

    writing = rows.writeStream.queryName(source.name).foreachBatch(keep)
    writing = writing.option("checkpointLocation", checkpoint)
    return writing.trigger(**trigger(asked.once, asked.every_s)).start()


def _is_another(job: JobRun, source: Source, commits: Commits) -> bool:
    """Whether the topic was made anew since: it ends before what the lake has of it."""
    last = commits.last()
    with job.client() as client:
        return last is not None and client.topic(source.topic).info().end < last.next_offset


def _partition(source: Source) -> str:
    return "source=" + source.name.replace("/", "%2F")


def _start_offsets(source: Source, commits: Commits) -> str:
    """Where a stream without a checkpoint begins: a lake that outlived it has the first part."""
    last = commits.last()
    return "earliest" if last is None else json.dumps({source.topic: last.next_offset})
