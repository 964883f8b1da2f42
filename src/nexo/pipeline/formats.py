"""Table formats other than plain Parquet: those that the session has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

from nexo.vocabulary.errors import InvalidArgument

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

PARQUET, DELTA, ICEBERG = "parquet", "delta", "iceberg"
FORMATS = (PARQUET, DELTA, ICEBERG)
_CLASSES = {
    DELTA: "io.delta.sql.DeltaSparkSessionExtension",
    ICEBERG: "org.apache.iceberg.spark.SparkCatalog",
}
_HINTS = {
    DELTA: "add it: --conf spark.jars.packages=io.delta:delta-spark_2.13:VERSION "
    "--conf spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension "
    "--conf spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog",
    ICEBERG: "add it: --conf spark.jars.packages=org.apache.iceberg:iceberg-spark-runtime-VERSION "
    "--conf spark.sql.extensions="
    "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
}


def check_format(name: str) -> None:
    if name not in FORMATS:
        raise InvalidArgument(f"there is no format {name!r:.40}", f"there are {', '.join(FORMATS)}")


def require_format(spark: SparkSession, name: str) -> None:
    """Refuse a format that this session has not."""
    check_format(name)
    wanted = _CLASSES.get(name)
    if wanted is None:
        return
    java: Any = spark.sparkContext._jvm
    try:
        java.org.apache.spark.util.Utils.getContextOrSparkClassLoader().loadClass(wanted)
    except Py4JJavaError:
        raise InvalidArgument(f"this Spark session has no {name}", _HINTS[name]) from None


def start_table_stream(
    rows: DataFrame,
    table: Path,
    table_format: str,
    partitions: list[str],
    checkpoint: str,
    name: str,
    trigger: dict[str, Any],
) -> StreamingQuery:
    """Such a table commits a micro-batch by itself: whole, and once by query and number."""
    writing = rows.writeStream.queryName(name).format(table_format).outputMode("append")
    writing = writing.option("checkpointLocation", checkpoint).trigger(**trigger)
    if table_format == ICEBERG:
        return writing.option("fanout-enabled", "true").toTable(
            iceberg_table(rows, table, partitions)
        )
    return writing.partitionBy(*partitions).start(str(table))


def iceberg_table(rows: DataFrame, table: Path, partitions: list[str]) -> str:
    """The name of the table of a folder, which is made if it is not there."""
    name = iceberg_name(rows.sparkSession, table)
    columns = ", ".join(f"`{each.name}` {each.dataType.simpleString()}" for each in rows.schema)
    rows.sparkSession.sql(
        f"CREATE TABLE IF NOT EXISTS {name} ({columns}) USING iceberg "
        f"PARTITIONED BY ({', '.join(partitions)})"
    )
    return name


def iceberg_name(spark: SparkSession, table: Path) -> str:
    """Iceberg keeps tables in a catalog: ours is called nexo, and is the folder around the lake.
    A session knows it from here on."""
    catalog = "spark.sql.catalog.nexo"
    spark.conf.set(catalog, _CLASSES[ICEBERG])
    spark.conf.set(f"{catalog}.type", "hadoop")
    spark.conf.set(f"{catalog}.warehouse", str(table.parent.parent))
    return f"nexo.`{table.parent.name}`.`{table.name}`"


def compact_table(spark: SparkSession, table: Path, table_format: str) -> None:
    """Delta and Iceberg know how, and keep old files for those who still read them."""
    if table_format == DELTA:
        spark.sql(f"OPTIMIZE delta.`{table}`")
        return
    name = iceberg_name(spark, table).removeprefix("nexo.")
    spark.sql(f"CALL nexo.system.rewrite_data_files(table => '{name}')")
