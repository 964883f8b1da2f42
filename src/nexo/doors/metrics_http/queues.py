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

SLICE = 250  # queues that are rendered before others get their turn …
LINES = 2_000  # … and lines that are put together
RANKED_TOGETHER = 250  # queues by which those that are shown are found anew
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
    """Slices of lines, each family in one piece as the format wants it. An empty slice tells of
    nothing: it is where others get their turn."""
    ranked = _Ranked()
    for names in engine.queues.behind():
        ranked.add([engine.queues[name] for name in names])
        yield ""
    shown = ranked.busiest()
    yield header(f.UNSHOWN) + sample(f.UNSHOWN, ranked.others)
    # The format wants a family in one piece, so figures are taken first and told after.
    gauges: list[list[str]] = [[header(family)] for family in _GAUGES]
    totals = [header(f.MESSAGES)]
    for start in range(0, len(shown), SLICE):
        for actor in shown[start : start + SLICE]:
            _add(gauges, totals, escaped(actor.name), _figures(actor))
        yield ""
    if ranked.others:
        _add(gauges, totals, OTHERS, ranked.together)
    for lines in (*gauges, totals):
        for start in range(0, len(lines), LINES):
            yield "".join(lines[start : start + LINES])
    yield from _meter_lines(engine, shown)


def _business(actor: QueueActor) -> int:
    return actor.queue.totals.delivered + actor.queue.totals.pushed


class _Ranked:
    """The busiest queues, and the rest of them together: their sums, and the oldest age of all."""

    def __init__(self) -> None:
        self.others = 0
        self.together: tuple[list[float], list[int]] = [0.0] * len(_GAUGES), [0] * len(_TOTALS)
        self._kept: list[QueueActor] = []
        self._least = -1  # whoever is no busier than this is one of the rest

    def add(self, actors: list[QueueActor]) -> None:
        for actor in actors:
            if _business(actor) > self._least:
                self._kept.append(actor)
            else:
                self._join(*_figures(actor))
        # Sorted anew after so many only, so that most slices cost little.
        if len(self._kept) >= METRICS_QUEUES_MAX + RANKED_TOGETHER:
            self.busiest()
            self._least = _business(self._kept[-1])

    def busiest(self) -> list[QueueActor]:
        """Those with series of their own, the busiest first."""
        self._kept.sort(key=_business, reverse=True)
        for actor in self._kept[METRICS_QUEUES_MAX:]:
            self._join(*_figures(actor))
        del self._kept[METRICS_QUEUES_MAX:]
        return self._kept

    def _join(self, gauges: list[float], totals: list[int]) -> None:
        self.others += 1
        oldest = _GAUGES.index(f.QUEUE_OLDEST_AGE)
        for at, value in enumerate(gauges):
            known = self.together[0][at]
            self.together[0][at] = max(known, value) if at == oldest else known + value
        for at, count in enumerate(totals):
            self.together[1][at] += count


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
    yield header(f.RETRIES)
    busiest: list[str] = []
    for start in range(0, len(shown), LINES):
        names = [actor.name for actor in shown[start : start + LINES] if actor.name in meters]
        busiest += names[: METRICS_HISTOGRAMS_MAX - len(busiest)]
        yield "".join([sample(f.RETRIES, meters[name].retries, name) for name in names])
    told = frozenset(busiest)
    waits, works = Histogram(LIFE_BOUNDS_S), Histogram(LIFE_BOUNDS_S)
    rest = [name for name in meters if name not in told]
    for start in range(0, len(rest), SLICE):
        for name in rest[start : start + SLICE]:
            if name in meters:  # else its queue was deleted in between
                waits.merge(meters[name].wait_s)
                works.merge(meters[name].work_s)
        yield ""
    for family, together in ((f.WAIT, waits), (f.WORK, works)):
        lines = [header(family)]
        for name in busiest:
            if name in meters:
                values = meters[name].wait_s if family is f.WAIT else meters[name].work_s
                lines.append(histogram(family, values, name))
        if rest:
            lines.append(histogram(family, together, OTHERS))
        yield "".join(lines)
