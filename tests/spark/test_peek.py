"""A look at a queue from Spark: all of it at one moment, in slices, with nothing taken."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from nexo.spark.options import read_options
from nexo.spark.queue_batch import SnapshotReader
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


@pytest.mark.parametrize("pushdown", ["false", "true"])
def test_a_condition_leaves_no_trace(spark: SparkSession, place: Place, pushdown: str) -> None:
    """Spark 4.3.0 keeps what it has handed down to a reader for the queries that come after, so
    nothing is taken from it, also where somebody has that switched on."""
    filled(place)
    setting = "spark.sql.python.filterPushdown.enabled"
    before = str(spark.conf.get(setting))
    spark.conf.set(setting, pushdown)
    try:
        rows = place.table(spark)
        rows.createOrReplaceTempView("looked_at")
        counted = "SELECT count(*) FROM looked_at"
        assert spark.sql(counted).first()[0] == rows.count() == 22
        assert spark.sql(f"{counted} WHERE priority = 9").first()[0] == 1
        assert rows.where("attempts > 0 AND group_id = 'g'").count() == 5
        assert spark.sql(counted).first()[0] == rows.count() == 22
    finally:
        spark.conf.set(setting, before)
