"""archive: topics, archived queues and the events of a broker, kept in the lake.

One query follows all of them. The tasks of a micro-batch read their slices of the topics and write
Parquet files (`slices`, `files`), and the driver makes them part of the tables `messages` and
`events` (`commits`), each in one transaction that also says up to which offset the table goes. The
next run begins there. So nothing hangs on Spark's checkpoint, which is new at each run: killed at
any moment and run again, nothing is lost or doubled. Bodies are kept as they are.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
import threading
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from nexo.pipeline.commits import Commits
from nexo.pipeline.compact import Housekeeping
from nexo.pipeline.delta import EVENTS_TABLE, MESSAGES_TABLE, check_lake, make_folder
from nexo.pipeline.files import source_of
from nexo.pipeline.job import trigger
from nexo.pipeline.slices import above, slice_stream, slices_of, written
from nexo.pipeline.status import is_running
from nexo.pipeline.watch import Watch, lags
from nexo.vocabulary.errors import InvalidArgument, OffsetExpired, TopicNotFound
from nexo.vocabulary.names import EVENTS_TOPIC, RESERVED_PREFIX, archive_name, is_events

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from nexo.client.blocking.client import Client
    from nexo.pipeline.delta import Kind
    from nexo.pipeline.files import Added
    from nexo.pipeline.job import JobRun
    from nexo.pipeline.lake import Lake

BATCH_MESSAGES = 1_000_000
# A micro-batch waits for the next tick however early it ended, so its size bounds the speed: this
# is more than a source can bring.
MESSAGES_PER_SECOND = 500_000
EVERY_S = 10.0
TRIES_MAX = 5  # of one micro-batch, while another archive brings the same messages
_QUERY = "sql.streaming.queryId"


class Archive(msgspec.Struct, frozen=True):
    topics: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    topic_patterns: tuple[str, ...] = ()
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


def run(job: JobRun, lake: Lake, asked: Archive) -> None:
    check_lake(lake)
    topics = chosen(job, asked)
    archiving = Archiving(job, lake, asked, topics)
    watch = Watch(job.spark, job.teller, archiving.told)
    try:
        watch.run({"archive": archiving.start}, job.should_stop)
    finally:
        archiving.close()


def chosen(job: JobRun, asked: Archive) -> dict[str, int]:
    """The topics that are there now and where each ends. What is not there or not archived is
    said before anything starts."""
    both = sorted(set(asked.topics) & set(asked.queues))
    topics: dict[str, int] = {}
    with job.client() as client:
        for name in asked.queues:
            if not client.queue(name).info().settings.archive:
                raise InvalidArgument(
                    f"queue {name!r} has no archive",
                    f"switch it on with nexo queue edit {name} --archive",
                )
        for name in dict.fromkeys([*asked.topics, *map(archive_name, asked.queues)]):
            topics[name] = client.topic(name).info().end
        topics.update(_events_ends(client))
        if asked.topic_patterns:
            wanted = re.compile(pattern(asked.topic_patterns))
            for info in client.topics():
                if wanted.fullmatch(info.name):
                    topics[info.name] = info.end
                    both += [info.name] if info.name in asked.queues else []
    if both:
        raise InvalidArgument(
            f"{', '.join(both)} is given as a topic and as a queue",
            "names must be unique in a lake: archive one of them into another lake",
        )
    return topics


def _events_ends(client: Client) -> dict[str, int]:
    """That of a broker, or in a cluster that of each shard which has a queue."""
    try:
        return {EVENTS_TOPIC: client.topic(EVENTS_TOPIC).info().end}
    except TopicNotFound:
        return {info.name: info.end for info in client.topics() if is_events(info.name)}


def pattern(patterns: tuple[str, ...]) -> str:
    """What a topic's name must match. Those of the broker itself are named one by one."""
    for each in patterns:
        try:
            re.compile(each)
        except re.error as error:
            raise InvalidArgument(
                f"--topic-pattern {each!r:.80} is not a valid regular expression: {error}",
                "it must match the whole topic name, as in 'shop\\..*'",
            ) from None
    return f"(?!{re.escape(RESERVED_PREFIX)})(?:{'|'.join(f'(?:{each})' for each in patterns)})"


class Archiving:
    """One run: where each source stands, and what becomes of a micro-batch."""

    def __init__(self, job: JobRun, lake: Lake, asked: Archive, topics: dict[str, int]) -> None:
        self._job = job
        self._lake = lake
        self._asked = asked
        self._commits = {kind.name: Commits(lake, kind) for kind in (MESSAGES_TABLE, EVENTS_TABLE)}
        self._ends: dict[str, int] = {}  # of each source, as this run knows it
        self._topics = topics
        self._rows: dict[str, int] = {}  # of each source, since it was last told
        self._lock = threading.Lock()  # Spark asks for them from a thread of its own
        self._checkpoints: list[Path] = []
        self._housekeeping = None if asked.once else Housekeeping(lake, tuple(self._commits))

    def start(self) -> StreamingQuery:
        asked = self._asked
        slices = slice_stream(
            self._job.spark,
            {
                **self._options(),
                "startingOffsets": json.dumps(self._start_offsets()),
                "maxMessagesPerTrigger": str(asked.messages_max),
            },
        )
        name = f"archive {uuid.uuid4().hex[:8]}"
        writing = slices.writeStream.queryName(name).foreachBatch(self.keep)
        writing = writing.option("checkpointLocation", self._checkpoint())
        return writing.trigger(**trigger(asked.once, asked.every_s)).start()

    def keep(self, batch: DataFrame, number: int) -> None:
        """What a micro-batch brings becomes part of the tables."""
        spark = batch.sparkSession
        query = spark.sparkContext.getLocalProperty(_QUERY) or ""
        slices = slices_of(batch)
        left = set(self._commits)  # the tables that do not have their part yet
        floors: dict[str, int] = {}
        anew: set[str] = set()
        for _ in range(TRIES_MAX):
            wanted = [each for each in slices if _table(each.topic).name in left]
            added = written(spark, self._lake, self._options(), above(wanted, floors))
            for name in sorted(left):
                files = [each for each in added if each.table == name]
                behind = self._commits[name].commit(files, query, number, anew)
                if behind:
                    self._look_again(name, behind, floors, anew)
                else:
                    left.remove(name)
                    self._count(files)
            if not left:
                break
        else:
            raise OffsetExpired(
                "another archive job keeps writing the same messages",
                "run only one archive job per source at a time",
            )
        if self._housekeeping is not None:
            self._housekeeping.look()

    def told(self, progress: Any) -> dict[str, tuple[int, int | None]]:
        """What came of each source since the last time."""
        with self._lock:
            rows, self._rows = self._rows, {}
        told: dict[str, tuple[int, int | None]] = {}
        behind = {source_of(topic): lag for topic, lag in lags(progress).items()}
        for source in rows.keys() | behind:
            name = EVENTS_TOPIC if is_events(source) else source  # of all shards together
            came, left = told.get(name, (0, 0))
            told[name] = (came + rows.get(source, 0), (left or 0) + behind.get(source, 0))
        return told

    def close(self) -> None:
        if self._housekeeping is not None:
            self._housekeeping.close()
        for folder in self._checkpoints:
            shutil.rmtree(folder, ignore_errors=True)

    def _options(self) -> dict[str, str]:
        """Those of the data source: which broker, and what of it."""
        strict = str(self._asked.fail_on_data_loss).lower()
        return {**self._job.broker, **self._wanted(), "failOnDataLoss": strict}

    def _wanted(self) -> dict[str, str]:
        asked = self._asked
        named = [*asked.topics, *(archive_name(name) for name in asked.queues), EVENTS_TOPIC]
        if not asked.topic_patterns:
            return {"topic": ",".join(dict.fromkeys(named))}
        # A topic that comes later and has the name of a queue would be the same source.
        not_those = "".join(f"(?!{re.escape(name)}$)" for name in asked.queues)
        exactly = "|".join([*map(re.escape, named), rf"{re.escape(EVENTS_TOPIC)}\.\d+"])
        return {"topicPattern": f"{not_those}{pattern(asked.topic_patterns)}|{exactly}"}

    def _start_offsets(self) -> dict[str, int]:
        """Where the tables end; what they do not have is read from its beginning."""
        offsets = {"*": -2}
        for topic, end in self._topics.items():
            source, commits = source_of(topic), self._commits[_table(topic).name]
            commits.refresh()
            kept = commits.next_offset(source)
            if kept is not None and kept > end and not self._asked.fail_on_data_loss:
                commits.set_next_offset(source, 0)  # the topic was made anew since
                kept = None
            if kept:
                offsets[topic] = kept
            self._ends[source] = kept or 0
        return offsets

    def _look_again(
        self, table: str, behind: set[str], floors: dict[str, int], anew: set[str]
    ) -> None:
        """The table has messages of these sources at the offsets of this batch, or beyond. If
        nobody else has brought them, the topic was made anew, and these are others."""
        for source in behind:
            known = self._commits[table].next_offset(source) or 0
            ours = self._ends.get(source)
            is_another = ours == known or (ours is None and self._end(source) < known)
            if is_another and self._asked.fail_on_data_loss:
                raise OffsetExpired(
                    f"{source} was recreated since the lake read it up to {known}",
                    "add --allow-data-loss to archive the new topic too",
                )
            if is_another:
                anew.add(source)
            else:
                floors[source] = known

    def _end(self, source: str) -> int:
        """Where the topic of a source ends now."""
        archived = archive_name(source)
        name = archived if archived in self._topics else source
        with self._job.client() as client:
            return client.topic(name).info().end

    def _count(self, files: list[Added]) -> None:
        with self._lock:
            for each in files:
                self._rows[each.source] = self._rows.get(each.source, 0) + each.rows
        for source in {each.source for each in files}:
            last = max(each.last for each in files if each.source == source)
            self._ends[source] = last + 1

    def _checkpoint(self) -> str:
        """A new folder for each start: the tables say where to go on. Those of runs on this
        machine that were killed are removed."""
        lake, chosen = self._lake, self._asked.checkpoint
        host = os.uname().nodename
        name = f"run-{host}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        if chosen is not None and "://" in chosen:  # whatever Spark knows
            return f"{chosen}/{name}"
        if chosen is None and lake.folder is None:
            place = Path(tempfile.gettempdir(), "nexo-archive")
        else:
            place = Path(lake.checkpoint("archive", chosen))
        for old in place.glob(f"run-{host}-*"):
            process = old.name.removeprefix(f"run-{host}-").partition("-")[0]
            if process.isdigit() and not is_running(int(process)):
                shutil.rmtree(old, ignore_errors=True)
        self._checkpoints.append(place / name)
        return make_folder(str(place / name))


def _table(topic: str) -> Kind:
    return EVENTS_TABLE if is_events(topic) else MESSAGES_TABLE
