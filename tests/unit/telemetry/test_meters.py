"""The meters count what they were told some at a time, and never much at once."""

from __future__ import annotations

from typing import Any

import pytest

from nexo.telemetry.meters import Histogram, Meters
from nexo.vocabulary.events import Event
from nexo.vocabulary.limits import METERS_EVENTS
from nexo.vocabulary.states import EventKind


def delivered(at_ms: int) -> Event:
    return Event(
        kind=EventKind.DELIVERED,
        queue="orders",
        first_seq=1,
        count=1,
        at_ms=at_ms,
        created_ms=at_ms - 5,
        attempts=1,
        consumer="",
        reason="",
    )


@pytest.mark.parametrize("events_a_commit", [1, 7, 900])
def test_a_commit_counts_few_events_of_others(
    events_a_commit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    added = 0
    honest = Histogram.add

    def add(self: Histogram, *values: Any) -> None:
        nonlocal added
        added += 1
        honest(self, *values)

    monkeypatch.setattr(Histogram, "add", add)
    meters, most = Meters(), 0
    for number in range(200):
        before = added
        meters.observe([delivered(number)] * events_a_commit)
        most = max(most, added - before)
    assert most <= METERS_EVENTS + events_a_commit
    assert meters.queues["orders"].wait_s.count == 200 * events_a_commit
