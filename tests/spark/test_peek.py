"""A look at a queue from Spark: all of it at one moment, in slices, with nothing taken."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from nexo.spark import queue_batch
from nexo.spark.options import read_options
from nexo.spark.queue_batch import ViewReader, scan_of
from nexo.vocabulary.errors import LeaseLost

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.spark.place import Place


def reader(place: Place, **options: Any) -> ViewReader:
    return ViewReader(read_options(place.options(queue=place.queue.name, **options)))


def rows_of(source: ViewReader, planned: Any) -> list[dict[str, Any]]:
    return [row for each in planned for rows in source.read(each) for row in rows.to_pylist()]


def bodies(source: ViewReader, planned: Any) -> list[str]:
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
    planned = list(source.partitions())
    first = rows_of(source, planned[:1])
    place.queue.purge()
    place.queue.push("new")
    found = first + rows_of(source, planned[1:])
    assert len(found) == 22
    assert {row["state"] for row in found} == {"ready", "received", "scheduled"}
    assert sorted(bodies(source, planned)) == sorted(row["body"].decode() for row in found)
    assert bodies(source, source.partitions()) == ["new"]


def test_each_query_on_a_dataframe_sees_the_queue_as_it_is(
    spark: SparkSession, place: Place
) -> None:
    """Spark plans the slices once, when the DataFrame is loaded; one query sees one moment, also
    if it reads the queue twice."""
    place.queue.push_batch([f"m{number}" for number in range(10)])
    rows = place.table(spark, minPartitions=3)
    assert rows.count() == 10
    place.queue.push_batch(["x"] * 5)
    assert rows.count() == 15
    place.queue.purge()
    assert rows.count() == 0
    place.queue.push_batch(["y"] * 7)
    assert rows.union(rows).count() == 14
    assert len(list(rows.toLocalIterator())) == 7


def test_a_scan_never_sees_two_moments(place: Place) -> None:
    """Its view is over, but some tasks have read it: the others must not get another one."""
    filled(place)
    source = reader(place, minPartitions=2)
    planned = list(source.partitions())
    rows_of(source, planned[:1])
    for _ in range(16):  # as many as a queue keeps
        rows_of(source, source.partitions())
    with pytest.raises(LeaseLost, match="no longer exists"):
        rows_of(source, planned[1:])
    assert len(rows_of(source, source.partitions())) == 22


def test_a_view_of_a_broker_that_restarted_is_not_mixed_with_another(place: Place) -> None:
    filled(place)
    source = reader(place, minPartitions=2)
    planned = list(source.partitions())
    rows_of(source, planned[:1])
    (key,) = [key for key in queue_batch._seen if key[0] == place.name]
    queue_batch._seen[key] += "-of-an-earlier-boot"
    with pytest.raises(LeaseLost, match=r"restarted .*run the query again"):
        rows_of(source, planned[1:])


class Context:
    """What a task is told by Spark."""

    def __init__(self, **properties: str) -> None:
        self.properties = properties

    def getLocalProperty(self, name: str) -> str | None:  # noqa: N802
        return self.properties.get(name.replace(".", "_"))


def test_the_scan_of_a_task() -> None:
    told = {"spark_sql_execution_id": "7", "spark_sql_execution_query_id": "q"}
    assert scan_of(Context(**told), "loaded") == "q/7"
    assert scan_of(Context(spark_sql_execution_id="7"), "loaded") == "loaded/7"
    assert scan_of(Context(), "loaded") == scan_of(None, "loaded") == "loaded"


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
        assert spark.sql(counted).collect()[0][0] == rows.count() == 22
        assert spark.sql(f"{counted} WHERE priority = 9").collect()[0][0] == 1
        assert rows.where("attempts > 0 AND group_id = 'g'").count() == 5
        assert spark.sql(counted).collect()[0][0] == rows.count() == 22
    finally:
        spark.conf.set(setting, before)
