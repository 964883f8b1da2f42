"""The tables of the insights as lines: what somebody who looks at a queue wants of the last day."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from nexo.pipeline.tables import DEAD_LETTERS, QUEUE_MINUTES

if TYPE_CHECKING:
    from pathlib import Path

    from nexo.pipeline.lake import Lake

SHOWN = timedelta(days=1)


class QueueDay(NamedTuple):
    """`columns` are those of `queue_minutes` by name, the oldest minute first."""

    queues: list[str]
    columns: dict[str, list[Any]]
    reasons: list[tuple[str, int]]


def queue_day(lake: Lake, queue: str, now: datetime | None = None) -> QueueDay:
    """The last day of one queue; with no name, or none that is there, that of the first."""
    since = (now or datetime.now(UTC)) - SHOWN
    minutes = _rows(lake.insights / "queue_minutes", since, QUEUE_MINUTES)
    queues: list[str] = sorted(pc.unique(minutes["queue"]).to_pylist())
    name = queue if queue in queues or not queues else queues[0]
    chosen = minutes.filter(pc.equal(minutes["queue"], name)).sort_by("minute")
    columns = {each: chosen[each].to_pylist() for each in chosen.column_names if each != "queue"}
    letters = _rows(lake.insights / "dead_letters", since, DEAD_LETTERS)
    letters = letters.filter(pc.equal(letters["queue"], name))
    counted = letters.group_by("reason").aggregate([("count", "sum")])
    reasons = zip(counted["reason"].to_pylist(), counted["count_sum"].to_pylist(), strict=True)
    return QueueDay(queues, columns, sorted(reasons, key=lambda each: (-each[1], each[0])))


def _rows(table: Path, since: datetime, schema: pa.Schema) -> pa.Table:
    first_day = since.date().isoformat()
    files = sorted(each for each in table.glob("*.parquet") if each.stem >= first_day)
    parts = [pq.read_table(file, schema=schema) for file in files]
    rows = pa.concat_tables(parts) if parts else schema.empty_table()
    moment = pa.scalar(since, schema.field("minute").type)
    return rows.filter(pc.greater_equal(rows["minute"], moment))
