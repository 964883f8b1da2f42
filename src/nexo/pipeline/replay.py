"""replay: what the lake holds is pushed once more, to a queue or a topic.

A replay has a name and a plan, which is kept in the lake when it first runs: from when to when, up
to which offset, and in waves of how many offsets. A wave is a push with a number of its own, which
the broker takes once; the plan says which waves are done. So killed and run again it goes on, and
run once more after its end it adds nothing. Messages keep their order.

A task pushes the waves of its rows. The whole replay is one producer to the broker, however many
waves it has: the broker remembers only so many. Where a wave begins and ends follows from the
offsets, and where it is too large for one push, from its rows. So run again it is cut as before,
and what the broker has it does not take. One push is under way at a time: a queue that is full for
a while changes no order.
"""

from __future__ import annotations

import hashlib
import time
from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
from pyspark.sql import functions as f

from nexo.pipeline.delta import MESSAGES_TABLE, check_not_old, open_table, store_errors
from nexo.pipeline.failures import checked_sql
from nexo.pipeline.parts import Bounds, columns_of, parts_of, rows_of
from nexo.spark.link import TIMEOUT_S, link_to, numbered_publish, numbered_push
from nexo.spark.options import read_options
from nexo.spark.writer import batch_of_rows, check_fits, runs
from nexo.vocabulary.errors import InvalidArgument, QueueFull, RateLimited, ReadOnly
from nexo.vocabulary.names import check_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark.sql import DataFrame

    from nexo.pipeline.job import JobRun
    from nexo.pipeline.lake import Lake
    from nexo.pipeline.parts import Part
    from nexo.spark.options import Options

WAVE_MESSAGES = 10_000  # of one push: with attributes the broker takes no more
JOB_MESSAGES = 500_000  # that one Spark job sends …
JOB_S = 10.0  # … and how long it may take at a rate: so long a stop has to wait
_SLICE_S = 0.1
_COLUMNS = ("offset", "body", "attributes")
_QUEUE_COLUMNS = ("priority", "group_id")

SENT = "sent long"
_NUMBER_BITS = 24  # pushes of one wave; its number stands above them
_PAUSE_S = 0.2
_WAS_LARGER = (
    "it was larger when this replay began: set it to that again, or replay what is left under "
    "another --replay-id, with --from"
)


class Replay(msgspec.Struct, frozen=True):
    """`since_ago` and `until_ago` are how the times were said, if that was how long ago: the same
    words mean another moment at each run."""

    source: str
    to_queue: str | None = None
    to_topic: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    where: str | None = None
    rate: float | None = None
    replay_id: str | None = None
    dry_run: bool = False
    since_ago: str | None = None
    until_ago: str | None = None
    version: int | None = None  # of the table …
    as_of: datetime | None = None  # … or the one of this time

    @property
    def what(self) -> str:
        """What is replayed and where to: the same for the same replay."""
        since, until = self.since_ago or self.since, self.until_ago or self.until
        asked: tuple[object, ...] = (
            *(self.source, self.to_queue, self.to_topic, since, until, self.where),
        )
        if self.version is not None or self.as_of is not None:
            asked = (*asked, self.version, self.as_of)
        return hashlib.sha256(msgspec.json.encode(asked)).hexdigest()

    @property
    def name(self) -> str:
        return self.replay_id or f"replay-{self.what[:16]}"

    def check(self) -> None:
        if (self.to_queue is None) == (self.to_topic is None):
            raise InvalidArgument(
                "no target, or two targets, given", "give either --to-queue or --to-topic"
            )
        if self.since is not None and self.until is not None and self.since >= self.until:
            raise InvalidArgument("--from must be before --until", "swap them")
        if self.version is not None and self.as_of is not None:
            raise InvalidArgument("--version and --as-of cannot be combined", "use one of them")
        ago = self.since_ago or self.until_ago
        if ago is not None and self.replay_id is None and not self.dry_run:
            raise InvalidArgument(
                f"{ago} ago means another time at each run, but a replay runs once",
                "name it with --replay-id, or write a time such as 2026-05-31T14:30",
            )
        check_name(self.name, "replay")


class Plan(msgspec.Struct):
    what: str
    end_offset: int
    wave_messages: int
    waves_done: int = -1  # the number of the last wave that is with the broker
    added: int = 0
    finished_at: datetime | None = None
    since: datetime | None = None  # as they were at the first run
    until: datetime | None = None


class Found:
    """The messages of a replay in the lake, all of them or those of some offsets."""

    def __init__(self, job: JobRun, lake: Lake, asked: Replay) -> None:
        self._spark = job.spark
        self._lake = lake
        self._asked = asked
        version = asked.version if asked.version is not None else asked.as_of
        everything = parts_of(open_table(lake, MESSAGES_TABLE, version), MESSAGES_TABLE)
        _check_source(everything, asked)
        self._times = Bounds(asked.since, asked.until)
        self._parts = [
            part
            for part in everything
            if part.partition["source"] == asked.source
            and _is_of_days(part.partition["date"] or "", asked)
            and self._times.may_be_in(part, "created_at")
        ]
        if asked.where is not None:
            columns = job.spark.createDataFrame([], columns_of(MESSAGES_TABLE))
            checked_sql("--where", asked.where, lambda sql: _texted(columns).where(sql).schema)

    def all(self, end_offset: int | None = None) -> DataFrame:
        return self._read(self._parts, Bounds(end=end_offset))

    def between(self, first: int, end: int) -> DataFrame:
        return self._read(self.holding(first, end), Bounds(first, end))

    def holding(self, first: int, end: int) -> list[Part]:
        """Only files that hold some of these are opened: the next wave must not cost the more, the
        more there is in the lake."""
        return [part for part in self._parts if Bounds(first, end).may_be_in(part, "offset")]

    def end(self) -> int:
        """Behind the last offset that there may be."""
        if all("offset" in part.highest for part in self._parts):
            return max((part.highest["offset"] + 1 for part in self._parts), default=0)
        last = self.all().agg(f.max("offset")).first()  # files of others may not say
        return (last[0] + 1) if last is not None and last[0] is not None else 0

    def _read(self, parts: list[Part], offsets: Bounds) -> DataFrame:
        bounds = {"offset": offsets, "created_at": self._times}
        rows = _texted(rows_of(self._spark, self._lake, MESSAGES_TABLE, parts, bounds))
        return rows if self._asked.where is None else rows.where(self._asked.where)


def _texted(rows: DataFrame) -> DataFrame:
    return rows.withColumn("text", f.col("body").cast("string"))


def _is_of_days(day: str, asked: Replay) -> bool:
    first = f"{asked.since:%Y-%m-%d}" if asked.since is not None else ""
    last = f"{asked.until:%Y-%m-%d}" if asked.until is not None else "~"
    return first <= day <= last


def run(job: JobRun, lake: Lake, asked: Replay) -> dict[str, int]:
    """How many messages match, and how many of them were added now."""
    asked.check()
    check_not_old(lake)
    depth_max = _check_target(job, asked)
    plan = _kept_plan(lake, asked)
    if plan is not None:
        since = plan.since if asked.since_ago else asked.since
        until = plan.until if asked.until_ago else asked.until
        asked = msgspec.structs.replace(asked, since=since, until=until)
    found = Found(job, lake, asked)
    if asked.dry_run:
        return {"matched": found.all().count(), "added": 0}
    if plan is None:
        plan = _new_plan(asked, found, depth_max)
        _keep_plan(lake, asked, plan)
    waves = _counted(found, plan)
    left = [wave for wave in waves if wave.number > plan.waves_done]
    added = _send(job, lake, asked, found, plan, left)
    return {"matched": sum(wave.messages for wave in waves), "added": added}


class Wave(NamedTuple):
    number: int
    messages: int


def jobs(waves: Iterable[Wave], messages_max: int) -> Iterator[list[Wave]]:
    """Waves one after the other, as many together as one job may send: a condition that few
    messages meet must not cost a job for each wave of a few."""
    together: list[Wave] = []
    messages = 0
    for wave in waves:
        if together and messages + wave.messages > messages_max:
            yield together
            together, messages = [], 0
        together.append(wave)
        messages += wave.messages
    if together:
        yield together


def _check_target(job: JobRun, asked: Replay) -> int | None:
    """How many messages the target holds at most, if it says so."""
    with job.client() as client:
        if asked.to_queue is not None:
            return client.queue(asked.to_queue).info().settings.max_depth
        if asked.to_topic is not None:
            client.topic(asked.to_topic).info()
    return None


def _check_source(parts: list[Part], asked: Replay) -> None:
    there = sorted({part.partition["source"] or "" for part in parts})
    if asked.source not in there:
        raise InvalidArgument(
            f"the lake has no source {asked.source!r:.80}", f"it has {', '.join(there) or 'none'}"
        )


def _kept_plan(lake: Lake, asked: Replay) -> Plan | None:
    """The plan of a replay that ran before."""
    with store_errors(lake.uri):
        content = lake.read("replays", f"{asked.name}.json")
    if content is None:
        return None
    plan = msgspec.json.decode(content, type=Plan)
    if plan.what != asked.what:
        raise InvalidArgument(
            f"replay {asked.name} was run before with other messages or another target",
            "use another --replay-id",
        )
    return plan


def _keep_plan(lake: Lake, asked: Replay, plan: Plan) -> None:
    with store_errors(lake.uri):
        lake.write(msgspec.json.encode(plan), "replays", f"{asked.name}.json")


def _new_plan(asked: Replay, found: Found, depth_max: int | None) -> Plan:
    """A wave is one push: a larger one than fits an empty queue would never be taken."""
    wave = min(WAVE_MESSAGES, depth_max or WAVE_MESSAGES)
    if asked.rate is not None:
        wave = max(1, min(wave, int(asked.rate)))
    return Plan(asked.what, found.end(), wave, since=asked.since, until=asked.until)


def _counted(found: Found, plan: Plan) -> list[Wave]:
    """The waves that have messages, and how many."""
    wave = f.floor(f.col("offset") / plan.wave_messages).alias("wave")
    counts = found.all(plan.end_offset).groupBy(wave).count().orderBy("wave").toArrow()
    columns = (counts[name].to_pylist() for name in ("wave", "count"))
    return [Wave(*each) for each in zip(*columns, strict=True)]


def _send(
    job: JobRun, lake: Lake, asked: Replay, found: Found, plan: Plan, waves: list[Wave]
) -> int:
    target = {"queue": asked.to_queue} if asked.to_queue else {"topic": asked.to_topic}
    named = {name: value for name, value in target.items() if value is not None}
    options = read_options({**job.broker, **named})
    columns = [*_COLUMNS, *(_QUEUE_COLUMNS if asked.to_queue else ())]
    send = sender(options, asked.name, plan.wave_messages, asked.rate)
    most = JOB_MESSAGES if asked.rate is None else min(JOB_MESSAGES, asked.rate * JOB_S)
    began, added, total = time.monotonic(), 0, sum(wave.messages for wave in waves)
    for together in jobs(waves, max(1, int(most))):
        if job.should_stop():
            return added
        end = min(plan.end_offset, (together[-1].number + 1) * plan.wave_messages)
        rows = found.between(together[0].number * plan.wave_messages, end).select(*columns)
        in_order = rows.repartition(1).sortWithinPartitions("offset")
        sent = sum(row["sent"] for row in in_order.mapInArrow(send, SENT).collect())
        added += sent
        plan.waves_done, plan.added = together[-1].number, plan.added + sent
        _keep_plan(lake, asked, plan)
        job.teller.add(asked.source, sent, total - added)
        if asked.rate is not None:
            _wait(job, began + added / asked.rate)
    plan.finished_at = plan.finished_at or job.now()
    _keep_plan(lake, asked, plan)
    return added


def _wait(job: JobRun, until: float) -> None:
    while (left := until - time.monotonic()) > 0 and not job.should_stop():
        time.sleep(min(left, _SLICE_S))


def sender(
    options: Options, producer: str, wave_messages: int, rate: float | None
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What runs on an executor, on rows in the order of their offsets; yields how many it sent."""

    def send(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        began, sent = time.monotonic(), 0
        for wave, rows in waves_of(batches, wave_messages):
            if rate is not None:
                time.sleep(max(0.0, began + sent / rate - time.monotonic()))
            for index, run in enumerate(runs(iter(rows.to_batches()))):
                _push(options, producer, (wave << _NUMBER_BITS) + index + 1, run)
            sent += rows.num_rows
        yield pa.RecordBatch.from_arrays([pa.array([sent], pa.int64())], ["sent"])

    return send


def waves_of(
    batches: Iterable[pa.RecordBatch], wave_messages: int
) -> Iterator[tuple[int, pa.Table]]:
    """The rows of each wave, whatever batches they came in."""
    number = -1
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        waves = batch.column("offset").to_numpy() // wave_messages
        starts = [0, *(np.flatnonzero(np.diff(waves)) + 1).tolist(), len(waves)]
        for low, high in pairwise(starts):
            if low == high:
                continue
            if waiting and int(waves[low]) != number:
                yield number, pa.Table.from_batches(waiting)
                waiting = []
            number = int(waves[low])
            waiting.append(batch.slice(low, high - low))
    if waiting:
        yield number, pa.Table.from_batches(waiting)


def _push(options: Options, producer: str, number: int, rows: pa.Table) -> None:
    """On disk when it returns."""
    name = options.queue or options.topics[0]
    brought = _brought(options, name, producer, number, rows)
    if brought is not None and brought != rows.num_rows:
        raise InvalidArgument(
            f"{rows.num_rows} messages for {name!r} were sent before as {brought}: the lake has "
            "changed since",
            "replay what is left under another --replay-id, with --from",
        )


def _brought(options: Options, name: str, producer: str, number: int, rows: pa.Table) -> int | None:
    """How many messages the push had, now or when it was taken before. A queue that is full or
    cannot write is waited for, as long as for a broker that is away."""
    link, until = link_to(options), time.monotonic() + (options.timeout_s or TIMEOUT_S)
    to_topic = options.queue is None
    ask = numbered_publish if to_topic else numbered_push
    while True:
        try:
            request = ask(name, batch_of_rows(rows, to_topic), producer, number)
            brought: int | None = link.wait(link.begin(request))
            return brought
        except (QueueFull, RateLimited, ReadOnly) as refused:
            if isinstance(refused, QueueFull):
                check_fits(link, name, rows.num_rows, _WAS_LARGER)
            if time.monotonic() > until:
                raise
        time.sleep(_PAUSE_S)  # nobody tells when there is room
