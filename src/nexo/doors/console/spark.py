"""Spark: the queries that hold batches of queues, the jobs on the lake, and what they found out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from nexo.access.permissions import Action
from nexo.doors.console import wording
from nexo.doors.console.badges import badges
from nexo.doors.console.lake import Insights
from nexo.doors.console.live import Frame, streamed
from nexo.vocabulary.events import decode_event
from nexo.vocabulary.names import EVENTS_TOPIC
from nexo.vocabulary.states import EventKind

if TYPE_CHECKING:
    from starlette.responses import Response

    from nexo.doors.console.lake import Job
    from nexo.doors.console.visit import Visit
    from nexo.engine.engine import Engine
    from nexo.vocabulary.events import Event

EVENTS_READ = 10_000  # the newest, in which batches are looked for
BATCHES_SHOWN = 20
RATE_OVER_MS = 60_000
METRICS = "nexo.metrics"


class Batch(msgspec.Struct, frozen=True):
    """Rows of a queue that a query has finished together."""

    at_ms: int
    queue: str
    consumer: str
    rows: int
    took_ms: int


class Query(msgspec.Struct, frozen=True):
    """A streaming query on a queue. `lag` is what nobody holds yet."""

    queue: str
    consumer: str
    held: int
    sealed: int
    batches: list[int]
    acked_through: int
    epoch: int
    lag: int
    rows_per_second: float

    def live(self) -> dict[str, str]:
        prefix = f"spark.{self.queue}.{self.consumer}."
        return {
            prefix + "held": wording.number(self.held),
            prefix + "batches": ", ".join(map(str, self.batches)) or wording.NOTHING,
            prefix + "acked": wording.number(self.acked_through),
            prefix + "lag": wording.number(self.lag),
            prefix + "rate": wording.rate(self.rows_per_second),
        }


async def spark(visit: Visit) -> Response:
    visit.caller.check(Action.PEEK, METRICS)
    lake = visit.house.lake
    jobs: list[Job] = await lake.jobs() if lake is not None else []
    insights = await lake.insights(visit.query("queue")) if lake is not None else Insights()
    batches = await last_batches(visit.engine)
    return await visit.page(
        "spark.html",
        queries=queries(visit.engine, batches),
        batches=batches[:BATCHES_SHOWN],
        lake=lake,
        jobs=jobs,
        insights=insights,
        queue=visit.query("queue") or (insights.queues[0] if insights.queues else ""),
        lines=_lines(insights),
    )


async def live_spark(visit: Visit) -> Response:
    visit.caller.check(Action.PEEK, METRICS)
    shown = {(each.queue, each.consumer) for each in queries(visit.engine, [])}

    async def frame() -> Frame | None:
        found = queries(visit.engine, await last_batches(visit.engine) if shown else [])
        if {(each.queue, each.consumer) for each in found} != shown:
            return None
        values = badges(visit)
        for each in found:
            values |= each.live()
        return Frame(values)

    return streamed(visit.house.pulse.stream(visit.caller, frame))


def queries(engine: Engine, batches: list[Batch]) -> list[Query]:
    """Everybody who has claimed batches of a queue, from the queues themselves."""
    found, now_ms = [], engine.now_ms()
    for name, actor in engine.queues.items():
        queue = actor.queue
        if not queue.claims:
            continue
        claimed = actor.info().claimed
        for consumer, claims in queue.claims.items():
            recent = sum(
                each.rows
                for each in batches
                if each.queue == name
                and each.consumer == consumer
                and each.at_ms > now_ms - RATE_OVER_MS
            )
            found.append(
                Query(
                    queue=name,
                    consumer=consumer,
                    held=claimed.get(consumer, 0),
                    sealed=sum(each.sealed for each in claims.batches.values()),
                    batches=sorted(claims.batches),
                    acked_through=claims.acked_through,
                    epoch=claims.epoch,
                    lag=queue.ready + queue.scheduled_count,
                    rows_per_second=recent * 1000 / RATE_OVER_MS,
                )
            )
    return sorted(found, key=lambda each: (each.queue, each.consumer))


async def last_batches(engine: Engine) -> list[Batch]:
    """What queries have finished lately, the newest first: from the events of the broker."""
    known = {
        (name, consumer) for name, actor in engine.queues.items() for consumer in actor.queue.claims
    }
    if not known or EVENTS_TOPIC not in engine.topics:
        return []
    topic = engine.topic(EVENTS_TOPIC)
    offset = max(topic.info().start, topic.info().end - EVENTS_READ)
    rows: dict[tuple[str, str, int], list[int]] = {}
    while True:
        reading = await topic.read(offset, EVENTS_READ)
        if not reading.parts:
            break
        offset = reading.next
        for part in reading.parts:
            batch = part.batch()
            for index in range(part.count):
                body = batch.body(index)
                if b'"kind":"acked"' in body:
                    _count(rows, decode_event(body), known)
    found = [
        Batch(at_ms, queue, consumer, count, took_ms)
        for (queue, consumer, at_ms), (count, took_ms) in rows.items()
    ]
    return sorted(found, key=lambda each: -each.at_ms)


def _count(
    rows: dict[tuple[str, str, int], list[int]], event: Event, known: set[tuple[str, str]]
) -> None:
    if event.kind is EventKind.ACKED and (event.queue, event.consumer) in known:
        took_ms = event.at_ms - event.delivered_ms if event.delivered_ms else 0
        counted = rows.setdefault((event.queue, event.consumer, event.at_ms), [0, took_ms])
        counted[0] += event.count


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
