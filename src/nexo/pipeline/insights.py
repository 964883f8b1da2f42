"""insights: what happened in each queue in each minute, from the events.

    nexo.events (or LAKE/events) → figures by queue and minute → LAKE/insights/queue_minutes
                                                               → LAKE/insights/dead_letters
                                                               → LAKE/insights/consumers

The stream and the batch over the archive go through the same `figures`, so they give the same
answers. In the stream a minute's figures are kept until the watermark has passed it; events that
come later still are dropped and counted, and the batch over that day has them. Rows are replaced
as a whole, by queue and minute: a micro-batch that runs again changes nothing. Where the archive
has less than the stream has seen, what the stream has seen stays.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

import msgspec
import pyarrow.compute as pc
from pyspark.sql import functions as f

from nexo.pipeline.delta import EVENTS_TABLE, check_lake, make_folder, open_table
from nexo.pipeline.job import trigger
from nexo.pipeline.parts import parts_of, rows_of
from nexo.pipeline.tables import Tables
from nexo.pipeline.watch import Watch
from nexo.vocabulary.names import EVENTS_TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from nexo.pipeline.job import JobRun
    from nexo.pipeline.lake import Lake

EVERY_S = 10.0
WATERMARK_S = 600.0
BATCH_EVENTS = 500_000
EVENTS_PER_SECOND = 300_000  # more than a broker tells: see MESSAGES_PER_SECOND of the archive
MINUTE, REASON, CONSUMER = "minute", "reason", "consumer"  # what a row of figures tells of
# An event counts for its queue and minute, a dead letter also for its reason, and what a consumer
# got and acked also for the consumer.
_FACETS = f"""
    explode(filter(array(
        named_struct('facet', '{MINUTE}', 'detail', ''),
        if(kind = 'dead_lettered', named_struct('facet', '{REASON}', 'detail', reason), null),
        if(kind in ('delivered', 'acked'),
           named_struct('facet', '{CONSUMER}', 'detail', consumer), null)
    ), each -> each is not null))
"""
_EVENT = (
    "kind string, queue string, first_seq long, count long, at_ms long, created_ms long, "
    "attempts int, consumer string, reason string, delivered_ms long"
)
_LEFT = (
    "kind in ('acked', 'dead_lettered', 'redriven', 'purged') "
    "or (kind = 'expired' and reason = 'retention')"
)


class Insights(msgspec.Struct, frozen=True):
    once: bool = False
    every_s: float = EVERY_S
    watermark_s: float = WATERMARK_S
    batch_events: int | None = None  # by default as many as may come in the time of one
    fail_on_data_loss: bool = True
    checkpoint: str | None = None
    from_lake: bool = False
    first_day: date | None = None  # of the batch over the archive
    last_day: date | None = None

    @property
    def events_max(self) -> int:
        """Of a micro-batch. With `once` the next one follows at once."""
        per_tick = 0 if self.once else int(self.every_s * EVENTS_PER_SECOND)
        return self.batch_events or max(BATCH_EVENTS, per_tick)


def run(job: JobRun, lake: Lake, asked: Insights) -> None:
    check_lake(lake)
    if asked.from_lake:
        _from_lake(job, lake, asked)
    else:
        _from_broker(job, lake, asked)


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


def figures(events: DataFrame) -> DataFrame:
    """A row for each queue and minute, each reason in it and each consumer in it."""
    is_minute = f.col("facet") == MINUTE
    wait_ms = f.expr("greatest(0, unix_millis(at) - unix_millis(created_at))")
    work_ms = f.expr("greatest(0, unix_millis(at) - unix_millis(delivered_at))")
    is_first = (f.col("kind") == "delivered") & (f.col("attempts") == 1)
    rows = (
        events.select("*", f.expr(_FACETS).alias("about"))
        .select("*", "about.*")
        .withColumn("wait_ms", f.when(is_minute & is_first, wait_ms))
        .withColumn("work_ms", f.when(is_minute & (f.col("kind") == "acked"), work_ms))
    )
    return (
        rows.groupBy("queue", f.window("at", "1 minute").alias("window"), "facet", "detail")
        .agg(
            _counted("kind = 'pushed'").alias("arrivals"),
            _counted(_LEFT).alias("departures"),
            _counted("kind = 'delivered' and attempts > 1").alias("retries"),
            _counted("kind = 'dead_lettered'").alias("dead_letters"),
            _counted("kind = 'delivered'").alias("deliveries"),
            _counted("kind = 'acked'").alias("acks"),
            f.expr("percentile(wait_ms, array(0.5, 0.99), count)").alias("wait"),
            f.expr("percentile(work_ms, array(0.5, 0.99), count)").alias("work"),
        )
        .select(
            *("queue", f.col("window.start").alias("minute"), "facet", "detail"),
            *("arrivals", "departures", "retries", "dead_letters", "deliveries", "acks"),
            f.col("wait")[0].alias("wait_ms_p50"),
            f.col("wait")[1].alias("wait_ms_p99"),
            f.col("work")[0].alias("work_ms_p50"),
            f.col("work")[1].alias("work_ms_p99"),
        )
    )


def _counted(condition: str) -> Column:
    """How many messages, not events: an event tells of a range."""
    return f.expr(f"coalesce(sum(`count`) filter (where {condition}), 0L)")


def _from_broker(job: JobRun, lake: Lake, asked: Insights) -> None:
    messages = job.stream(
        topic=EVENTS_TOPIC,
        startingOffsets="earliest",
        maxMessagesPerTrigger=asked.events_max,
        failOnDataLoss=str(asked.fail_on_data_loss).lower(),
    )
    watch = Watch(job.spark, job.teller)
    watch.run({EVENTS_TOPIC: lambda: start(event_rows(messages), lake, asked)}, job.should_stop)


def start(events: DataFrame, lake: Lake, asked: Insights) -> StreamingQuery:
    """From a stream of events into the tables."""
    tables = Tables(lake)

    def keep(batch: DataFrame, _: int) -> None:
        tables.put(batch.toArrow())

    return (
        figures(events.withWatermark("at", f"{asked.watermark_s} seconds"))
        .writeStream.queryName(EVENTS_TOPIC)
        .outputMode("update")
        .foreachBatch(keep)
        .option("checkpointLocation", make_folder(lake.checkpoint("insights", asked.checkpoint)))
        .trigger(**trigger(asked.once, asked.every_s))
        .start()
    )


def _from_lake(job: JobRun, lake: Lake, asked: Insights) -> None:
    job.teller.tell("running")
    table = open_table(lake, EVENTS_TABLE)
    everything = parts_of(table, EVENTS_TABLE)

    def events(first: date | None, last: date | None) -> DataFrame:
        """Of these days: the files of others are not opened."""
        parts = [
            part
            for part in everything
            if (day := part.partition["date"] or "") >= f"{first or ''}" and day <= f"{last or '~'}"
        ]
        return rows_of(job.spark, lake, EVENTS_TABLE, parts, {})

    rows = figures(events(asked.first_day, asked.last_day)).toArrow()
    if rows.num_rows:
        first_day = pc.min(rows["minute"]).as_py().date()
        tables = Tables(lake)
        tables.correct(rows, _depths_before(job, events, tables, first_day))
    job.teller.add("LAKE/events", rows.num_rows)


def _depths_before(
    job: JobRun,
    events: Callable[[date | None, date | None], DataFrame],
    tables: Tables,
    day: date,
) -> dict[str, int]:
    """What was in each queue when a day began: what the figures of an earlier day end with, and
    from there on all that came less all that left. What is below zero was there before the first
    event. The archive alone would not do: its first days may be deleted."""
    earlier, depths = tables.depths_before(datetime(day.year, day.month, day.day, tzinfo=UTC))
    since = earlier.date() + timedelta(days=1) if earlier is not None else None
    between = events(since, day - timedelta(days=1))
    changed = _counted("kind = 'pushed'") - _counted(_LEFT)
    so_far = "over (partition by queue order by minute)"
    before = job.spark.createDataFrame(list(depths.items()), "queue string, before long")
    rows = (
        between.groupBy("queue", f.window("at", "1 minute").start.alias("minute"))
        .agg(changed.alias("net"))
        .join(f.broadcast(before), "queue", "left")
        .selectExpr("*", f"coalesce(before, 0L) + sum(net) {so_far} as level")
        .selectExpr("*", f"level - least(0, min(level) {so_far}) as depth")
        .groupBy("queue")
        .agg(f.max_by("depth", "minute").alias("depth"))
    )
    return {**depths, **{row["queue"]: row["depth"] for row in rows.collect()}}


def day_of(text: str) -> date:
    """A day as people write it: 2026-05-31, today or yesterday."""
    today = datetime.now(UTC).date()
    named = {"today": today, "yesterday": today - timedelta(days=1)}
    return named.get(text) or date.fromisoformat(text)
