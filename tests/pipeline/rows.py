"""Rows as tasks of the archive get them, and files of them, without Spark."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pyarrow as pa

from nexo.pipeline.files import write_files
from nexo.query.rows import TOPIC_SCHEMA

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nexo.pipeline.files import Added
    from nexo.pipeline.lake import Lake

NOON = datetime(2026, 5, 31, 12, 0, tzinfo=UTC)


def messages(topic: str, offsets: Iterable[int], every_s: float = 1.0) -> pa.RecordBatch:
    """Messages of a topic, one every so often from noon on by their offset."""
    numbers = list(offsets)
    rows = [
        {
            "id": f"{topic}:{number}",
            "body": str(number).encode(),
            "priority": 0,
            "attempts": 0,
            "created_at": NOON + timedelta(seconds=number * every_s),
            "source": topic,
            "offset": number,
        }
        for number in numbers
    ]
    return pa.RecordBatch.from_pylist(rows, schema=TOPIC_SCHEMA)


def write(lake: Lake, *batches: pa.RecordBatch) -> list[Added]:
    """What a task does."""
    return write_files(lake, ((batch["source"][0].as_py(), batch) for batch in batches))
