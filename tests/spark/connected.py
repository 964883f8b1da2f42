"""A program that reads and writes through Spark Connect. Arguments: endpoint, queue, folder; what
it found is in `found.json` there."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from nexo.spark.sessions import prepare_environment
from tests.spark.fast import FAST


def main(endpoint: str, queue: str, folder: str) -> None:
    prepare_environment()
    builder = SparkSession.builder.remote("local[2]")
    for key, value in FAST.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    options = {"endpoint": endpoint, "queue": queue}
    rows = spark.range(30).selectExpr("cast(id as string) body")
    rows.write.format("nexo").options(**options).mode("append").save()
    peeked = spark.read.format("nexo").options(**options).load().count()
    query = (
        spark.readStream.format("nexo")
        .options(**options)
        .load()
        .selectExpr("cast(body as string) text")
        .writeStream.format("parquet")
        .option("path", f"{folder}/out")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    texts = [row.text for row in spark.read.parquet(f"{folder}/out").collect()]
    found = {"session": type(spark).__module__, "peeked": peeked, "texts": sorted(texts, key=int)}
    (Path(folder) / "found.json").write_text(json.dumps(found))
    os._exit(0)  # whoever started this ends its server too


if __name__ == "__main__":
    main(*sys.argv[1:])
