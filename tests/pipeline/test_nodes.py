"""The jobs on a cluster: the events of all shards, and queues wherever they live."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

import nexo
from nexo.pipeline import insights
from nexo.vocabulary.names import is_events
from tests.cluster.nodes import running
from tests.cluster.test_one_address import apart
from tests.pipeline.place import Place

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.postgresql import PostgresqlServer

PUSHED = 30


@pytest.mark.soak
def test_archive_and_insights_of_a_cluster(
    spark: SparkSession, tmp_path: Path, postgresql: PostgresqlServer
) -> None:
    (tmp_path / "nodes").mkdir()
    with (
        postgresql.database("cluster_pipeline") as url,
        running(tmp_path / "nodes", url, "a", "b") as nodes,
        nexo.connect(nodes["a"].url) as client,
    ):
        place = Place(nodes["b"].url, client, "queue", tmp_path)
        names = [f"{name}.jobs" for name in apart(nodes)]

        def work() -> None:
            for name in names:
                queue = client.create_queue(name, archive=True)
                queue.push_batch([f"{each}" for each in range(PUSHED)])
                for message in queue.pop_batch(PUSHED):
                    message.ack()

        def ends() -> int:
            return sum(each.end for each in client.topics() if is_events(each.name))

        work()
        told = place.archive(spark, queues=tuple(names))
        assert {each: told.sources[each].rows for each in names} == dict.fromkeys(names, PUSHED)
        assert told.sources["nexo.events"].rows == ends()
        figures(spark, place)

        nodes.kill("b")  # the offsets of its shards go on where they were
        work()
        place = Place(nodes["a"].url, client, "queue", tmp_path)
        place.archive(spark, queues=tuple(names))
        told = place.archive(spark, queues=tuple(names))
        assert told.sources["nexo.events"].rows == 0
        rows = place.events()
        assert len(rows) == ends()
        came: Counter[tuple[str, str]] = Counter()
        for row in rows:
            came[row["queue"], row["kind"]] += row["count"]
        for name in names:
            assert came[name, "pushed"] == came[name, "acked"] == 2 * PUSHED
            assert [row["offset"] for row in place.messages(name)] == list(range(2 * PUSHED))

        figures(spark, place)
        arrived: Counter[str] = Counter()
        for row in place.insights("queue_minutes"):
            arrived[row["queue"]] += row["arrivals"]
        assert arrived == dict.fromkeys(names, 2 * PUSHED)


def figures(spark: SparkSession, place: Place) -> None:
    insights.run(place.running(spark, "insights"), place.lake, insights.Insights(once=True))
