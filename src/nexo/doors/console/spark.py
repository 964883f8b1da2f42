"""Spark: the queries that hold batches of queues, the jobs on the lake, and what they found out.

Parquet is none of a door's business, so whoever starts the console hands in the lake's tables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

from nexo.doors.console import formatting
from nexo.doors.console.pages import badges
from nexo.doors.console.streams import Frame, made_of, streamed
from nexo.vocabulary.limits import CONSOLE_BATCHES_SHOWN

if TYPE_CHECKING:
    from starlette.responses import Response

    from nexo.doors.console.request import Call


class Query(msgspec.Struct, frozen=True):
    """A streaming query on a queue. `lag` is what nobody holds yet."""

    queue: str
    consumer: str
    held: int
    batches: list[int]
    acked_through: int
    epoch: int
    lag: int
    rows_per_second: float | None
    held_ms: int = 0  # how long it has held the first of them

    def live(self) -> dict[str, str]:
        prefix = f"spark.{self.queue}.{self.consumer}."
        return {
            prefix + "held": formatting.number(self.held),
            prefix + "age": formatting.span(self.held_ms) if self.held else formatting.NOTHING,
            prefix + "batches": ", ".join(map(str, self.batches)) or formatting.NOTHING,
            prefix + "acked": formatting.number(self.acked_through),
            prefix + "lag": formatting.number(self.lag),
            prefix + "rate": formatting.NOTHING
            if self.rows_per_second is None
            else formatting.rate(self.rows_per_second),
        }


async def spark(call: Call) -> Response:
    lake = call.shared.lake
    jobs: list[Job] = await lake.jobs() if lake is not None else []
    insights = await lake.insights(call.query("queue")) if lake is not None else Insights()
    state = await lake.tables() if lake is not None else LakeState()
    await call.shared.batches.read()
    batches = call.shared.batches.last(CONSOLE_BATCHES_SHOWN)
    return await call.page(
        "spark.html",
        {"batches": "spark_batches.html"},
        queries=queries(call),
        batches=batches,
        batches_made_of=made_of(batches),
        lake=lake,
        jobs=jobs,
        state=state,
        insights=insights,
        queue=call.query("queue") or (insights.queues[0] if insights.queues else ""),
        lines=_lines(insights),
    )


async def live_spark(call: Call) -> Response:
    shown = {(each.queue, each.consumer) for each in queries(call)}

    async def frame() -> Frame | None:
        await call.shared.batches.read()
        found = queries(call)
        if {(each.queue, each.consumer) for each in found} != shown:
            return None
        values = badges(call)
        for each in found:
            values |= each.live()
        return Frame(values, {"batches": made_of(call.shared.batches.last(CONSOLE_BATCHES_SHOWN))})

    return streamed(call.shared.pulse.stream(call.caller, frame))


def queries(call: Call) -> list[Query]:
    """Everybody who has claimed batches of a queue, from the queues themselves."""
    found = []
    for name, actor in call.engine.queues.items():
        claimants = actor.claims.claimants()
        if not claimants:
            continue
        info = actor.info()
        found += [
            Query(
                queue=name,
                consumer=each.consumer,
                held=info.claimed.get(each.consumer, 0),
                batches=each.batches,
                acked_through=each.acked_through,
                epoch=each.epoch,
                lag=info.ready + info.scheduled,
                rows_per_second=call.shared.batches.rate(name, each.consumer),
                held_ms=info.claimed_age_ms.get(each.consumer, 0),
            )
            for each in claimants
        ]
    return sorted(found, key=lambda each: (each.queue, each.consumer))


def _lines(insights: Insights) -> dict[str, list[list[float | None]]]:
    """The plots: each a list of columns, the time first."""
    minutes = insights.minutes
    times: list[float | None] = list(minutes.minute_s)
    return {
        "flow": [times, list(minutes.arrivals), list(minutes.departures)],
        "depth": [times, list(minutes.depth)],
        "wait": [times, list(minutes.wait_ms_p50), list(minutes.wait_ms_p99)],
        "work": [times, list(minutes.work_ms_p50), list(minutes.work_ms_p99)],
        "failures": [times, list(minutes.retries), list(minutes.dead_letters)],
    }


# -- The lake: the jobs that work on it, and the tables of `insights` as lines -------------------


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


class Table(msgspec.Struct, frozen=True):
    """A table of the lake, by its log. `small_files` are those that compaction would join."""

    name: str
    version: int
    rows: int
    size_bytes: int
    files: int
    small_files: int
    committed_ms: int
    operation: str


class LakeState(msgspec.Struct, frozen=True):
    """`why` says why no table is shown, if none is."""

    tables: list[Table] = []
    why: str = ""


class LakeTables(Protocol):
    @property
    def folder(self) -> str: ...

    async def tables(self) -> LakeState: ...

    async def jobs(self) -> list[Job]: ...

    async def insights(self, queue: str) -> Insights:
        """Of one queue, of the last day; with no name that of the first queue there is."""
