"""archive: everything that was pushed and published is in the lake, once, byte for byte."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

from nexo.pipeline.archive import BATCH_MESSAGES, Archive, run
from nexo.pipeline.commits import Commits
from nexo.pipeline.delta import MESSAGES_TABLE, store_errors
from nexo.pipeline.failures import explained
from nexo.pipeline.insights import Insights
from nexo.pipeline.insights import run as figures
from nexo.pipeline.status import read_statuses
from nexo.vocabulary.errors import (
    InvalidArgument,
    NexoError,
    OffsetExpired,
    QueueNotFound,
    ReadOnly,
    TopicNotFound,
)
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

    # The next run goes on, with other sources and in smaller batches too.
    queue.push_batch(pushed[200:], priority=3)
    place.archive(spark, queues=(queue.name,), batch_messages=30)
    told = place.archive(spark, queues=(queue.name,), topics=(topic.name,))
    assert told.sources[queue.name].rows == told.sources[topic.name].rows == 0

    rows = place.messages(queue.name)
    assert [row["body"] for row in rows] == pushed
    assert [row["offset"] for row in rows] == list(range(300))
    assert {(row["priority"], row["attributes"]) for row in rows} == {(3, None)}
    assert all(abs((datetime.now(UTC) - row["created_at"]).total_seconds()) < 600 for row in rows)
    rows = place.messages(topic.name)
    assert [row["body"] for row in rows] == published
    assert all(row["attributes"] == [("colour", "red")] for row in rows)

    assert {row["date"] for row in rows} == {row["created_at"].date() for row in rows}
    pushes = [row for row in place.events() if row["kind"] == "pushed"]
    assert sum(row["count"] for row in pushes) == 300
    columns = "kind queue first_seq count at created_at attempts consumer reason"
    assert set(columns.split()) <= set(pushes[0])
    assert [(each.job, each.state, each.error) for each in read_statuses(place.lake)] == [
        ("archive", "finished", "")
    ]


def test_what_cannot_be_archived_is_said_first(spark: SparkSession, place: Place) -> None:
    place.client.create_queue(place.name)
    running = place.running(spark, "archive")
    for asked, refusal in (
        (Archive(queues=(place.name,)), InvalidArgument),
        (Archive(queues=(place.name,), topics=(place.name,)), InvalidArgument),
        (Archive(queues=("nobody",)), QueueNotFound),
        (Archive(topics=("nobody",)), TopicNotFound),
        (Archive(topic_patterns=("(",)), InvalidArgument),
    ):
        with pytest.raises(refusal):
            run(running, place.lake, asked)
    assert not Path(place.lake.table("messages")).exists()


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
    running = place.running(spark, "archive", lambda: has_both())

    def has_both() -> bool:
        part = running.teller.status.sources.get(topic.name)
        rows = 0 if part is None else part.rows
        if rows == 1 and topic.info().end == 1:
            topic.publish("second")
        return rows == 2

    run(running, place.lake, Archive(topics=(topic.name,), every_s=0.1))
    assert [row["body"] for row in place.messages(topic.name)] == [b"first", b"second"]
    assert not list(Path(place.lake.checkpoint("archive", None)).iterdir())


def test_topics_by_a_pattern_and_those_that_come_later(spark: SparkSession, place: Place) -> None:
    first = place.client.create_topic(f"{place.name}-1")
    first.publish("a")
    queue = place.client.create_queue(f"{place.name}-queue", archive=True)
    queue.push("b")
    later = f"{place.name}-2"

    def has_all() -> bool:
        sources = running.teller.status.sources
        if first.name in sources and later not in {each.name for each in place.client.topics()}:
            place.client.create_topic(later).publish("c")
        return later in sources and sources[later].rows == 1

    running = place.running(spark, "archive", lambda: has_all())
    asked = Archive(topic_patterns=(f"{place.name}-.",), queues=(queue.name,), every_s=0.1)
    run(running, place.lake, asked)
    for name, body in ((first.name, b"a"), (queue.name, b"b"), (later, b"c")):
        assert [row["body"] for row in place.messages(name)] == [body]
    sources = {row["source"] for row in place.table("messages").to_pyarrow_table().to_pylist()}
    assert sources == {first.name, queue.name, later}, "nothing of the broker's own"


class Died(Exception):
    """The process is gone."""


POINTS = [(table, moment) for table in ("messages", "events") for moment in ("before", "after")]


@pytest.mark.parametrize(("table", "moment"), POINTS)
def test_a_driver_that_dies_at_a_commit(
    spark: SparkSession, place: Place, monkeypatch: pytest.MonkeyPatch, table: str, moment: str
) -> None:
    """Files are written, one table has the batch and the other not, both have it and Spark does
    not know: the next run makes it whole."""
    topic = place.client.create_topic(place.name)
    queue = place.client.create_queue(f"{place.name}-queue", archive=True)
    bodies = some_bodies(100)
    topic.publish_batch(bodies)
    queue.push_batch(bodies)
    put = Commits._put

    def die(self: Commits, *arguments: Any) -> None:
        if self.kind.name == table and moment == "before":
            raise Died
        put(self, *arguments)
        if self.kind.name == table:
            raise Died

    asked = {"topics": (topic.name,), "queues": (queue.name,)}
    with monkeypatch.context() as patched:
        patched.setattr(Commits, "_put", die)
        with pytest.raises(NexoError, match="Spark failed"):
            place.archive(spark, **asked)
    queue.push_batch(bodies)
    place.archive(spark, **asked)
    assert [row["body"] for row in place.messages(topic.name)] == bodies
    assert [row["offset"] for row in place.messages(queue.name)] == list(range(200))
    pushes = [row["count"] for row in place.events() if row["kind"] == "pushed"]
    assert sum(pushes) == 200


def test_two_archives_of_the_same_messages(
    spark: SparkSession, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another has brought a part of the batch, while this one wrote its files."""
    topic = place.client.create_topic(place.name)
    bodies = some_bodies(20)
    topic.publish_batch(bodies)
    commit = Commits.commit
    others: list[str] = []

    def after_another(self: Commits, *arguments: Any) -> set[str]:
        if self.kind is MESSAGES_TABLE and not others:
            others.append("one")
            with monkeypatch.context() as patched:
                patched.setattr(Commits, "commit", commit)
                place.archive(spark, topics=(topic.name,), batch_messages=7)
        return commit(self, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(Commits, "commit", after_another)
        place.archive(spark, topics=(topic.name,))
    assert [row["body"] for row in place.messages(topic.name)] == bodies


def test_a_topic_that_was_made_anew(spark: SparkSession, place: Place) -> None:
    topic = place.client.create_topic(place.name)
    topic.publish_batch([b"1", b"2", b"3"])
    place.archive(spark, topics=(topic.name,))
    topic.delete()
    place.client.create_topic(place.name).publish(b"4")
    with pytest.raises(OffsetExpired, match="another"):
        place.archive(spark, topics=(topic.name,))
    place.archive(spark, topics=(topic.name,), fail_on_data_loss=False)
    place.archive(spark, topics=(topic.name,))
    bodies = sorted(row["body"] for row in place.messages(topic.name))
    assert bodies == [b"1", b"2", b"3", b"4"]


def test_a_full_disk_is_said_in_one_line(
    spark: SparkSession, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = place.client.create_topic(place.name)
    topic.publish("a")
    folder = place.directory / "lake"

    def full(*_: Any, **__: Any) -> None:
        with store_errors(str(folder)):
            raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(Commits, "_put", full)
        with pytest.raises(ReadOnly, match="full") as refused:
            place.archive(spark, topics=(topic.name,))
    assert "\n" not in str(refused.value)
    place.archive(spark, topics=(topic.name,))
    assert [row["body"] for row in place.messages(topic.name)] == [b"a"]
    of_java = explained(
        PySparkException("o50.start.\njava.io.IOException: No space left on device")
    )
    assert isinstance(of_java, ReadOnly)
    assert "is full" in str(of_java)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/sys is what root cannot write")
def test_state_that_cannot_be_written_is_said_in_one_line(
    spark: SparkSession, place: Place
) -> None:
    """Java would say it in a hundred lines."""
    topic = place.client.create_topic(place.name)
    with pytest.raises(ReadOnly, match=r"/sys/nexo.* cannot be written"):
        place.archive(spark, topics=(topic.name,), checkpoint="/sys/nexo")
    running = place.running(spark, "insights")
    with pytest.raises(ReadOnly, match="/sys/nexo cannot be written"):
        figures(running, place.lake, Insights(once=True, checkpoint="/sys/nexo"))
