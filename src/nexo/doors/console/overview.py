"""The overview: all queues together, each number with its line over time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import RedirectResponse

from nexo.access.permissions import Action
from nexo.doors.console import wording
from nexo.doors.console.badges import badges
from nexo.doors.console.live import Frame, made_of, streamed
from nexo.doors.console.queues import rows_of
from nexo.doors.console.visit import METRICS, at

if TYPE_CHECKING:
    from starlette.responses import Response

    from nexo.doors.console.queues import Row
    from nexo.doors.console.visit import Visit


async def overview(visit: Visit) -> Response:
    if not visit.sees_metrics:  # this is where a sign-in leads to
        return RedirectResponse(at("queues"), 303)
    sampler = visit.house.sampler
    await sampler.walk()
    deepest = _deepest(visit)
    return await visit.page(
        "overview.html",
        {"deepest": "overview_deepest.html"},
        values=_values(visit),
        history=sampler.points.columns(),
        deepest=deepest,
        deepest_made_of=_made_of(deepest),
        has_queues=bool(visit.engine.queues),
        host=visit.request.headers.get("host", "localhost:9324"),
    )


async def live_overview(visit: Visit) -> Response:
    visit.caller.check(Action.PEEK, METRICS)
    sampler = visit.house.sampler
    had_queues = bool(visit.engine.queues)
    last_s = 0.0

    def frame() -> Frame | None:
        nonlocal last_s
        if bool(visit.engine.queues) != had_queues:
            return None  # from the lesson to the figures, or back
        last = sampler.points.last
        point = None
        if last and last[0] > last_s:
            last_s, point = last[0], [round(each, 3) for each in last]
        values, deepest = _values(visit), _deepest(visit)
        for row in deepest:
            values |= row.live()
        return Frame(values, {"deepest": _made_of(deepest)}, point)

    return streamed(visit.house.pulse.stream(visit.caller, frame))


def _values(visit: Visit) -> dict[str, str]:
    sampler = visit.house.sampler
    totals, last = sampler.totals, sampler.points.last
    free_bytes = visit.house.surroundings.disk_free_bytes()
    return {
        "in": wording.rate(last[1] if last else 0),
        "out": wording.rate(last[2] if last else 0),
        "depth": wording.number(totals.depth),
        "oldest": wording.span(totals.oldest_age_ms),
        "oldest_queue": totals.oldest_queue,
        "in_flight": wording.number(totals.in_flight),
        "dead_letters": wording.number(totals.dead_letters),
        "disk": wording.size(sampler.stored_bytes),
        "disk_free": "in memory" if free_bytes is None else f"{wording.size(free_bytes)} free",
        **badges(visit),
    }


def _made_of(deepest: list[Row]) -> str:
    return made_of([row.name for row in deepest])


def _deepest(visit: Visit) -> list[Row]:
    """The queues that hold the most."""
    queues, sampler = visit.engine.queues, visit.house.sampler
    return rows_of(visit, [each for each in sampler.deepest if queues.get(each.name) is each])
