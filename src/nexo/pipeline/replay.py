"""replay: what the lake holds is pushed once more, to a queue or a topic.

A replay has a name and a plan, which is kept in the lake when it first runs: up to which offset,
and in waves of how many. Each wave is one write under a name of its own, which the broker takes
once; the plan says which waves are done. So killed and run again it goes on, and run once more
after its end it adds nothing. Messages keep their order.
"""

from __future__ import annotations

import hashlib
import time
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec
from pyspark.sql import functions as f

from nexo.pipeline.commits import finish_all
from nexo.pipeline.failures import checked_sql
from nexo.pipeline.lake import write_atomically
from nexo.vocabulary.errors import InvalidArgument
from nexo.vocabulary.names import check_name

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame

    from nexo.pipeline.lake import Lake
    from nexo.pipeline.running import Running

WAVE_MESSAGES = 500_000
_SLICE_S = 0.1


class Replay(msgspec.Struct, frozen=True):
    source: str
    to_queue: str | None = None
    to_topic: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    where: str | None = None
    rate: float | None = None
    replay_id: str | None = None
    dry_run: bool = False

    @property
    def what(self) -> str:
        """What is replayed and where to: the same for the same replay."""
        asked = (self.source, self.to_queue, self.to_topic, self.since, self.until, self.where)
        return hashlib.sha256(msgspec.json.encode(asked)).hexdigest()

    @property
    def name(self) -> str:
        return self.replay_id or f"replay-{self.what[:16]}"

    def check(self) -> None:
        if (self.to_queue is None) == (self.to_topic is None):
            raise InvalidArgument(
                "it is not clear where to replay to", "give one of --to-queue and --to-topic"
            )
        if self.since is not None and self.until is not None and self.since >= self.until:
            raise InvalidArgument("--from is not before --until", "no message is in between")
        check_name(self.name, "replay")


class Plan(msgspec.Struct):
    what: str
    end_offset: int
    wave_messages: int
    waves_done: int = -1  # the number of the last wave that is with the broker
    added: int = 0
    finished_at: datetime | None = None


def run(running: Running, lake: Lake, asked: Replay) -> dict[str, int]:
    """How many messages match, and how many of them were added now."""
    asked.check()
    _check_target(running, asked)
    with lake.only_one(f"replay-{asked.name}"), lake.reading():
        rows = _matching(running, lake, asked)
        if asked.dry_run:
            return {"matched": rows.count(), "added": 0}
        file = lake.internal("replays", f"{asked.name}.json")
        plan = _plan(file, asked, rows)
        rows = rows.where(f.col("offset") < plan.end_offset)
        wave = f.floor(f.col("offset") / plan.wave_messages)
        counts = rows.groupBy(wave.alias("wave")).count().orderBy("wave").collect()
        matched = sum(row["count"] for row in counts)
        left = [(row["wave"], row["count"]) for row in counts if row["wave"] > plan.waves_done]
        added = _send(running, asked, rows, plan, left, file)
        return {"matched": matched, "added": added}


def _check_target(running: Running, asked: Replay) -> None:
    with running.client() as client:
        if asked.to_queue is not None:
            client.queue(asked.to_queue).info()
        elif asked.to_topic is not None:
            client.topic(asked.to_topic).info()


def _matching(running: Running, lake: Lake, asked: Replay) -> DataFrame:
    lake.require(lake.messages)
    there = sorted(each.name.removeprefix("source=") for each in lake.messages.glob("source=*"))
    if lake.format == "parquet" and asked.source not in there:
        raise InvalidArgument(
            f"the lake has no source {asked.source!r:.80}", f"it has {', '.join(there) or 'none'}"
        )
    with lake.locked():  # no batch is half moved while the files are listed
        finish_all(lake)
        rows = lake.read_messages(running.spark)
    rows = rows.where(f.col("source") == asked.source)
    if asked.since is not None:
        rows = rows.where(f.col("date") >= f.lit(asked.since.date()))
        rows = rows.where(f.col("created_at") >= f.lit(asked.since))
    if asked.until is not None:
        rows = rows.where(f.col("date") <= f.lit(asked.until.date()))
        rows = rows.where(f.col("created_at") < f.lit(asked.until))
    rows = rows.withColumn("text", f.col("body").cast("string"))
    if asked.where is not None:
        checked_sql("--where", asked.where, lambda sql: rows.where(sql).schema)
        rows = rows.where(asked.where)
    return rows


def _plan(file: Path, asked: Replay, rows: DataFrame) -> Plan:
    """The plan of a replay that ran before, or a new one."""
    try:
        plan = msgspec.json.decode(file.read_bytes(), type=Plan)
    except FileNotFoundError:
        last = rows.agg(f.max("offset")).first()
        end = (last[0] + 1) if last is not None and last[0] is not None else 0
        wave = WAVE_MESSAGES if asked.rate is None else max(1, min(WAVE_MESSAGES, int(asked.rate)))
        plan = Plan(asked.what, end, wave)
        write_atomically(file, msgspec.json.encode(plan))
    if plan.what != asked.what:
        raise InvalidArgument(
            f"replay {asked.name} was something else: other messages, or another target",
            "give this one another --replay-id",
        )
    return plan


def _send(
    running: Running,
    asked: Replay,
    rows: DataFrame,
    plan: Plan,
    waves: list[tuple[int, int]],
    file: Path,
) -> int:
    target = {"queue": asked.to_queue} if asked.to_queue else {"topic": asked.to_topic}
    columns = ["body", "attributes"]
    columns += ["priority", "group_id"] if asked.to_queue else []
    began, added, total = time.monotonic(), 0, sum(count for _, count in waves)
    for number, count in waves:
        if running.should_stop():
            return added
        low = number * plan.wave_messages
        wave = rows.where(f.col("offset").between(low, low + plan.wave_messages - 1))
        writing = wave.repartition(1).sortWithinPartitions("offset").select(*columns).write
        writing = writing.format("nexo").mode("append").options(**running.broker, **target)
        writing.option("writeId", f"{asked.name}/{number}").save()
        added += count
        plan.waves_done, plan.added = number, plan.added + count
        write_atomically(file, msgspec.json.encode(plan))
        running.teller.add(asked.source, count, total - added)
        if asked.rate is not None:
            _wait(running, began + added / asked.rate)
    plan.finished_at = plan.finished_at or running.now()
    write_atomically(file, msgspec.json.encode(plan))
    return added


def _wait(running: Running, until: float) -> None:
    while (left := until - time.monotonic()) > 0 and not running.should_stop():
        time.sleep(min(left, _SLICE_S))
