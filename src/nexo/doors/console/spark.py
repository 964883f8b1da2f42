"""Spark: the queries that hold batches of queues, the jobs on the lake, and what they found out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from nexo.access.permissions import Action
from nexo.doors.console import wording
from nexo.doors.console.badges import badges
from nexo.doors.console.lake import Insights
from nexo.doors.console.live import Frame, made_of, streamed
from nexo.doors.console.visit import METRICS

if TYPE_CHECKING:
    from starlette.responses import Response

    from nexo.doors.console.lake import Job
    from nexo.doors.console.visit import Visit

BATCHES_SHOWN = 20


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

    def live(self) -> dict[str, str]:
        prefix = f"spark.{self.queue}.{self.consumer}."
        return {
            prefix + "held": wording.number(self.held),
            prefix + "batches": ", ".join(map(str, self.batches)) or wording.NOTHING,
            prefix + "acked": wording.number(self.acked_through),
            prefix + "lag": wording.number(self.lag),
            prefix + "rate": wording.NOTHING
            if self.rows_per_second is None
            else wording.rate(self.rows_per_second),
        }


async def spark(visit: Visit) -> Response:
    visit.caller.check(Action.PEEK, METRICS)
    lake = visit.house.lake
    jobs: list[Job] = await lake.jobs() if lake is not None else []
    insights = await lake.insights(visit.query("queue")) if lake is not None else Insights()
    await visit.house.batches.read()
    batches = visit.house.batches.last(BATCHES_SHOWN)
    return await visit.page(
        "spark.html",
        {"batches": "spark_batches.html"},
        queries=queries(visit),
        batches=batches,
        batches_made_of=made_of(batches),
        lake=lake,
        jobs=jobs,
        insights=insights,
        queue=visit.query("queue") or (insights.queues[0] if insights.queues else ""),
        lines=_lines(insights),
    )


async def live_spark(visit: Visit) -> Response:
    visit.caller.check(Action.PEEK, METRICS)
    shown = {(each.queue, each.consumer) for each in queries(visit)}

    async def frame() -> Frame | None:
        await visit.house.batches.read()
        found = queries(visit)
        if {(each.queue, each.consumer) for each in found} != shown:
            return None
        values = badges(visit)
        for each in found:
            values |= each.live()
        return Frame(values, {"batches": made_of(visit.house.batches.last(BATCHES_SHOWN))})

    return streamed(visit.house.pulse.stream(visit.caller, frame))


def queries(visit: Visit) -> list[Query]:
    """Everybody who has claimed batches of a queue, from the queues themselves."""
    found = []
    for name, actor in visit.engine.queues.items():
        queue = actor.queue
        if not queue.claims:
            continue
        claimed = actor.info().claimed
        for consumer, claims in queue.claims.items():
            found.append(
                Query(
                    queue=name,
                    consumer=consumer,
                    held=claimed.get(consumer, 0),
                    batches=sorted(claims.batches),
                    acked_through=claims.acked_through,
                    epoch=claims.epoch,
                    lag=queue.ready + queue.scheduled_count,
                    rows_per_second=visit.house.batches.rate(name, consumer),
                )
            )
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
