"""archive: everything that was pushed and published is in the lake, once, byte for byte."""

from __future__ import annotations

import shutil
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nexo.pipeline.archive import BATCH_MESSAGES, Archive, run
from nexo.pipeline.insights import Insights
from nexo.pipeline.lake import Lake
from nexo.pipeline.status import read_statuses
from nexo.vocabulary.errors import InvalidArgument, QueueNotFound, TopicNotFound, WrongState
from tests.pipeline.place import some_bodies

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.pipeline.place import Place


def test_topics_queues_and_events_in_the_lake(spark: SparkSession, place: Place) -> None:
    queue = place.client.create_queue(place.name, archive=True)
    topic = place.client.create_topic(f"{place.name}-topic")
    pushed, published = some_bodies(300), some_bodies(40, seed=2)
    queue.push_batch(pushed[:200], priority=3)
    for body in published:
        topic.publish(body, attributes={"colour": "red"})
    told = place.archive(spark, queues=(queue.name,), topics=(topic.name,))
    assert told.sources[queue.name].rows == 200
    assert told.sources[topic.name].rows == 40
    assert told.lag == 0

    checkpoint = place.lake.internal("checkpoints", "archive", f"nexo.archive.{queue.name}")
    older = shutil.copytree(checkpoint, place.directory / "older")
    queue.push_batch(pushed[200:250], priority=3)
    # Whoever throws away the checkpoints does not get everything twice, nor does one who leaves
    # a source out for once.
    shutil.rmtree(place.lake.internal("checkpoints"))
    place.archive(spark, queues=(queue.name,))
    # Nor does one who puts an older checkpoint back.
    queue.push_batch(pushed[250:], priority=3)
    shutil.rmtree(checkpoint)
    older.rename(checkpoint)
    place.archive(spark, queues=(queue.name,), batch_messages=30)

    rows = place.messages(queue.name)
    assert [row["body"] for row in rows] == pushed
    assert [row["offset"] for row in rows] == list(range(300))
    assert {(row["priority"], row["attributes"]) for row in rows} == {(3, None)}
    assert all(abs((datetime.now(UTC) - row["created_at"]).total_seconds()) < 600 for row in rows)
    rows = place.messages(topic.name)
    assert [row["body"] for row in rows] == published
    assert all(row["attributes"] == [("colour", "red")] for row in rows)

    today = f"{datetime.now(UTC):%Y-%m-%d}"
    assert any(place.lake.messages.glob(f"source={queue.name}/date={today}/*.parquet"))
    pushes = [row for row in place.events() if row["kind"] == "pushed"]
    assert sum(row["count"] for row in pushes) == 300
    columns = "kind queue first_seq count at created_at attempts consumer reason"
    assert set(columns.split()) <= set(pushes[0])
    assert [(each.job, each.state, each.error) for each in read_statuses(place.lake)] == [
        ("archive", "finished", "")
    ]


def test_a_queue_named_like_a_number_is_no_number(spark: SparkSession, place: Place) -> None:
    folder = place.lake.messages / "source=0123" / "date=2026-05-31"
    folder.mkdir(parents=True)
    pq.write_table(pa.table({"body": [b"x"]}), folder / "part-0.parquet")
    row = place.lake.read_messages(spark).first()
    assert row is not None
    assert (row["source"], row["date"], bytes(row["body"])) == ("0123", date(2026, 5, 31), b"x")


def test_what_cannot_be_archived_is_said_first(spark: SparkSession, place: Place) -> None:
    place.client.create_queue(place.name)
    running = place.running(spark, "archive")
    for asked, refusal in (
        (Archive(queues=(place.name,)), InvalidArgument),
        (Archive(queues=(place.name,), topics=(place.name,)), InvalidArgument),
        (Archive(queues=("nobody",)), QueueNotFound),
        (Archive(topics=("nobody",)), TopicNotFound),
    ):
        with pytest.raises(refusal):
            run(running, place.lake, asked)
    assert not place.lake.messages.exists()


@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
def test_a_format_that_the_session_has_not(
    spark: SparkSession, place: Place, table_format: str
) -> None:
    lake = Lake(place.directory, table_format)
    with pytest.raises(InvalidArgument, match=f"no {table_format}") as refused:
        run(place.running(spark, "archive"), lake, Archive(once=True))
    assert "spark.jars.packages" in refused.value.hint


def test_one_archive_on_a_lake_at_a_time(spark: SparkSession, place: Place) -> None:
    with place.lake.only_one("archive"), pytest.raises(WrongState, match="process"):
        run(place.running(spark, "archive"), place.lake, Archive(once=True))


def test_a_micro_batch_holds_what_comes_in_its_time() -> None:
    """It waits for the next tick however early it ended, so its size bounds the speed."""
    assert Archive().messages_max / Archive().every_s >= 500_000
    assert Archive(every_s=60.0).messages_max / 60 >= 500_000
    assert Archive(every_s=0.1).messages_max == Archive(once=True).messages_max == BATCH_MESSAGES
    assert Archive(batch_messages=25).messages_max == 25
    assert Insights().events_max / Insights().every_s >= 300_000
    assert Insights(batch_events=25).events_max == 25


def test_it_goes_on_until_it_is_told_to_stop(spark: SparkSession, place: Place) -> None:
    topic = place.client.create_topic(place.name)
    topic.publish("first")
    kept = place.lake.messages / f"source={topic.name}"

    def has_both() -> bool:
        files = list(kept.rglob("*.parquet"))
        if len(files) == 1 and topic.info().end == 1:
            topic.publish("second")
        return len(files) == 2

    running = place.running(spark, "archive", has_both)
    run(running, place.lake, Archive(topics=(topic.name,), every_s=0.1))
    assert [row["body"] for row in place.messages(topic.name)] == [b"first", b"second"]
    assert running.teller.status.sources[topic.name].rows == 2
