"""Topics in Spark: by offsets and times, as a stream and in batches, with what retention took."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

from nexo.spark import topics as topics_read
from nexo.spark.link import raw_read
from nexo.spark.options import read_options
from nexo.spark.patience import Patience
from nexo.spark.topic_batch import TopicReader
from nexo.spark.topic_stream import TopicStreamReader, ends_of
from nexo.vocabulary.errors import InvalidArgument, NexoError, OffsetExpired, TopicNotFound

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from nexo import Topic
    from tests.spark.place import Place

ALL = ReadAllAvailable()


def topic(place: Place, suffix: str = "", count: int = 10, kept: int = 1_000) -> Topic:
    made = place.client.create_topic(place.name + suffix, retention_messages=kept)
    if count:
        made.publish_batch([f"m{number}" for number in range(count)])
    return made


def reader(place: Place, **options: Any) -> TopicStreamReader:
    return TopicStreamReader(read_options(place.options(**options)))


def offsets_of(rows: DataFrame) -> list[int]:
    return sorted(row.offset for row in rows.select("offset").collect())


def texts(source: TopicStreamReader, planned: Any) -> list[str]:
    return [
        body.decode()
        for piece in planned
        for rows in source.read(piece)
        for body in rows.column("body").to_pylist()
    ]


def test_ranges_in_batches(spark: SparkSession, place: Place) -> None:
    made = topic(place, count=20)
    made.publish("last", attributes={"k": "v"})
    rows = place.table(spark, topic=made.name, minPartitions=4)
    assert rows.columns[-1] == "offset", "a message of a topic has no state"
    assert offsets_of(rows) == list(range(21))
    assert rows.rdd.getNumPartitions() == 4
    last = rows.where("offset = 20").collect()[0]
    assert (last.id, bytes(last.body), last.attributes) == (f"{made.name}:20", b"last", {"k": "v"})
    assert (last.source, last.attempts, last.priority) == (made.name, 0, 0)
    limited = place.table(
        spark,
        topic=made.name,
        startingOffsets=f'{{"{made.name}": 5}}',
        endingOffsets=f'{{"{made.name}": 8}}',
    )
    assert offsets_of(limited) == [5, 6, 7]
    assert offsets_of(place.table(spark, topic=made.name, startingOffsets="latest")) == []


def test_from_a_time(spark: SparkSession, place: Place) -> None:
    made = topic(place, count=3)
    first = made.publish("middle")
    moment = made.read(first)[0].published_at
    rows = place.table(spark, topic=made.name, startingTimestamp=moment.isoformat())
    found = offsets_of(rows)
    assert found[-1] == first
    assert found == list(range(found[0], first + 1))
    later = place.table(spark, topic=made.name, startingTimestamp="2099-01-01")
    assert offsets_of(later) == []


def test_from_and_until_a_time(place: Place) -> None:
    """Of each topic its own beginning; topics that are not named begin as they would."""
    one, other = topic(place, "-a", count=3), topic(place, "-b", count=3)
    between_ms = int(time.time() * 1000) + 1
    time.sleep(0.005)
    for made in (one, other):
        made.publish_batch(["n0", "n1"])

    def ranges(**options: Any) -> dict[str, tuple[int, int]]:
        asked = place.options(topic=f"{one.name},{other.name}", **options)
        planned: Any = TopicReader(read_options(asked)).partitions()
        return {each.topic: (each.start, each.stop) for each in planned}

    by_topic = f'{{"{one.name}": {between_ms}}}'
    found = ranges(startingOffsetsByTimestamp=by_topic)
    assert found == {one.name: (3, 5), other.name: (0, 5)}
    assert ranges(endingTimestamp=between_ms) == {one.name: (0, 3), other.name: (0, 3)}
    with pytest.raises(InvalidArgument, match="names elsewhere, which this query does not read"):
        ranges(startingOffsetsByTimestamp='{"elsewhere": 5}')


def test_a_stream_waits_until_enough_is_there(place: Place) -> None:
    made = topic(place, count=3)
    asked = {"topic": made.name, "startingOffsets": "earliest", "minMessagesPerTrigger": 4}
    source = reader(place, **asked)
    start = source.initialOffset()
    assert source.latestOffset(start, ALL) == start
    made.publish("m3")
    assert ends_of(source.latestOffset(start, ALL)) == {made.name: 4}


def test_a_stream_waits_anew_after_each_batch(place: Place) -> None:
    """The delay counts from the last micro-batch, not from the start of the query."""
    now, made = [0.0], topic(place, count=1)
    asked = {"topic": made.name, "startingOffsets": "earliest", "minMessagesPerTrigger": 3}
    source = reader(place, **asked)
    options = read_options(place.options(**asked, maxTriggerDelay="60s"))
    source._patience = Patience(options, lambda: now[0])
    start = source.initialOffset()
    assert source.latestOffset(start, ALL) == start
    now[0] = 61.0
    end = source.latestOffset(start, ALL)
    assert ends_of(end) == {made.name: 1}, "the last one is too long ago"
    made.publish("m1")
    assert source.latestOffset(end, ALL) == end
    now[0] = 122.0
    assert ends_of(source.latestOffset(end, ALL)) == {made.name: 2}


def test_a_stream_of_topics_by_pattern(spark: SparkSession, place: Place) -> None:
    one, two = topic(place, ".one"), topic(place, ".two", count=5)
    topic(place, "-other")
    pattern = rf"{place.name}\..*"
    rows = (
        spark.readStream.format("nexo")
        .options(**place.options(topicPattern=pattern, maxMessagesPerTrigger=6))
        .option("startingOffsets", f'{{"{one.name}": 8, "{two.name}": -2}}')
        .load()
    )
    first = place.drain(rows)
    assert [each["numInputRows"] for each in first.recentProgress] == [6, 1]
    assert place.written(spark) == Counter(["m8", "m9", *[f"m{n}" for n in range(5)]])
    one.publish("more")
    topic(place, ".three", count=0).publish("of a new topic")
    place.drain(rows)
    more = place.written(spark)
    assert (more["more"], more["of a new topic"], more.total()) == (1, 1, 9)
    assert one.info().end == 11, "reading removes nothing"


def test_latest_is_where_a_stream_begins_unless_told(place: Place) -> None:
    made = topic(place)
    source = reader(place, topic=made.name)
    start = source.initialOffset()
    assert start == {made.name: 10}
    assert source.latestOffset(start, ALL) == start
    made.publish("new")
    end = source.latestOffset(start, ALL)
    assert texts(source, source.partitions(start, end)) == ["new"]
    assert source.reportLatestOffset() == {made.name: 11}
    again = reader(place, topic=made.name)
    assert texts(again, again.partitions(start, end)) == ["new"]


def test_the_next_answer_is_asked_for_before_rows_are_handed_on(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker works while Spark does."""
    made = topic(place)
    source = reader(place, topic=made.name, startingOffsets="earliest")
    start = source.initialOffset()
    (piece,) = source.partitions(start, source.latestOffset(start, ALL))
    asked: list[int] = []

    def counted(topic: str, offset: int, *more: Any) -> Any:
        asked.append(offset)
        return raw_read(topic, offset, *more)

    monkeypatch.setattr(topics_read, "READ_MESSAGES", 4)
    monkeypatch.setattr(topics_read, "raw_read", counted)
    seen = [(rows.num_rows, list(asked)) for rows in source.read(piece)]
    assert seen == [(4, [0, 4]), (4, [0, 4, 8]), (2, [0, 4, 8])]


def test_limits(place: Place) -> None:
    made, other = topic(place, ".a", 30), topic(place, ".b", 10)
    names = f"{made.name},{other.name}"
    source = reader(place, topic=names, startingOffsets="earliest", minPartitions=4)
    start = source.initialOffset()
    assert ends_of(source.latestOffset(start, ReadMaxRows(8))) == {made.name: 6, other.name: 2}
    assert source.latestOffset(start, ReadMaxBytes(1)) != start
    end = source.latestOffset(start, ALL)
    assert ends_of(end) == {made.name: 30, other.name: 10}
    assert len(source.partitions(start, end)) == 4
    assert source.getDefaultReadLimit() == ALL


def test_an_available_now_run_ends_where_the_topic_ended(place: Place) -> None:
    made = topic(place)
    source = reader(place, topic=made.name, startingOffsets="earliest")
    start = source.initialOffset()
    source.prepareForTriggerAvailableNow()
    made.publish("late")
    end = source.latestOffset(start, ALL)
    assert ends_of(end) == {made.name: 10}
    assert source.latestOffset(end, ALL) == end


def test_what_retention_took(place: Place) -> None:
    made = topic(place, count=10, kept=10)
    source = reader(place, topic=made.name, startingOffsets="earliest")
    start = source.initialOffset()
    end = source.latestOffset(start, ALL)
    planned = source.partitions(start, end)
    made.publish_batch([f"n{number}" for number in range(5)])
    with pytest.raises(OffsetExpired):
        texts(source, planned)
    for step in (
        lambda: source.partitions(start, end),
        lambda: source.latestOffset(start, ALL),
    ):
        with pytest.raises(OffsetExpired, match=r"0 to 5 .* beyond retention .*failOnDataLoss"):
            step()
    careless = reader(place, topic=made.name, failOnDataLoss="false")
    assert texts(careless, planned) == [f"m{number}" for number in range(5, 10)]
    again = careless.partitions(start, end)
    assert texts(careless, again) == [f"m{number}" for number in range(5, 10)]
    assert ends_of(careless.latestOffset(start, ALL)) == {made.name: 15}
    made.publish_batch([f"o{number}" for number in range(10)])
    assert texts(careless, planned) == [], "all of it is gone"


def test_a_topic_that_is_gone_or_another(place: Place) -> None:
    made = topic(place)
    source = reader(place, topicPattern=made.name, startingOffsets="earliest")
    end = source.latestOffset(source.initialOffset(), ALL)
    made.delete()
    with pytest.raises(TopicNotFound, match="is gone"):
        source.latestOffset(end, ALL)
    anew = topic(place, count=3)
    with pytest.raises(OffsetExpired, match="ends at 3, before offset 10"):
        source.latestOffset(end, ALL)
    careless = reader(place, topicPattern=made.name, failOnDataLoss="false")
    moved = careless.latestOffset(end, ALL)
    assert texts(careless, careless.partitions(end, moved)) == ["m0", "m1", "m2"]
    assert anew.name == made.name


def test_offsets_of_topics_that_are_not_read(place: Place) -> None:
    made = topic(place)
    for given in ('{"another": 1}', f'{{"{made.name}": -3}}'):
        source = reader(place, topic=made.name, startingOffsets=given)
        with pytest.raises(InvalidArgument, match="startingOffsets"):
            source.initialOffset()


def test_offsets_of_topics_that_are_not_named(place: Place) -> None:
    """A star stands for them, in a stream and in a batch; without one they begin as usual."""
    one, two = topic(place, ".one"), topic(place, ".two", count=5)
    pattern = rf"{place.name}\..*"
    for given, begins in (
        (f'{{"{one.name}": 8, "*": -2}}', (8, 0)),
        (f'{{"{one.name}": 8, "*": -1}}', (8, 5)),
        ('{"*": 3}', (3, 3)),
        (f'{{"{one.name}": 8}}', (8, 5)),
    ):
        source = reader(place, topicPattern=pattern, startingOffsets=given)
        assert tuple(source.initialOffset()[made.name] for made in (one, two)) == begins, given
    asked = place.options(
        topicPattern=pattern,
        startingOffsets=f'{{"{one.name}": 8, "*": 4}}',
        endingOffsets=f'{{"{one.name}": 9, "*": -1}}',
    )
    planned: Any = TopicReader(read_options(asked)).partitions()
    found = {each.topic: (each.start, each.stop) for each in planned}
    assert found == {one.name: (8, 9), two.name: (4, 5)}
    with pytest.raises(InvalidArgument, match="startingOffsets has -3"):
        reader(place, topicPattern=pattern, startingOffsets='{"*": -3}').initialOffset()


def test_a_topic_that_is_not_there(spark: SparkSession, place: Place) -> None:
    with pytest.raises(AnalysisException, match="TopicNotFound"):
        place.table(spark, topic=place.name).collect()
    with pytest.raises(NexoError, match=place.name):
        reader(place, topic=place.name).initialOffset()
