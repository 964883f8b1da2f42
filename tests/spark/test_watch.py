"""How far behind a job is, from what Spark says of its sources."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from nexo.pipeline.watch import _lag


def source(latest: Any, end: Any) -> SimpleNamespace:
    return SimpleNamespace(latestOffset=json.dumps(latest), endOffset=json.dumps(end))


QUEUE = source(
    {"consumer": "spark-1", "batch": 7, "slices": 2, "ready": 44_000, "scheduled": 5},
    {"consumer": "spark-1", "batch": 7, "slices": 2},
)
TOPICS = source({"a": 12, "b": 7}, {"a": 10, "b": 7, "/cut": {"a": [5, 2]}})
KAFKA = source({"a": {"0": 12}}, {"a": {"0": 10}})


@pytest.mark.parametrize(
    ("sources", "lag"),
    [
        ([QUEUE], 44_000),
        ([TOPICS], 2),
        ([QUEUE, TOPICS], 44_002),
        ([KAFKA], None),
        ([KAFKA, TOPICS], 2),
        ([SimpleNamespace(latestOffset=None, endOffset=None)], None),
        ([SimpleNamespace(latestOffset="<12>", endOffset="<10>")], None),
    ],
)
def test_lag(sources: list[SimpleNamespace], lag: int | None) -> None:
    assert _lag(SimpleNamespace(sources=sources)) == lag
