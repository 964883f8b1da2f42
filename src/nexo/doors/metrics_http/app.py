"""`/metrics`: the figures of the broker as Prometheus reads them, a slice at a time.

Thousands of queues must not drown whoever stores the series: beyond a limit the least busy ones are
told together, under an empty name, and only the busiest have histograms. Of topics those that keep
the most are told.
"""

from __future__ import annotations

import asyncio
import resource
import time
from heapq import nlargest
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Protocol

from nexo.engine.backups import usage_if_known
from nexo.engine.peek import counts
from nexo.telemetry import families as f
from nexo.telemetry.families import CONTENT_TYPE, escaped, header, histogram, sample
from nexo.telemetry.meters import LIFE_BOUNDS_S, Histogram
from nexo.vocabulary.limits import (
    METRICS_CLAIMS_MAX,
    METRICS_HISTOGRAMS_MAX,
    METRICS_QUEUES_MAX,
    METRICS_RANKED_STEP,
    METRICS_STEP_LINES,
    METRICS_STEP_QUEUES,
    METRICS_TOPICS_MAX,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from nexo.engine.engine import Engine
    from nexo.engine.peek import Counts
    from nexo.engine.queue_actor import QueueActor
    from nexo.engine.topic_actor import TopicActor
    from nexo.engine.types import Usage

    Send = Callable[[dict[str, Any]], Awaitable[None]]

OTHERS = ""  # the name under which the rest is told
_TOTALS = ("pushed", "delivered", "acked", "nacked", "timed_out", "expired", "dead_lettered")
_GAUGES = (
    f.QUEUE_DEPTH,
    f.QUEUE_READY,
    f.QUEUE_SCHEDULED,
    f.QUEUE_IN_FLIGHT,
    f.QUEUE_OLDEST_AGE,
    f.QUEUE_CONSUMERS,
)
_GAUGE_NAMES = [family.name for family in _GAUGES]
_STARTED_S = time.time()
_HEADERS = [
    (b"content-type", CONTENT_TYPE.encode()),
    (b"cache-control", b"no-store"),
]


class Surroundings(Protocol):
    """What is known outside of the engine."""

    @property
    def version(self) -> str: ...

    def connections(self) -> dict[str, int]:
        """Open connections by door."""

    def disk_free_bytes(self) -> int | None:
        """Room left on the disk; None without one."""


class MetricsApp:
    """An ASGI app. `surroundings` tells what the engine does not know, `more` has lines of other
    families."""

    def __init__(
        self,
        engine: Engine,
        surroundings: Surroundings,
        more: Callable[[], str] = lambda: "",
    ) -> None:
        self._engine = engine
        self._surroundings = surroundings
        self._more = more

    async def __call__(self, scope: Any, receive: Any, send: Send) -> None:
        if scope["path"] != "/metrics" or scope["method"] not in ("GET", "HEAD"):
            await _refuse(send, 404 if scope["path"] != "/metrics" else 405)
            return
        usage = await usage_if_known(self._engine.backups)
        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        whole = [whole_lines(self._engine, self._surroundings, usage), self._more()]
        for lines in chain(whole, topic_lines(self._engine), queue_lines(self._engine)):
            if lines:
                body = {"type": "http.response.body", "body": lines.encode(), "more_body": True}
                await send(body)
            await asyncio.sleep(0)  # between two slices the broker works
        await send({"type": "http.response.body", "body": b""})


async def _refuse(send: Send, status: int) -> None:
    headers = [(b"content-length", b"0")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


# -- The broker as a whole --------------------------------------------------------------------


def whole_lines(engine: Engine, surroundings: Surroundings, usage: Usage | None) -> str:
    """Without `usage` the journal cannot be asked: then, too, the rest is wanted."""
    meters, memory = engine.meters, engine.memory
    lines = [
        header(f.BUILD),
        sample(f.BUILD, 1, surroundings.version),
        header(f.READ_ONLY),
        sample(f.READ_ONLY, engine.refusal is not None),
        header(f.CONNECTIONS),
        *[sample(f.CONNECTIONS, n, door) for door, n in surroundings.connections().items()],
    ]
    if usage is not None:
        lines += [header(f.STORED), sample(f.STORED, usage.stored_bytes)]
    free_bytes = surroundings.disk_free_bytes()
    if free_bytes is not None:
        lines += [header(f.DISK_FREE), sample(f.DISK_FREE, free_bytes)]
    for family, values in (
        (f.COMMIT, meters.commit_s),
        (f.SYNC, meters.sync_s),
        (f.LOOP_LAG, meters.loop_lag_s),
    ):
        lines += [header(family), histogram(family, values)]
    for family, value in (
        (f.OVERDUE, engine.committer.overdue_ms / 1000),
        (f.OUT_OF_SERVICE, len(engine.out_of_service)),
        (f.UNREADABLE, sum(each.messages for each in memory.unreadable())),
        (f.EVENTS_WAITING, engine.events_waiting),
        (f.EVENTS_DROPPED, meters.events_dropped),
        (f.CLOCK_AHEAD, engine.clock_ahead_ms() / 1000),
        (f.UNSETTLED, engine.committer.unsettled_bytes),
        (f.PAYLOAD_MEMORY, memory.resident_bytes),
        (f.PAYLOAD_LIMIT, memory.payload_limit_bytes),
        (f.BOOKKEEPING, memory.bookkeeping_bytes),
        (f.RESIDENT, _resident_bytes()),
        (f.CPU, time.process_time()),
        (f.STARTED, _STARTED_S),
    ):
        lines += [header(family), sample(family, value)]
    backlogs = engine.transfers.by_shard()
    if backlogs:
        lines.append(header(f.TRANSFER_BACKLOG))
        lines += [sample(f.TRANSFER_BACKLOG, told.messages, str(shard)) for shard, told in backlogs]
        lines.append(header(f.TRANSFER_OLDEST))
        lines += [
            sample(f.TRANSFER_OLDEST, told.oldest_ms / 1000, str(shard)) for shard, told in backlogs
        ]
    return "".join(lines)


def _resident_bytes() -> int:
    """Now where Linux tells it, else the most that it ever was."""
    try:
        with open("/proc/self/statm", encoding="ascii") as statm:  # noqa: PTH123 - hot enough
            return int(statm.read().split()[1]) * resource.getpagesize()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


# -- Topics -----------------------------------------------------------------------------------


def topic_lines(engine: Engine) -> Iterator[str]:
    """The topics that keep the most; beyond a limit the rest is left out. An empty slice tells of
    nothing: it is where others get their turn."""
    found: list[TopicActor] = []
    for names in engine.topics.behind():
        found += [engine.topics[name] for name in names]
        if len(found) >= 2 * METRICS_TOPICS_MAX:
            found = _largest(found)
        yield ""
    topics = _largest(found)
    lines = []
    for family, values in (
        (f.TOPIC_MESSAGES, [len(topic.offsets) for topic in topics]),
        (f.TOPIC_BYTES, [topic.kept_bytes for topic in topics]),
        (f.PUBLISHED, [topic.offsets.stop for topic in topics]),
    ):
        lines.append(header(family))
        pairs = zip(topics, values, strict=True)
        lines += [sample(family, value, topic.name) for topic, value in pairs]
    yield "".join(lines)


def _largest(actors: list[TopicActor]) -> list[TopicActor]:
    return nlargest(METRICS_TOPICS_MAX, actors, key=lambda actor: actor.kept_bytes)


# -- Queues -----------------------------------------------------------------------------------


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
    claimed, ages = [header(f.QUEUE_CLAIMED)], [header(f.QUEUE_CLAIMED_AGE)]
    for start in range(0, len(shown), METRICS_STEP_QUEUES):
        for actor in shown[start : start + METRICS_STEP_QUEUES]:
            _add(gauges, totals, escaped(actor.name), _figures(actor, counts(actor)))
            if actor.queue.claims and len(claimed) <= METRICS_CLAIMS_MAX:
                _add_claims(claimed, ages, actor)
        yield ""
    if ranked.others:
        _add(gauges, totals, OTHERS, ranked.together)
    for lines in (*gauges, claimed, ages, totals):
        for start in range(0, len(lines), METRICS_STEP_LINES):
            yield "".join(lines[start : start + METRICS_STEP_LINES])
    yield from _meter_lines(engine, shown)


class _Ranked:
    """The busiest queues, and the rest of them together: their sums, and the oldest age of all."""

    def __init__(self) -> None:
        self.others = 0
        self.together: tuple[list[float], list[int]] = [0.0] * len(_GAUGES), [0] * len(_TOTALS)
        self._kept: list[tuple[int, QueueActor]] = []  # how busy each is
        self._least = -1  # whoever is no busier than this is one of the rest

    def add(self, actors: list[QueueActor]) -> None:
        for actor in actors:
            told = counts(actor)
            business = told.delivered + told.pushed
            if business > self._least:
                self._kept.append((business, actor))
            else:
                self._join(*_figures(actor, told))
        # Sorted anew after so many only, so that most slices cost little.
        if len(self._kept) >= METRICS_QUEUES_MAX + METRICS_RANKED_STEP:
            self.busiest()
            self._least = self._kept[-1][0]

    def busiest(self) -> list[QueueActor]:
        """Those with series of their own, the busiest first."""
        self._kept.sort(key=itemgetter(0), reverse=True)
        for _, actor in self._kept[METRICS_QUEUES_MAX:]:
            self._join(*_figures(actor, counts(actor)))
        del self._kept[METRICS_QUEUES_MAX:]
        return [actor for _, actor in self._kept]

    def _join(self, gauges: list[float], totals: list[int]) -> None:
        self.others += 1
        oldest = _GAUGES.index(f.QUEUE_OLDEST_AGE)
        for at, value in enumerate(gauges):
            known = self.together[0][at]
            self.together[0][at] = max(known, value) if at == oldest else known + value
        for at, count in enumerate(totals):
            self.together[1][at] += count


def _figures(actor: QueueActor, told: Counts) -> tuple[list[float], list[int]]:
    """The gauges and totals of a queue."""
    gauges: list[float] = [
        told.depth,
        told.ready,
        told.scheduled,
        told.in_flight,
        actor.info().oldest_age_ms / 1000 if told.depth else 0,
        told.consumers,
    ]
    return gauges, [
        told.pushed,
        told.delivered,
        told.acked,
        told.nacked,
        told.timed_out,
        told.expired,
        told.dead_lettered,
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


def _add_claims(claimed: list[str], ages: list[str], actor: QueueActor) -> None:
    """The consumers of Spark that hold something."""
    info = actor.info()
    for consumer, age_ms in info.claimed_age_ms.items():
        claimed.append(sample(f.QUEUE_CLAIMED, info.claimed[consumer], actor.name, consumer))
        ages.append(sample(f.QUEUE_CLAIMED_AGE, age_ms / 1000, actor.name, consumer))


def _meter_lines(engine: Engine, shown: list[QueueActor]) -> Iterator[str]:
    """Retries of all that are shown, histograms of the busiest; the rest together."""
    meters = engine.meters.queues
    yield header(f.RETRIES)
    busiest: list[str] = []
    for start in range(0, len(shown), METRICS_STEP_LINES):
        names = [
            actor.name
            for actor in shown[start : start + METRICS_STEP_LINES]
            if actor.name in meters
        ]
        busiest += names[: METRICS_HISTOGRAMS_MAX - len(busiest)]
        yield "".join([sample(f.RETRIES, meters[name].retries, name) for name in names])
    told = frozenset(busiest)
    waits, works = Histogram(LIFE_BOUNDS_S), Histogram(LIFE_BOUNDS_S)
    rest = [name for name in meters if name not in told]
    for start in range(0, len(rest), METRICS_STEP_QUEUES):
        for name in rest[start : start + METRICS_STEP_QUEUES]:
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
