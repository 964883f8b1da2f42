"""Spark looks for modules named `pyspark_*` and takes their `DefaultSource`: this one makes
`format("nexo")` work in any session without a registration."""

from nexo.spark.source import NexoDataSource as DefaultSource

__all__ = ["DefaultSource"]
