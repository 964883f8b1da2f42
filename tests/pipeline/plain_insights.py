"""The insights once more, in plain Python, message by message: what the job is held to."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

LEFT = {"acked", "dead_lettered", "redriven", "purged"}


def queue_minutes(events: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """`events` as the lake has them."""
    by_minute: dict[tuple[str, datetime], list[dict[str, Any]]] = defaultdict(list)
    for event in events:
        minute = event["at"].replace(second=0, microsecond=0)
        by_minute[event["queue"], minute].append(event)
    depths: dict[str, int] = defaultdict(int)
    rows = []
    for (queue, minute), told in sorted(by_minute.items()):
        arrivals = _count(told, lambda each: each["kind"] == "pushed")
        departures = _count(told, _leaves)
        depths[queue] = max(0, depths[queue] + arrivals - departures)
        first = [e for e in told if e["kind"] == "delivered" and e["attempts"] == 1]
        acked = [e for e in told if e["kind"] == "acked" and e["delivered_at"] is not None]
        rows.append(
            {
                "queue": queue,
                "minute": minute,
                "arrivals": arrivals,
                "departures": departures,
                "depth": depths[queue],
                **_percentiles("wait_ms", first, "created_at"),
                **_percentiles("work_ms", acked, "delivered_at"),
                "retries": _count(
                    told, lambda each: each["kind"] == "delivered" and each["attempts"] > 1
                ),
                "dead_letters": _count(told, lambda each: each["kind"] == "dead_lettered"),
            }
        )
    return rows


def _leaves(event: dict[str, Any]) -> bool:
    expired = event["kind"] == "expired" and event["reason"] == "retention"
    return event["kind"] in LEFT or expired


def _count(events: list[dict[str, Any]], wanted: Any) -> int:
    return sum(event["count"] for event in events if wanted(event))


def _percentiles(name: str, events: list[dict[str, Any]], since: str) -> dict[str, float | None]:
    took: list[float] = []
    for event in events:
        milliseconds = round((event["at"] - event[since]).total_seconds() * 1000)
        took += [milliseconds] * event["count"]
    found = np.percentile(took, [50, 99]) if took else [None, None]
    return {f"{name}_p50": found[0], f"{name}_p99": found[1]}
