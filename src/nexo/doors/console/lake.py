"""The lake as the console sees it: the jobs that work on it, and the tables of `insights` as lines.

Parquet is none of a door's business, so whoever starts the console hands this in.
"""

from __future__ import annotations

from typing import Protocol

import msgspec


class Job(msgspec.Struct, frozen=True):
    """How a job of the pipeline is doing, as it told last."""

    name: str
    state: str
    rows: int
    rows_per_second: float
    lag: int | None
    batches: int
    updated_ms: int
    error: str


class QueueMinutes(msgspec.Struct, frozen=True):
    """The table `queue_minutes` of one queue: a list for each column, the oldest minute first."""

    minute_s: list[int] = []
    arrivals: list[int] = []
    departures: list[int] = []
    depth: list[int] = []
    wait_ms_p50: list[float | None] = []
    wait_ms_p99: list[float | None] = []
    work_ms_p50: list[float | None] = []
    work_ms_p99: list[float | None] = []
    retries: list[int] = []
    dead_letters: list[int] = []


class ReasonCount(msgspec.Struct, frozen=True):
    """The table `dead_letters` of one queue, added up."""

    reason: str
    count: int


class Insights(msgspec.Struct, frozen=True):
    """`why` says why there is nothing, if there is nothing."""

    queues: list[str] = []
    minutes: QueueMinutes = QueueMinutes()
    reasons: list[ReasonCount] = []
    why: str = ""


class LakeTables(Protocol):
    @property
    def folder(self) -> str: ...

    async def jobs(self) -> list[Job]: ...

    async def insights(self, queue: str) -> Insights:
        """Of one queue, of the last day; with no name that of the first queue there is."""
