"""Rows as tasks of the archive get them, and files of them, without Spark."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from nexo.pipeline.files import Added, file_writer
from nexo.query.rows import TOPIC_SCHEMA

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

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


def write(
    lake: Lake, *batches: pa.RecordBatch, floors: Mapping[str, int] | None = None
) -> list[Added]:
    """What a task does."""
    (told,) = file_writer(lake, floors or {})(batches)
    return [msgspec.json.decode(each, type=Added) for each in told["added"].to_pylist()]
