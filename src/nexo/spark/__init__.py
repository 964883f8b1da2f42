"""Queues and topics in Spark: the data source `nexo`, and a session to run it in.

Lives here: reading and writing in Arrow batches, exactly-once claims, options, finding Java.
May import: client, query, wire, vocabulary; pyspark, pyarrow and numpy where they are used.
Never: copies messages one by one, or acks what Spark has not committed.
Enter at: `source.NexoDataSource` (`format("nexo")`), `nexo.spark.session()`; docs/spark.md.
Tests: `tests/spark/`.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nexo.spark.sessions import session

__all__ = ["session"]


def __getattr__(name: str) -> Any:
    """Loaded on first use: options and Java are looked at by those who have no Spark."""
    if name not in __all__:
        raise AttributeError(f"module 'nexo.spark' has no attribute {name!r}")
    # The module has not the name of its function: importing it would take the name from us.
    from nexo.spark.sessions import session

    globals()[name] = session
    return session
