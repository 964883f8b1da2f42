"""The columns of the data source, as Spark declares them and as Arrow lays them out."""

from __future__ import annotations

import pyarrow as pa

_COLUMNS = (
    ("id", "string", pa.string()),
    ("body", "binary", pa.binary()),
    ("priority", "int", pa.int32()),
    ("attempts", "int", pa.int32()),
    ("created_at", "timestamp", pa.timestamp("us", tz="UTC")),
    ("attributes", "map<string,string>", pa.map_(pa.string(), pa.string())),
    ("group_id", "string", pa.string()),
    ("source", "string", pa.string()),
    ("offset", "long", pa.int64()),
)
_STATE = ("state", "string", pa.string())
READ_COLUMNS = frozenset({each[0] for each in (*_COLUMNS, _STATE)})

ATTRIBUTES = pa.map_(pa.string(), pa.string())
TOPIC_SCHEMA = pa.schema([(name, kind) for name, _, kind in _COLUMNS])
QUEUE_SCHEMA = pa.schema([(name, kind) for name, _, kind in (*_COLUMNS, _STATE)])


def declared(with_state: bool) -> str:
    """The schema in Spark's own words. A source is not told whether it is to stream, so the
    state is there in both ways of reading a queue; in a stream it is always `sealed`."""
    columns = (*_COLUMNS, _STATE) if with_state else _COLUMNS
    return ", ".join(f"{name} {kind}" for name, kind, _ in columns)
