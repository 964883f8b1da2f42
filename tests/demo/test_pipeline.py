"""The Spark job on small data, with a broker."""

from __future__ import annotations

import json
import time
from collections import Counter
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from examples.gps import names
from examples.gps.lake import alert_ids, position_ids
from examples.gps.pipeline import Pipeline
from examples.gps.position import Position, encode
from tests.demo.test_motion import MOVE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from nexo import Client
    from tests.cli.commands import BrokerProcess


def drive(path: str, vehicle: str, metres_per_second: float, seconds: int) -> list[bytes]:
    """Northwards, for some seconds until now."""
    began_ms = int(time.time() * 1000) // 10_000 * 10_000 - 1_000 * seconds
    lats = [45 + n * metres_per_second / 111_195 for n in range(seconds)]
    return [
        encode(Position(f"{path}-{vehicle}-{n}", vehicle, path, began_ms + 1_000 * n, lat, 9.0))
        for n, lat in enumerate(lats)
    ]


def test_from_all_ways_into_the_lake_and_to_alerts(
    spark: SparkSession, broker: BrokerProcess, client: Client, tmp_path: Path
) -> None:
    calm = drive("udp", "calm", 15, 60)
    mad = drive("native", "mad", 40, 60)
    bad = encode(Position("native-bad-1", "bad", "native", int(time.time() * 1000), 0.0, 0.0))
    client.topic(names.BY_UDP).publish_batch(calm)
    client.queue(names.POSITIONS).push_batch([*mad, bad])
    lake = tmp_path / "lake"
    pipeline = Pipeline(spark, broker.url, lake)
    queries = [pipeline.keep_positions(), pipeline.watch_motion()]
    for query in queries:
        query.processAllAvailable()
    client.queue(names.POSITIONS).push_batch(drive("sqs", "late", 15, 5))
    for query in queries:
        query.processAllAvailable()
        query.stop()
    sent = [json.loads(body)["id"] for body in (*calm, *mad, bad, *drive("sqs", "late", 15, 5))]
    assert Counter(position_ids(lake)) == Counter(sent)
    assert client.queue(names.POSITIONS).info().depth == 0
    letters = client.queue(names.ALERTS).peek(100)
    assert {each.attributes["vehicle"] for each in letters} == {"mad"}
    assert {each.priority for each in letters} == {9}
    assert len(letters) >= 4, "of six windows all are over but the last"
    assert sorted(alert_ids(lake)) == sorted(each.json()["id"] for each in letters)


@contextmanager
def part_of(spark: SparkSession, batch: int) -> Iterator[None]:
    """As in `foreachBatch`: tasks are told of which query and micro-batch they are."""
    told = {"sql.streaming.queryId": "a-query", "streaming.sql.batchId": str(batch)}
    for name, value in told.items():
        spark.sparkContext.setLocalProperty(name, value)
    try:
        yield
    finally:
        for name in told:
            spark.sparkContext.setLocalProperty(name, None)  # type: ignore[arg-type]


def test_a_batch_that_is_run_again_pushes_nothing_more(
    spark: SparkSession, broker: BrokerProcess, client: Client, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    at = datetime.fromtimestamp(1_763_251_200, UTC)
    rows = [(at, f"v{n}", 130.0, 0.0, 9) for n in range(20)]
    batch = spark.createDataFrame(rows, MOVE)
    with part_of(spark, batch=7):
        for _ in range(2):
            Pipeline(spark, broker.url, lake).keep_windows(batch, 7)
    assert client.queue(names.ALERTS).info().pushed == 20
    assert len(list(alert_ids(lake))) == 20
    with part_of(spark, batch=8):
        Pipeline(spark, broker.url, lake).keep_windows(batch, 8)
    assert client.queue(names.ALERTS).info().pushed == 40, "another batch is another push"
    Pipeline(spark, broker.url, lake).keep_windows(batch.limit(0), 9)
    assert not (lake / "alerts" / "batch=9").exists()
