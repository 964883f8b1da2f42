"""The overview: all queues together, each number with its line over time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import RedirectResponse

from nexo.doors.console import formatting
from nexo.doors.console.pages import badges
from nexo.doors.console.queues import rows_of
from nexo.doors.console.request import at
from nexo.doors.console.streams import Frame, made_of, streamed

if TYPE_CHECKING:
    from starlette.responses import Response

    from nexo.doors.console.queues import Row
    from nexo.doors.console.request import Call


async def overview(call: Call) -> Response:
    if not call.sees_metrics:  # this is where a sign-in leads to
        return RedirectResponse(at("queues"), 303)
    sampler = call.shared.sampler
    await sampler.walk()
    deepest = _deepest(call)
    return await call.page(
        "overview.html",
        {"deepest": "overview_deepest.html"},
        values=_values(call),
        history=sampler.points.columns(),
        deepest=deepest,
        deepest_made_of=_made_of(deepest),
        has_queues=bool(call.engine.queues),
        place=call.place,
    )


async def live_overview(call: Call) -> Response:
    sampler = call.shared.sampler
    had_queues = bool(call.engine.queues)
    last_s = 0.0

    def frame() -> Frame | None:
        nonlocal last_s
        if bool(call.engine.queues) != had_queues:
            return None  # from the lesson to the figures, or back
        last = sampler.points.last
        point = None
        if last and last[0] > last_s:
            last_s, point = last[0], [round(each, 3) for each in last]
        values, deepest = _values(call), _deepest(call)
        for row in deepest:
            values |= row.live()
        return Frame(values, {"deepest": _made_of(deepest)}, point)

    return streamed(call.shared.pulse.stream(call.caller, frame))


def _values(call: Call) -> dict[str, str]:
    sampler = call.shared.sampler
    totals, last = sampler.totals, sampler.points.last
    free_bytes = call.shared.surroundings.disk_free_bytes()
    return {
        "in": formatting.rate(last[1] if last else 0),
        "out": formatting.rate(last[2] if last else 0),
        "depth": formatting.number(totals.depth),
        "oldest": formatting.span(totals.oldest_age_ms),
        "oldest_queue": totals.oldest_queue,
        "in_flight": formatting.number(totals.in_flight),
        "dead_letters": formatting.number(totals.dead_letters),
        "disk": formatting.size(sampler.stored_bytes),
        "disk_free": _place(call) if free_bytes is None else f"{formatting.size(free_bytes)} free",
        **badges(call),
    }


def _place(call: Call) -> str:
    return "in memory" if call.shared.surroundings.cluster is None else "in PostgreSQL"


def _made_of(deepest: list[Row]) -> str:
    return made_of([row.name for row in deepest])


def _deepest(call: Call) -> list[Row]:
    """The queues that hold the most."""
    queues, sampler = call.engine.queues, call.shared.sampler
    return rows_of(call, [each for each in sampler.deepest if queues.get(each.name) is each])
