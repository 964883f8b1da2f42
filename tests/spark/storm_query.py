"""A streaming query on a cluster that runs until it is killed: from a queue to Parquet, or to
another queue. Its argument is JSON."""

from __future__ import annotations

import json
import sys

from nexo.spark import session
from tests.spark.cluster import ROOT
from tests.spark.fast import FAST


def main(asked: dict[str, str]) -> None:
    config = {
        **FAST,
        "spark.driver.host": asked["driver_host"],
        "spark.cores.max": "1",  # the cluster has two, and there are two queries
        "spark.executor.memory": "512m",
        "spark.executorEnv.PYTHONPATH": f"{ROOT}:{ROOT}/src",
        "spark.task.maxFailures": "8",
    }
    spark = session("storm", asked["master"], config)
    reading = spark.readStream.format("nexo").option("endpoint", asked["endpoint"])
    rows = reading.option("queue", asked["queue"]).option("maxMessagesPerTrigger", 2_000).load()
    writing = rows.selectExpr("cast(body as string) AS text").writeStream.format("parquet")
    if "to" in asked:
        writing = rows.select("body").writeStream.format("nexo")
        writing = writing.option("endpoint", asked["endpoint"]).option("queue", asked["to"])
    else:
        writing = writing.option("path", asked["out"])
    writing = writing.option("checkpointLocation", asked["checkpoint"])
    writing.trigger(processingTime="1 second").start().awaitTermination()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
