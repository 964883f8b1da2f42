"""The meters: what the engine adds to while it works, and `/metrics` reads."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from itertools import chain
from time import perf_counter
from typing import TYPE_CHECKING

from nexo.vocabulary.limits import LOOP_TICK_S, METERS_COMMITS, METERS_EVENTS
from nexo.vocabulary.states import EventKind

if TYPE_CHECKING:
    from nexo.vocabulary.events import Event

# From half a millisecond to an hour: waits and work of messages.
LIFE_BOUNDS_S = (
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
    1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1_800.0, 3_600.0,
)  # fmt: skip
# What happens inside the broker is over in milliseconds, or something is wrong.
INNER_BOUNDS_S = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 2.5)


class Histogram:
    """How values spread: counts in fixed buckets, as Prometheus wants them."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)  # the last one is for what is above all bounds
        self.sum = 0.0

    def add(self, value: float, count: int = 1) -> None:
        """`count` values that are alike."""
        self.counts[bisect_left(self.bounds, value)] += count
        self.sum += value * count

    @property
    def count(self) -> int:
        return sum(self.counts)

    def merge(self, other: Histogram) -> None:
        assert self.bounds == other.bounds
        self.counts = [mine + its for mine, its in zip(self.counts, other.counts, strict=True)]
        self.sum += other.sum

    def quantile(self, share: float) -> float:
        """About where this share of the values lies below: straight lines inside the buckets."""
        wanted, seen, low = share * self.count, 0, 0.0
        for bound, count in zip(self.bounds, self.counts, strict=False):
            if count and seen + count >= wanted:
                return low + (bound - low) * max(0.0, wanted - seen) / count
            seen += count
            low = bound
        return low


class QueueMeters:
    """What cannot be told from a queue's state."""

    __slots__ = ("retries", "wait_s", "work_s")

    def __init__(self) -> None:
        self.wait_s = Histogram(LIFE_BOUNDS_S)
        self.work_s = Histogram(LIFE_BOUNDS_S)
        self.retries = 0


class Meters:
    def __init__(self) -> None:
        self._commit_s = Histogram(INNER_BOUNDS_S)
        self._sync_s = Histogram(INNER_BOUNDS_S)
        self._joined = (0.0, 0.0)  # what the latest took that were written together, and the disk …
        self._joined_count = 0  # … and how many of them are not counted yet
        self.loop_lag_s = Histogram(INNER_BOUNDS_S)
        self.events_dropped = 0  # never told in `nexo.events`
        self._queues: dict[str, QueueMeters] = {}
        self._told: list[list[Event]] = []  # not counted yet …
        self._told_count = 0  # … and how many these are

    def committed(self, took_s: float, sync_s: float) -> None:
        self._commit_s.add(took_s)
        self._sync_s.add(sync_s)

    def joined(self, began_s: float, sync_s: float) -> None:
        """The same for one of many that were written together: they are told of one after the
        other, each with the same `sync_s`, and have taken the same time. To count them one by one
        takes as long as half of what the committer does for them."""
        if sync_s is not self._joined[1]:
            self._count_joined()
            self._joined = perf_counter() - began_s, sync_s
        self._joined_count += 1

    @property
    def commit_s(self) -> Histogram:
        self._count_joined()
        return self._commit_s

    @property
    def sync_s(self) -> Histogram:
        self._count_joined()
        return self._sync_s

    def _count_joined(self) -> None:
        count, self._joined_count = self._joined_count, 0
        if count:
            took_s, sync_s = self._joined
            self._commit_s.add(took_s, count)
            self._sync_s.add(sync_s, count)

    def observe(self, events: list[Event]) -> None:
        """What happened to messages, a range an event. They are counted some at a time: a commit
        has one or two of them, and the way there costs more than they do."""
        self._told.append(events)
        self._told_count += len(events)
        if len(self._told) >= METERS_COMMITS or self._told_count >= METERS_EVENTS:
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


class LagTimer:
    """How late the event loop is: a timer that notes when it came."""

    def __init__(self, lags_s: Histogram) -> None:
        self._lags_s = lags_s
        self._loop = asyncio.get_running_loop()
        self._handle = self._loop.call_later(
            LOOP_TICK_S, self._tick, self._loop.time() + LOOP_TICK_S
        )

    def _tick(self, due_s: float) -> None:
        now_s = self._loop.time()
        self._lags_s.add(max(0.0, now_s - due_s))
        self._handle = self._loop.call_later(LOOP_TICK_S, self._tick, now_s + LOOP_TICK_S)

    def stop(self) -> None:
        self._handle.cancel()
