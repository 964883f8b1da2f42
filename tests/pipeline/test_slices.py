"""Slices: shared out whole, read by tasks from the broker, and no message passes Spark."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from nexo.pipeline.delta import EVENTS_TABLE, MESSAGES_TABLE, create_table
from nexo.pipeline.slices import Slice, above, rows_of, shared_out, slice_writer, written
from nexo.spark.options import read_options
from nexo.vocabulary.errors import OffsetExpired

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.pipeline.place import Place


def slices(*costs: int) -> list[Slice]:
    return [Slice("news", 10 * n, 10 * n + 10, cost) for n, cost in enumerate(costs)]


@pytest.mark.parametrize("seed", range(20))
def test_every_slice_is_in_one_share_and_in_order(seed: int) -> None:
    random = Random(seed)
    all_of = slices(*(random.choice([0, 1, 50, 1_000]) for _ in range(random.randrange(40))))
    shares = shared_out(all_of, random.randint(1, 9))
    assert [each for share in shares for each in share] == all_of
    assert all(shares)


def test_shares_cost_about_the_same() -> None:
    assert [len(each) for each in shared_out(slices(*[7] * 10), 2)] == [5, 5]
    assert [len(each) for each in shared_out(slices(900, *[100] * 9), 2)] == [1, 9]
    assert [len(each) for each in shared_out(slices(5), 4)] == [1]
    assert shared_out([], 4) == []


def test_what_the_table_has_is_left_out() -> None:
    queue = Slice("nexo.archive.orders", 0, 10)
    left = above([*slices(1, 1, 1), queue], {"news": 12, "orders": 10})
    assert [(each.topic, each.start, each.stop) for each in left] == [
        ("news", 12, 20),
        ("news", 20, 30),
    ]


def test_tasks_read_their_slices_themselves(spark: SparkSession, place: Place) -> None:
    topic = place.client.create_topic(place.name)
    topic.publish_batch([str(number) for number in range(100)])
    for kind in (MESSAGES_TABLE, EVENTS_TABLE):
        create_table(place.lake, kind)
    options = {"endpoint": place.url, "topic": topic.name}
    parts = [Slice(topic.name, low, low + 20, 20) for low in range(10, 90, 20)]
    files = written(spark, place.lake, options, parts)
    assert sorted((each.first, each.last, each.rows) for each in files) == [
        (10, 49, 40),
        (50, 89, 40),
    ]
    assert written(spark, place.lake, options, []) == []


def test_messages_that_have_gone_since_they_were_planned(place: Place) -> None:
    """Retention goes on between the plan and the task: told, or left out if that is allowed."""
    topic = place.client.create_topic(place.name, retention_messages=5)
    for number in range(20):
        topic.publish(str(number))
    start = topic.info().start
    assert start > 0
    create_table(place.lake, MESSAGES_TABLE)
    strict = read_options({"endpoint": place.url, "topic": topic.name})
    gone = [Slice(topic.name, 0, 20)]
    with pytest.raises(OffsetExpired):
        list(rows_of(strict, gone))
    assert not list((place.directory / "lake" / "messages").glob("source=*"))
    patient = read_options({"endpoint": place.url, "topic": topic.name, "failOnDataLoss": "false"})
    (rows,) = (rows for _, rows in rows_of(patient, gone))
    assert rows["offset"].to_pylist() == list(range(start, 20))
    assert slice_writer(place.lake, patient, [gone]) is not None
