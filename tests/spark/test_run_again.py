"""A micro-batch that Spark runs again is cut as it was before, whatever has changed meanwhile: the
sink tells rows apart by their partition, and must take each of them once."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from nexo.spark import slices
from nexo.spark import writer as writing
from nexo.spark.options import read_options
from nexo.spark.topic_stream import TopicStreamReader
from tests.spark.place import PATIENCE_S

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from nexo import Queue
    from nexo.spark.queue_stream import QueueStreamReader
    from tests.spark.place import Place

SMALL = [f"m{number}" for number in range(10)]


@pytest.fixture(autouse=True)
def small_cuts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "_SLICE_BYTES", 6_000)
    monkeypatch.setattr(writing, "RUN_ROWS_MAX", 5)


def sink_of(place: Place) -> Queue:
    return place.client.create_queue(f"{place.name[:40]}-sink")


def run(
    place: Place, source: QueueStreamReader | TopicStreamReader, planned: Any, sink: Queue
) -> None:
    """The tasks of the first micro-batch, into the sink."""
    options = read_options(place.options(queue=sink.name))
    for number, piece in enumerate(planned):
        task = writing._Writing(options, to_topic=False, producer=f"{sink.name}/{number}", first=0)
        for rows in writing.runs(rows.select(["body"]) for rows in source.read(piece)):
            task.push(rows)
        task.finish()


def texts(queue: Queue) -> Counter[str]:
    return Counter(message.text for message in queue.peek(1_000))


def logged(offset: dict[str, Any]) -> Any:
    """As it comes back from Spark's offsets log."""
    return json.loads(json.dumps(offset))


def test_a_batch_of_a_queue_whose_estimate_has_changed(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.queue.push_batch(SMALL)
    sink, reader = sink_of(place), place.reader(maxMessagesPerTrigger=10)
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    planned = reader.partitions(start, end)
    run(place, reader, planned, sink)
    monkeypatch.setattr(slices, "_SLICE_BYTES", 12)  # as if the batch were much larger
    again = place.reader()
    replanned = again.partitions(logged(start), logged(end))
    run(place, again, replanned, sink)
    assert texts(sink) == Counter(SMALL)
    assert len(replanned) == len(planned) == 1
    # A checkpoint of an older version does not say it. It is read, by what is estimated now.
    older = {"consumer": end["consumer"], "batch": end["batch"]}
    unsaid = place.reader()
    cut = unsaid.partitions(start, older)
    assert len(cut) == 2, "the estimate is another one"
    assert sum(rows.num_rows for piece in cut for rows in unsaid.read(piece)) == 10
    assert unsaid.latestOffset(older, ReadAllAvailable()) == older


def test_a_batch_of_a_topic_whose_estimate_has_changed(place: Place) -> None:
    topic = place.client.create_topic(place.name, retention_messages=1_000)
    topic.publish_batch(SMALL)

    def reader(**options: Any) -> TopicStreamReader:
        options = {"topic": topic.name, "startingOffsets": "earliest", **options}
        return TopicStreamReader(read_options(place.options(**options)))

    sink, source = sink_of(place), reader()
    start = source.initialOffset()
    end = source.latestOffset(start, ReadAllAvailable())
    assert len(source.partitions(start, end)) == 1
    run(place, source, source.partitions(start, end), sink)
    topic.publish_batch(["x" * 2_000] * 10)
    again = reader()
    run(place, again, again.partitions(logged(start), logged(end)), sink)
    assert texts(sink) == Counter(SMALL)
    assert again.partitions(end, end) == []
    older = reader()
    cut: Any = older.partitions({topic.name: 0}, {topic.name: 10})
    assert [(piece.start, piece.stop) for piece in cut] == [(0, 5), (5, 10)], "by the estimate"
    moved = older.latestOffset({topic.name: 10}, ReadAllAvailable())
    more: Any = older.partitions({topic.name: 10}, moved)
    assert (more[0].start, more[-1].stop) == (10, 20)


def test_a_driver_that_died_before_the_commits_log(spark: SparkSession, place: Place) -> None:
    """From queue to queue, with another number of slices asked for when it comes back."""
    place.queue.push_batch(SMALL)
    sink = sink_of(place)

    def run_query(slices_min: int, **trigger: bool) -> list[int]:
        query = (
            place.stream(spark, minPartitions=slices_min)
            .select("body")
            .writeStream.format("nexo")
            .options(**place.options(queue=sink.name))
            .option("checkpointLocation", str(place.directory / "checkpoint"))
            .trigger(**trigger)
            .start()
        )
        assert query.awaitTermination(PATIENCE_S)
        return [each["batchId"] for each in query.recentProgress if each["numInputRows"]]

    assert run_query(1, once=True) == [0], "it ends without an ack"
    commits = place.directory / "checkpoint" / "commits"
    (commits / "0").unlink()
    (commits / ".0.crc").unlink()
    assert run_query(2, availableNow=True) == [0]
    assert texts(sink) == Counter(SMALL)
    place.assert_empty(10)
