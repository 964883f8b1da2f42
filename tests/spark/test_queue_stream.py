"""A queue as a stream, in a running Spark."""

from __future__ import annotations

import json
import shutil
import uuid
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F  # noqa: N812

from tests.client.eventually import eventually
from tests.spark.place import PATIENCE_S

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from tests.spark.place import Place


def numbered(count: int, prefix: str = "m") -> list[str]:
    return [f"{prefix}{number}" for number in range(count)]


def test_all_there_is_once_then_more(spark: SparkSession, place: Place) -> None:
    rows = place.stream(spark, maxMessagesPerTrigger=40, minPartitions=3)
    assert " ".join(rows.columns) == (
        "id body priority attempts created_at attributes group_id source offset state"
    )
    ids = place.queue.push_batch(numbered(90), group_id="g")
    urgent = place.queue.push("urgent", priority=9, attributes={"k": "v"})
    first = place.drain(rows)
    assert [each["numInputRows"] for each in first.recentProgress] == [40, 40, 11]
    place.assert_empty(91)
    assert place.written(spark) == Counter([*numbered(90), "urgent"])
    written = spark.read.parquet(str(place.directory / "out"))
    assert {row.id for row in written.select("id").collect()} == {*ids, urgent}
    row = written.where("priority = 9").collect()[0]
    assert (row.text, row.attempts, row.attributes) == ("urgent", 1, {"k": "v"})
    assert (row.source, row.group_id, row.state) == (place.name, None, "sealed")
    assert written.where("group_id = 'g'").count() == 90

    place.queue.push_batch(numbered(5, "later"))
    place.drain(rows)
    place.assert_empty(96)
    assert place.written(spark) == Counter([*numbered(90), "urgent", *numbered(5, "later")])


def test_a_query_that_goes_on(spark: SparkSession, place: Place) -> None:
    running = place.start(place.stream(spark), processingTime="0 seconds")
    try:
        for wave in range(3):
            place.queue.push_batch(numbered(10, f"wave{wave}-"))
            eventually(lambda: place.queue.info().depth == 0, PATIENCE_S)
        progress = running.lastProgress
        assert progress is not None
        assert "ready" in str(progress["sources"][0]["latestOffset"])
    finally:
        running.stop()
    place.assert_empty(30)
    assert sum(place.written(spark).values()) == len(place.written(spark)) == 30


def test_queries_that_compete(spark: SparkSession, place: Place) -> None:
    rows = place.stream(spark, maxMessagesPerTrigger=20)
    running = [place.start(rows, str(each), processingTime="0 seconds") for each in range(2)]
    try:
        for _ in range(5):
            push_more(place)
        eventually(lambda: all_took_some(place, running), PATIENCE_S)
        eventually(lambda: place.queue.info().depth == 0, PATIENCE_S)
    finally:
        for each in running:
            each.stop()
    pushed = place.queue.info().pushed
    place.assert_empty(pushed)
    both = place.written(spark, "0") + place.written(spark, "1")
    assert len(both) == sum(both.values()) == pushed >= 200


def push_more(place: Place) -> None:
    place.queue.push_batch(numbered(40, f"{place.queue.info().pushed}-"))


def all_took_some(place: Place, running: list[StreamingQuery]) -> bool:
    """One query may come seconds after the other, which has taken all there was by then: so there
    is more until both have written something."""
    if place.queue.info().depth == 0:
        push_more(place)
    return all(
        any(progress["numInputRows"] for progress in each.recentProgress) for each in running
    )


def test_a_second_query_on_a_checkpoint_fences_the_first(spark: SparkSession, place: Place) -> None:
    rows = place.stream(spark)
    place.queue.push("one")
    first = place.start(rows, processingTime="0 seconds")
    try:
        eventually(lambda: place.queue.info().acked == 1, PATIENCE_S)
        # A copy under another id: Spark itself stops a query that it knows for the same.
        copy = place.directory / "checkpoint-copy"
        shutil.copytree(place.directory / "checkpoint", copy)
        (copy / "metadata").write_text(json.dumps({"id": str(uuid.uuid4())}))
        (copy / ".metadata.crc").unlink(missing_ok=True)
        shutil.copytree(
            place.directory / "out" / "_spark_metadata",
            place.directory / "out-copy" / "_spark_metadata",
        )
        second = place.start(rows, "-copy", processingTime="0 seconds")
        try:
            with pytest.raises(StreamingQueryException, match="run only one query per checkpoint"):
                first.awaitTermination(PATIENCE_S)
            place.queue.push("two")
            eventually(lambda: place.queue.info().acked == 2, PATIENCE_S)
        finally:
            second.stop()
    finally:
        first.stop()
    assert place.written(spark, "-copy")["two"] == 1


def test_state_is_kept_across_runs(spark: SparkSession, place: Place) -> None:
    """A stateful query: a body that was seen in an earlier run is dropped."""
    rows = place.stream(spark).dropDuplicates(["body"])
    place.queue.push_batch(["a", "b", "a"])
    place.drain(rows)
    place.queue.push_batch(["b", "c"])
    place.drain(rows)
    assert place.written(spark) == Counter(["a", "b", "c"])
    place.assert_empty(5)


def test_counts_by_window(spark: SparkSession, place: Place) -> None:
    counted = (
        place.stream(spark)
        .withWatermark("created_at", "1 minute")
        .groupBy(F.window("created_at", "1 day"), "group_id")
        .count()
    )
    place.queue.push_batch(numbered(4), group_id=["a", "a", "b", "a"])
    query = (
        counted.writeStream.outputMode("complete")
        .format("memory")
        .queryName(f"counts_{id(place)}")
        .option("checkpointLocation", str(place.directory / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(PATIENCE_S)
    found = spark.sql(f"select group_id, sum(count) n from counts_{id(place)} group by 1")
    assert {row.group_id: row.n for row in found.collect()} == {"a": 3, "b": 1}
    place.assert_empty(4)


def test_for_each_batch(spark: SparkSession, place: Place) -> None:
    """The function fails once: the batch comes again with the same number and rows."""
    seen: list[tuple[int, list[str]]] = []

    def take(rows: DataFrame, number: int) -> None:
        texts = [row.text for row in rows.selectExpr("cast(body as string) text").collect()]
        seen.append((number, sorted(texts)))
        if len(seen) == 2:
            raise RuntimeError("on purpose")

    def run() -> Any:
        writing = place.stream(spark, maxMessagesPerTrigger=3).writeStream.foreachBatch(take)
        writing = writing.option("checkpointLocation", str(place.directory / "checkpoint"))
        return writing.trigger(availableNow=True).start().awaitTermination(PATIENCE_S)

    place.queue.push_batch(numbered(5))
    with pytest.raises(StreamingQueryException, match="on purpose"):
        run()
    info = place.queue.info()
    assert (info.depth, list(info.claimed.values())) == (2, [2]), "the second batch is held"
    run()
    assert seen == [(0, ["m0", "m1", "m2"]), (1, ["m3", "m4"]), (1, ["m3", "m4"])]
    place.assert_empty(5)


def test_errors_name_the_problem_and_the_remedy(spark: SparkSession, place: Place) -> None:
    rows = place.stream(spark)
    place.queue.delete()
    with pytest.raises(StreamingQueryException, match=f"QueueNotFound.*{place.name}"):
        place.drain(rows)
