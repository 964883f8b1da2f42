"""A streaming query in a process of its own, so that it can be killed: from a queue to Parquet,
all that is there, then it ends. Its argument is an `Errand` as JSON."""

from __future__ import annotations

import sys

import msgspec

from nexo.spark import session
from tests.spark.fast import FAST
from tests.spark.striking import StrikingSource


class Errand(msgspec.Struct, frozen=True):
    endpoint: str
    queue: str
    checkpoint: str
    out: str
    master: str = "local[2,4]"  # a task may fail three times
    batch_messages: int = 50
    slices: int = 2
    config: dict[str, str] = {}


def main(errand: Errand) -> None:
    spark = session("query", errand.master, {**FAST, **errand.config})
    spark.dataSource.register(StrikingSource)
    rows = (
        spark.readStream.format(StrikingSource.name())
        .option("endpoint", errand.endpoint)
        .option("queue", errand.queue)
        .option("maxMessagesPerTrigger", errand.batch_messages)
        .option("minPartitions", errand.slices)
        .load()
    )
    running = (
        rows.selectExpr("cast(body as string) text", "id", "attempts")
        .writeStream.format("parquet")
        .option("path", errand.out)
        .option("checkpointLocation", errand.checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    running.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(msgspec.json.decode(sys.argv[1], type=Errand))
