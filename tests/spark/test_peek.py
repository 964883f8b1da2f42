"""A look at a queue from Spark: all of it at one moment, in slices, with nothing taken."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from nexo.spark.options import read_options
from nexo.spark.queue_batch import FilteringReader, SnapshotReader
from nexo.vocabulary.errors import LeaseLost

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.spark.place import Place


def reader(place: Place, **options: Any) -> SnapshotReader:
    return SnapshotReader(read_options(place.options(queue=place.queue.name, **options)))


def rows_of(source: SnapshotReader, planned: Any) -> list[dict[str, Any]]:
    return [row for each in planned for rows in source.read(each) for row in rows.to_pylist()]


def bodies(source: SnapshotReader, planned: Any) -> list[str]:
    return [row["body"].decode() for row in rows_of(source, planned)]


def filled(place: Place) -> None:
    """Messages in every state and of every kind."""
    place.queue.push_batch([f"m{number}" for number in range(20)], group_id="g")
    place.queue.push("urgent", priority=9, attributes={"k": "v"})
    place.queue.push("late", delay=1_000.0)
    # The urgent one, for longer than any test takes.
    assert place.queue.pop(visibility_timeout=3_600) is not None
    for message in place.queue.pop_batch(5):
        message.nack(delay=0.0)


def test_every_state_and_nothing_is_taken(spark: SparkSession, place: Place) -> None:
    filled(place)
    rows = place.table(spark, minPartitions=3)
    assert rows.rdd.getNumPartitions() == 3
    found = rows.selectExpr("cast(body as string) text", "*").collect()
    assert Counter(row.text for row in found) == Counter(
        [*[f"m{number}" for number in range(20)], "urgent", "late"]
    )
    states = {row.text: (row.state, row.attempts, row.priority) for row in found}
    assert states["urgent"] == ("received", 1, 9)
    assert states["late"] == ("scheduled", 0, 0)
    assert states["m0"] == ("ready", 1, 0)
    assert states["m19"] == ("ready", 0, 0)
    info = place.queue.info()
    assert (info.depth, info.ready, info.scheduled, info.in_flight) == (22, 20, 1, 1)


def test_an_empty_queue(spark: SparkSession, place: Place) -> None:
    assert place.queue.info().depth == 0
    assert place.table(spark).count() == 0


def test_dead_letters_in_sql(spark: SparkSession, place: Place) -> None:
    work = place.client.create_queue(f"{place.name}-work", max_attempts=1)
    work.push_batch(["a", "b", "c"])
    for message in work.pop_batch(3):
        message.nack(reason="no stock" if message.text != "c" else "no price")
    letters = place.table(spark, queue=f"{work.name}_dlq")
    letters.createOrReplaceTempView("letters")
    found = spark.sql(
        "SELECT attributes['nexo.dead_letter.reason'] AS reason, count(*) AS n FROM letters "
        "WHERE to_timestamp(attributes['nexo.dead_letter.last_failed_at']) > '2020-01-01' "
        "GROUP BY 1"
    )
    assert {row.reason: row.n for row in found.collect()} == {"no stock": 2, "no price": 1}


def test_what_is_acked_meanwhile_is_still_there(place: Place) -> None:
    filled(place)
    source = reader(place, minPartitions=4)
    planned = source.partitions()
    place.queue.purge()
    place.queue.push("new")
    found = rows_of(source, planned)
    assert len(found) == 22
    assert {row["state"] for row in found} == {"ready", "received", "scheduled"}
    assert sorted(bodies(source, planned)) == sorted(row["body"].decode() for row in found)
    assert bodies(source, source.partitions()) == ["new"]


def test_a_snapshot_that_is_over(place: Place) -> None:
    filled(place)
    source = reader(place)
    planned = source.partitions()
    for _ in range(16):  # as many as a queue keeps
        source.partitions()
    with pytest.raises(LeaseLost, match="take a new one"):
        rows_of(source, planned)


def test_conditions_give_what_spark_would(spark: SparkSession, place: Place) -> None:
    filled(place)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    everything = place.table(spark).collect()
    conditions = (
        "priority = 9",
        "priority IN (0, 3) AND attempts > 0",
        "attempts <= 0",
        "group_id = 'g' AND attempts < 1",
        "group_id IS NULL",
        "group_id IS NOT NULL AND priority >= 1",
        "created_at > timestamp'2020-01-01 00:00:00' AND state = 'ready'",
        "created_at < timestamp'2020-01-01 00:00:00'",
        "group_id = 'g' OR priority = 9",
        "group_id <=> NULL",
    )
    plain = spark.createDataFrame(everything, place.table(spark).schema)
    decided = plain.selectExpr("id", f"array({', '.join(conditions)}) AS holds").collect()
    for number, condition in enumerate(conditions):
        pushed = place.table(spark).where(condition).collect()
        expected = {row.id for row in decided if row.holds[number]}
        assert {row.id for row in pushed} == expected, condition


def test_conditions_work_where_they_are_switched_off(spark: SparkSession, place: Place) -> None:
    filled(place)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")
    try:
        assert place.table(spark).where("priority = 9").count() == 1
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")


@pytest.mark.parametrize(
    ("condition", "count"),
    [
        (EqualTo(("priority",), 9), 1),
        (EqualTo(("priority",), None), 0),
        (EqualNullSafe(("group_id",), None), 2),
        (GreaterThan(("attempts",), 0), 6),
        (GreaterThanOrEqual(("attempts",), 1), 6),
        (LessThan(("attempts",), 1), 16),
        (LessThanOrEqual(("priority",), 0), 21),
        (In(("priority",), (9, 3, None)), 1),
        (IsNull(("group_id",)), 2),
        (IsNotNull(("group_id",)), 20),
        (LessThan(("created_at",), datetime.now(UTC) - timedelta(days=1)), 0),
        (GreaterThan(("created_at",), datetime.now(UTC) - timedelta(days=1)), 22),
    ],
)
def test_a_condition_is_applied(place: Place, condition: Any, count: int) -> None:
    filled(place)
    source = FilteringReader(read_options(place.options(queue=place.queue.name)))
    assert list(source.pushFilters([condition])) == []
    assert len(rows_of(source, source.partitions())) == count


def test_conditions_that_are_left_to_spark(place: Place) -> None:
    source = FilteringReader(read_options(place.options(queue=place.queue.name)))
    left = [
        EqualTo(("state",), "ready"),
        EqualTo(("attributes", "k"), "v"),
        EqualTo(("priority",), 9.5),
        Not(EqualTo(("priority",), 9)),
        LessThan(("created_at",), datetime(2026, 1, 1)),  # noqa: DTZ001
    ]
    assert list(source.pushFilters(left)) == left


def test_the_broker_leaves_out_what_is_not_asked_for(place: Place) -> None:
    filled(place)
    source = FilteringReader(read_options(place.options(queue=place.queue.name)))
    source.pushFilters([EqualTo(("priority",), 9)])
    (piece,) = source.partitions()
    assert piece.stop - piece.start == 1  # type: ignore[attr-defined]
