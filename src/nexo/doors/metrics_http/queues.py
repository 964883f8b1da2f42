"""The metrics of queues. Thousands of queues must not drown whoever stores the series: beyond a
limit the least busy ones are told together, under an empty name, and only the busiest have
histograms."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nexo.telemetry import families as f
from nexo.telemetry.exposition import escaped, header, histogram, sample
from nexo.telemetry.histogram import LIFE_BOUNDS_S, Histogram
from nexo.vocabulary.limits import METRICS_HISTOGRAMS_MAX, METRICS_QUEUES_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nexo.engine.engine import Engine
    from nexo.engine.queue_actor import QueueActor

SLICE = 250  # queues that are rendered before others get their turn
OTHERS = ""  # the name under which the rest is told
_TOTALS = ("pushed", "delivered", "acked", "nacked", "expired", "dead_lettered")
_GAUGES = (
    f.QUEUE_DEPTH,
    f.QUEUE_READY,
    f.QUEUE_SCHEDULED,
    f.QUEUE_IN_FLIGHT,
    f.QUEUE_OLDEST_AGE,
    f.QUEUE_CONSUMERS,
)
_GAUGE_NAMES = [family.name for family in _GAUGES]


def queue_lines(engine: Engine) -> Iterator[str]:
    """Slices of lines, each family in one piece as the format wants it."""
    actors = sorted(engine.queues.values(), key=_business, reverse=True)
    shown, others = actors[:METRICS_QUEUES_MAX], actors[METRICS_QUEUES_MAX:]
    yield header(f.UNSHOWN) + sample(f.UNSHOWN, len(others))
    # The format wants a family in one piece, so figures are taken first and told after.
    gauges: list[list[str]] = [[header(family)] for family in _GAUGES]
    totals = [header(f.MESSAGES)]
    for start in range(0, len(shown), SLICE):
        for actor in shown[start : start + SLICE]:
            _add(gauges, totals, escaped(actor.name), _figures(actor))
        yield ""
    if others:
        _add(gauges, totals, OTHERS, _together(others))
    for lines in (*gauges, totals):
        for start in range(0, len(lines), 5_000):
            yield "".join(lines[start : start + 5_000])
    yield from _meter_lines(engine, shown)


def _business(actor: QueueActor) -> int:
    return actor.queue.totals.delivered + actor.queue.totals.pushed


def _figures(actor: QueueActor) -> tuple[list[float], list[int]]:
    """The gauges and totals of a queue."""
    queue, totals = actor.queue, actor.queue.totals
    gauges: list[float] = [
        queue.depth,
        queue.ready,
        queue.scheduled_count,
        queue.in_flight,
        actor.info().oldest_age_ms / 1000 if queue.depth else 0,
        actor.room.consumers,
    ]
    return gauges, [
        totals.pushed,
        totals.delivered,
        totals.acked,
        totals.nacked,
        totals.expired,
        totals.dead_lettered,
    ]


def _together(actors: list[QueueActor]) -> tuple[list[float], list[int]]:
    """Those of several queues: their sums, and the oldest age of all."""
    figures = [_figures(actor) for actor in actors]
    gauges = [sum(column) for column in zip(*[each[0] for each in figures], strict=True)]
    gauges[4] = max(each[0][4] for each in figures)
    return gauges, [sum(column) for column in zip(*[each[1] for each in figures], strict=True)]


def _add(
    gauges: list[list[str]],
    totals: list[str],
    name: str,
    figures: tuple[list[float], list[int]],
) -> None:
    label = f'{{queue="{name}"}} '
    for lines, family, value in zip(gauges, _GAUGE_NAMES, figures[0], strict=True):
        lines.append(f"{family}{label}{value}\n")
    label = f'nexo_messages_total{{queue="{name}",event="'
    totals += [f'{label}{event}"}} {n}\n' for event, n in zip(_TOTALS, figures[1], strict=True)]


def _meter_lines(engine: Engine, shown: list[QueueActor]) -> Iterator[str]:
    """Retries of all that are shown, histograms of the busiest; the rest together."""
    meters = engine.meters.queues
    names = [actor.name for actor in shown if actor.name in meters]
    lines = [sample(f.RETRIES, meters[name].retries, name) for name in names]
    yield header(f.RETRIES) + "".join(lines)
    busiest = names[:METRICS_HISTOGRAMS_MAX]
    told = frozenset(busiest)
    rest = [each for name, each in meters.items() if name not in told]
    for family in (f.WAIT, f.WORK):
        lines = [header(family)]
        for name in busiest:
            values = meters[name].wait_s if family is f.WAIT else meters[name].work_s
            lines.append(histogram(family, values, name))
        together = Histogram(LIFE_BOUNDS_S)
        for each in rest:
            together.merge(each.wait_s if family is f.WAIT else each.work_s)
        if rest:
            lines.append(histogram(family, together, OTHERS))
        yield "".join(lines)
