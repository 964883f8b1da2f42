"""insights: the figures are those of a plain computation, in the stream and over the archive."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from nexo.pipeline.insights import Insights, day_of, run, start
from nexo.pipeline.lake import EVENTS, Lake
from nexo.pipeline.tables import QUEUE_MINUTES, Tables, with_depths
from tests.pipeline.place import some_bodies
from tests.pipeline.plain_insights import queue_minutes

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.pipeline.place import Place

NOON = datetime(2026, 5, 31, 12, 0, tzinfo=UTC)


def live(place: Place) -> None:
    """Messages that are acked, fail, are tried again and die of two reasons."""
    queue = place.client.create_queue(place.name, max_attempts=2)
    queue.push_batch(some_bodies(60))
    for message in queue.pop_batch(40, wait=5.0):
        message.ack()
    for reason in ("no stock", "no stock", "no address", "no address"):
        for message in queue.pop_batch(5, wait=5.0):
            message.nack(delay=0, reason=reason)
    queue.push_batch(some_bodies(7))
    queue.pop_batch(3, wait=5.0)


def assert_same(found: list[dict[str, Any]], wanted: list[dict[str, Any]]) -> None:
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        assert one.keys() == other.keys()
        for name, value in one.items():
            exact = not isinstance(value, float)
            assert value == (other[name] if exact else pytest.approx(other[name])), (
                name,
                one,
                other,
            )


def test_stream_and_archive_give_what_a_plain_computation_gives(
    spark: SparkSession, place: Place
) -> None:
    live(place)
    running = place.running(spark, "insights")
    run(running, place.lake, Insights(once=True))
    streamed = {name: place.insights(name) for name in ("queue_minutes", "dead_letters")}
    consumers = place.insights("consumers")
    place.archive(spark)
    wanted = queue_minutes(place.events())
    assert_same(streamed["queue_minutes"], wanted)
    assert list(streamed["queue_minutes"][0]) == QUEUE_MINUTES.names
    letters = {row["reason"]: row["count"] for row in streamed["dead_letters"]}
    assert letters == {"no stock": 5, "no address": 5}
    assert sum(letters.values()) == sum(row["dead_letters"] for row in wanted)
    assert sum(row["deliveries"] for row in consumers) >= 58
    by_minute: dict[Any, float] = {}
    for row in consumers:
        by_minute[row["minute"]] = by_minute.get(row["minute"], 0) + row["share"]
    assert all(total == pytest.approx(1) for total in by_minute.values())

    run(running, place.lake, Insights(from_lake=True, first_day=day_of("2020-01-01")))
    assert_same(place.insights("queue_minutes"), streamed["queue_minutes"])
    assert_same(place.insights("dead_letters"), streamed["dead_letters"])
    assert_same(place.insights("consumers"), consumers)


def write_events(folder: Path, number: int, *events: dict[str, Any]) -> None:
    folder.mkdir(exist_ok=True)
    lines = []
    for event in events:
        known = {"first_seq": 0, "attempts": 0, "consumer": "", "reason": "", "delivered_at": None}
        times = {name: value.isoformat() for name, value in event.items() if name == "at"}
        lines.append(json.dumps({**known, **event, **times, "created_at": times["at"]}))
    (folder / f"{number}.json").write_text("\n".join(lines))


def test_events_that_come_late(spark: SparkSession, tmp_path: Path) -> None:
    """Within the watermark they count; after it the stream leaves them out."""
    lake, folder = Lake(tmp_path / "lake"), tmp_path / "events"

    def pushed(minutes: float, count: int) -> dict[str, Any]:
        at = NOON + timedelta(minutes=minutes)
        return {"kind": "pushed", "queue": "q", "count": count, "at": at}

    for number, events in enumerate(
        (
            [pushed(0, 10)],
            [pushed(0.5, 1), pushed(9, 100)],  # the first is late, and counts
            [pushed(30, 1000)],  # which moves the watermark to minute 20
            [pushed(0, 5), pushed(25, 7)],  # the first is too late
        )
    ):
        write_events(folder, number, *events)
        rows = spark.readStream.schema(EVENTS).option("maxFilesPerTrigger", 1).json(str(folder))
        query = start(rows, lake, Insights(once=True, watermark_s=600.0))
        assert query.awaitTermination(60)
    found = [
        (row["minute"], row["arrivals"], row["depth"])
        for row in _table(lake, "queue_minutes").sort_by("minute").to_pylist()
    ]
    assert found == [
        (NOON, 11, 11),
        (NOON + timedelta(minutes=9), 100, 111),
        (NOON + timedelta(minutes=25), 7, 118),
        (NOON + timedelta(minutes=30), 1000, 1118),
    ]


def _table(lake: Lake, name: str) -> pa.Table:
    import pyarrow.dataset as ds

    return ds.dataset(lake.insights / name, format="parquet").to_table()


def figures(*rows: tuple[str, datetime, int, int]) -> pa.Table:
    """What Spark hands over: queue, minute, arrivals and departures."""
    columns: dict[str, list[Any]] = {
        "queue": [row[0] for row in rows],
        "minute": [row[1] for row in rows],
        "facet": ["minute"] * len(rows),
        "detail": [""] * len(rows),
        "arrivals": [row[2] for row in rows],
        "departures": [row[3] for row in rows],
    }
    for name in ("retries", "dead_letters", "deliveries", "acks"):
        columns[name] = [0] * len(rows)
    for name in ("wait_ms_p50", "wait_ms_p99", "work_ms_p50", "work_ms_p99"):
        columns[name] = [1.5] * len(rows)
    return pa.table(columns)


def test_depths_go_on_over_days_and_rows_are_replaced(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    day = timedelta(days=1)
    Tables(lake).put(figures(("a", NOON, 10, 2), ("b", NOON, 1, 0)))
    Tables(lake).put(figures(("a", NOON + 2 * day, 1, 0)))
    Tables(lake).put(figures(("b", NOON + 3 * day, 0, 1)))
    Tables(lake).put(figures(("a", NOON, 10, 5)))  # a late event: the same minute anew

    def depths() -> list[tuple[str, datetime, int]]:
        rows = _table(lake, "queue_minutes").to_pylist()
        return sorted((row["queue"], row["minute"], row["depth"]) for row in rows)

    expected = [("a", NOON, 5), ("a", NOON + 2 * day, 6), ("b", NOON, 1), ("b", NOON + 3 * day, 0)]
    assert depths() == expected
    Tables(lake).put(figures(("a", NOON + 2 * day, 0, 0)), replace=True, depths={"a": 50})
    assert depths()[1] == ("a", NOON + 2 * day, 50)
    assert len(list((lake.insights / "queue_minutes").iterdir())) == 3


def test_more_cannot_leave_than_was_there() -> None:
    rows = figures(("a", NOON, 1, 4), ("a", NOON + timedelta(minutes=1), 5, 2))
    table, after = with_depths(rows.append_column("depth", pa.array([0, 0])), {"a": 2, "z": 9})
    assert table["depth"].to_pylist() == [0, 3]
    assert after == {"a": 3, "z": 9}
