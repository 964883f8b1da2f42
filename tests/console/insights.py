"""A lake with insights and a job, as the pipeline writes them, without Spark."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from nexo.pipeline.lake import Lake
from nexo.pipeline.status import Teller
from nexo.pipeline.tables import Tables

if TYPE_CHECKING:
    from pathlib import Path

MINUTES = 30


def row(queue: str, minute: datetime, facet: str = "minute", detail: str = "") -> dict[str, Any]:
    number = minute.minute
    return {
        "queue": queue,
        "minute": minute,
        "facet": facet,
        "detail": detail,
        "arrivals": 100 + number,
        "departures": 90 + number,
        "retries": number % 3,
        "dead_letters": 2,
        "deliveries": 95,
        "acks": 90,
        "wait_ms_p50": 5.0 + number,
        "wait_ms_p99": 50.0 + number,
        # Nobody says when work on a payment begins, so it cannot be measured.
        "work_ms_p50": None if queue == "payments" else 20.0 + number % 7,
        "work_ms_p99": None if queue == "payments" else 80.0 + number % 11,
    }


def fill_lake(folder: Path, reason: str = "no <b>stock</b>") -> None:
    """Half an hour of two queues, and a minute that is too old to be shown."""
    now = datetime.now(UTC).replace(second=0, microsecond=0)
    minutes = [now - timedelta(minutes=each) for each in range(MINUTES)]
    rows = [row(queue, each) for queue in ("orders", "payments") for each in minutes]
    rows += [row("orders", each, "reason", reason) for each in minutes[:3]]
    rows.append(row("orders", now - timedelta(days=3)))
    table = pa.Table.from_pylist(rows)
    place = table.schema.get_field_index("minute")
    times = table["minute"].cast(pa.timestamp("us", tz="UTC"))
    Tables(Lake(folder)).put(table.set_column(place, "minute", times))
    Teller("insights", Lake(folder)).add("nexo.events", 1_234, lag=56)
