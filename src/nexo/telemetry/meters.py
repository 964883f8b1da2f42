"""The meters: what the engine adds to while it works, and `/metrics` reads."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from nexo.telemetry.histogram import INNER_BOUNDS_S, LIFE_BOUNDS_S, Histogram
from nexo.vocabulary.states import EventKind

if TYPE_CHECKING:
    from nexo.vocabulary.events import Event

COUNTED_AT = 64  # commits whose events are counted at once …
COUNTED_EVENTS = 1_000  # … or fewer that have so many of them, which is a step of work by itself


class QueueMeters:
    """What cannot be told from a queue's state."""

    __slots__ = ("retries", "wait_s", "work_s")

    def __init__(self) -> None:
        self.wait_s = Histogram(LIFE_BOUNDS_S)
        self.work_s = Histogram(LIFE_BOUNDS_S)
        self.retries = 0


class Meters:
    def __init__(self) -> None:
        self.commit_s = Histogram(INNER_BOUNDS_S)
        self.sync_s = Histogram(INNER_BOUNDS_S)
        self.loop_lag_s = Histogram(INNER_BOUNDS_S)
        self._queues: dict[str, QueueMeters] = {}
        self._told: list[list[Event]] = []  # not counted yet …
        self._told_count = 0  # … and how many these are

    def committed(self, took_s: float, sync_s: float) -> None:
        self.commit_s.add(took_s)
        self.sync_s.add(sync_s)

    def observe(self, events: list[Event]) -> None:
        """What happened to messages, a range an event. They are counted some at a time: a commit
        has one or two of them, and the way there costs more than they do."""
        self._told.append(events)
        self._told_count += len(events)
        if len(self._told) >= COUNTED_AT or self._told_count >= COUNTED_EVENTS:
            self._count()

    @property
    def queues(self) -> dict[str, QueueMeters]:
        self._count()
        return self._queues

    def _count(self) -> None:
        told, self._told, self._told_count = self._told, [], 0
        for event in chain.from_iterable(told):
            kind = event.kind
            if kind is EventKind.DELIVERED:
                meters = self._of(event.queue)
                if event.attempts > 1:
                    meters.retries += event.count
                else:
                    meters.wait_s.add(max(0, event.at_ms - event.created_ms) / 1000, event.count)
            elif kind is EventKind.ACKED and event.delivered_ms:
                work_s = max(0, event.at_ms - event.delivered_ms) / 1000
                self._of(event.queue).work_s.add(work_s, event.count)

    def forget(self, queue: str) -> None:
        """The queue is gone."""
        self.queues.pop(queue, None)  # once what was told of it is counted

    def _of(self, queue: str) -> QueueMeters:
        meters = self._queues.get(queue)
        if meters is None:
            meters = self._queues[queue] = QueueMeters()
        return meters
