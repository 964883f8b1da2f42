"""insights: the figures are those of a plain computation, in the stream and over the archive."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from nexo.pipeline import tables as room
from nexo.pipeline.commits import Commits
from nexo.pipeline.delta import EVENTS_TABLE
from nexo.pipeline.insights import Insights, run, start
from nexo.pipeline.lake import Lake
from nexo.pipeline.parts import columns_of
from nexo.pipeline.status import Teller
from nexo.pipeline.tables import QUEUE_MINUTES, Tables, with_depths
from nexo.pipeline.watch import Watch
from nexo.query.rows import TOPIC_SCHEMA
from nexo.vocabulary.names import EVENTS_TOPIC
from tests.pipeline.place import some_bodies
from tests.pipeline.plain_insights import queue_minutes
from tests.pipeline.rows import messages, write

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.pipeline.place import Place

NOON = datetime(2026, 5, 31, 12, 0, tzinfo=UTC)
MINUTE = QUEUE_MINUTES.field("minute").type


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
    # For longer than any test takes: what comes back would be an event more for who looks later.
    queue.pop_batch(3, wait=5.0, visibility_timeout=3_600)


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

    run(running, place.lake, Insights(from_lake=True))
    assert_same(place.insights("queue_minutes"), streamed["queue_minutes"])
    assert_same(place.insights("dead_letters"), streamed["dead_letters"])
    assert_same(place.insights("consumers"), consumers)


def archive_events(lake: Lake, *events: dict[str, Any]) -> None:
    """Into the lake, as the archive does."""
    commits = Commits(lake, EVENTS_TABLE)
    first = commits.next_offset(EVENTS_TOPIC) or 0
    told = [_told(event) for event in events]
    rows = messages(EVENTS_TOPIC, range(first, first + len(told)))
    rows = rows.set_column(1, TOPIC_SCHEMA.field(1), pa.array(told, pa.binary()))
    assert not commits.commit(write(lake, rows), "query", 0)


def _told(event: dict[str, Any]) -> bytes:
    at_ms = round(event["at"].timestamp() * 1000)
    known = {"first_seq": 0, "attempts": 0, "consumer": "", "reason": "", "at_ms": at_ms}
    known |= {"created_ms": at_ms, "delivered_ms": at_ms}
    return json.dumps({**known, **{k: v for k, v in event.items() if k != "at"}}).encode()


def depths(lake: Lake) -> list[tuple[str, datetime, int]]:
    rows = _table(lake, "queue_minutes").to_pylist()
    return sorted((row["queue"], row["minute"], row["depth"]) for row in rows)


def test_depths_of_a_day_from_the_archive_go_on_from_the_days_before(
    spark: SparkSession, place: Place
) -> None:
    lake, day = place.lake, timedelta(days=1)

    def event(kind: str, queue: str, days: int, count: int) -> dict[str, Any]:
        return {"kind": kind, "queue": queue, "count": count, "at": NOON + days * day}

    archive_events(
        lake,
        *(event("pushed", "a", 0, 10), event("acked", "a", 0, 4)),
        *(event("pushed", "b", 0, 3), event("acked", "b", 1, 5)),  # more than came: two were there
        *(event("pushed", "a", 2, 1), event("pushed", "b", 2, 1)),
    )
    running = place.running(spark, "insights")
    asked = Insights(from_lake=True, first_day=(NOON + 2 * day).date())
    last_day = [("a", NOON + 2 * day, 7), ("b", NOON + 2 * day, 1)]
    run(running, lake, asked)
    assert depths(lake) == last_day, "from the archive alone"
    run(running, lake, Insights(from_lake=True))
    everything = depths(lake)
    assert everything == [
        ("a", NOON, 6),
        last_day[0],
        ("b", NOON, 3),
        ("b", NOON + day, 0),
        last_day[1],
    ]
    forgotten = f"date < '{NOON + 2 * day:%Y-%m-%d}'"  # as people are told to forget old days
    DeltaTable(lake.table("events")).delete(forgotten)
    run(running, lake, asked)
    run(running, lake, Insights(from_lake=True))
    assert depths(lake) == everything, "from the figures of the day before"


def test_an_archive_that_has_less_takes_nothing_away(spark: SparkSession, place: Place) -> None:
    """It is behind the stream, it was begun later, and it has an event that came late."""
    lake = place.lake

    def pushed(minute: int, count: int) -> dict[str, Any]:
        at = NOON + timedelta(minutes=minute)
        return {"kind": "pushed", "queue": "a", "count": count, "at": at}

    streamed = figures(*(("a", NOON + timedelta(minutes=n), 10, 0) for n in range(5)))
    Tables(lake).put(streamed)
    archive_events(lake, pushed(1, 4), pushed(2, 10), pushed(2, 5), pushed(3, 6))
    run(place.running(spark, "insights"), lake, Insights(from_lake=True))
    rows = _table(lake, "queue_minutes").sort_by("minute").to_pylist()
    assert [row["arrivals"] for row in rows] == [10, 10, 15, 10, 10]
    assert [row["depth"] for row in rows] == [10, 20, 35, 45, 55]


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
    teller = Teller("insights", lake)

    def pushed(minutes: float, count: int) -> dict[str, Any]:
        at = NOON + timedelta(minutes=minutes)
        return {"kind": "pushed", "queue": "q", "count": count, "at": at}

    for number, events in enumerate(
        (
            [pushed(0, 10)],
            [pushed(0.5, 1), pushed(9, 100)],  # the first is late, and counts
            [pushed(30, 1000)],  # which moves the watermark to minute 20 …
            [pushed(30, 0)],  # … for the batch after the next
            [pushed(0, 5), pushed(25, 7)],  # the first is too late
        )
    ):
        write_events(folder, number, *events)
        os.utime(folder / f"{number}.json", (number, number))  # they are read in this order
    rows = (
        spark.readStream.schema(columns_of(EVENTS_TABLE))
        .option("maxFilesPerTrigger", 1)
        .json(str(folder))
    )
    asked = Insights(once=True, watermark_s=600.0)
    Watch(spark, teller).run({"events": partial(start, rows, lake, asked)}, lambda: False)
    assert teller.status.batches >= 5
    assert teller.status.late == 1, "a row of one queue and minute"
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
    return DeltaTable(lake.table("insights", name)).to_pyarrow_table()


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


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake")


def test_depths_go_on_over_days_and_rows_are_replaced(lake: Lake) -> None:
    day = timedelta(days=1)
    Tables(lake).put(figures(("a", NOON, 10, 2), ("b", NOON, 1, 0)))
    Tables(lake).put(figures(("a", NOON + 2 * day, 1, 0)))
    Tables(lake).put(figures(("b", NOON + 3 * day, 0, 1)))
    Tables(lake).put(figures(("a", NOON, 10, 5)))  # a late event: the same minute anew

    expected = [("a", NOON, 5), ("a", NOON + 2 * day, 6), ("b", NOON, 1), ("b", NOON + 3 * day, 0)]
    assert depths(lake) == expected
    Tables(lake).correct(figures(("a", NOON + 2 * day, 3, 1)), depths={"a": 50})
    assert depths(lake)[1] == ("a", NOON + 2 * day, 52)


class Died(BaseException):
    """The process is gone."""


@pytest.mark.parametrize("written", range(3))
def test_killed_while_it_writes_the_next_run_gives_the_same(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, written: int
) -> None:
    """Spark runs the micro-batch again; here it is only the tables that count."""
    before = figures(("a", NOON, 10, 2), ("b", NOON + timedelta(days=1), 1, 0))
    batch = figures(("a", NOON, 11, 2), ("a", NOON + timedelta(days=1), 0, 3))
    worker = figures(("a", NOON, 0, 0)).set_column(2, "facet", pa.array(["consumer"]))
    batch = pa.concat_tables([batch, worker])
    other = Lake(f"{lake.uri}/other")
    for each in (before, batch):
        Tables(other).put(each)
    Tables(lake).put(before)
    merge, left = Tables._merge, written

    def merge_some(self: Tables, name: str, rows: pa.Table) -> None:
        nonlocal left
        if not left:
            raise Died
        left -= 1
        merge(self, name, rows)
        if not left and written == 2:
            raise Died

    with monkeypatch.context() as patched:
        patched.setattr(Tables, "_merge", merge_some)
        with pytest.raises(Died):
            Tables(lake).put(batch)
    Tables(lake).put(batch)
    for name in room.SCHEMAS:
        keys = [(key, "ascending") for key in room.SCHEMAS[name].names[:3]]
        one, two = (_table(each, name).sort_by(keys) for each in (lake, other))
        assert one.equals(two), name
    assert depths(lake) == [
        ("a", NOON, 9),
        ("a", NOON + timedelta(days=1), 6),
        ("b", NOON + timedelta(days=1), 1),
    ]


def test_more_cannot_leave_than_was_there() -> None:
    rows = figures(("a", NOON, 1, 4), ("a", NOON + timedelta(minutes=1), 5, 2))
    table, after = with_depths(rows.append_column("depth", pa.array([0, 0])), {"a": 2, "z": 9})
    assert table["depth"].to_pylist() == [0, 3]
    assert after == {"a": 3, "z": 9}
