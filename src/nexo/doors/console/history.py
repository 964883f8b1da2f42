"""The lines over time: samples of the engine's counters, in memory and bounded.

All queues together are sampled now and then, and every tick while somebody looks; a single queue
only from the first look on, and for a while after the last. A restart begins anew: what is to be
kept for longer is what the metrics and the `insights` job are for.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

import msgspec

from nexo.vocabulary.names import FIFO_SUFFIX, dead_letter_name

if TYPE_CHECKING:
    from nexo.engine.engine import Engine
    from nexo.engine.queue_actor import QueueActor
    from nexo.vocabulary.settings import QueueSettings

POINTS_MAX = 2_400  # of one line
POINTS_SHOWN = 600  # that a page is sent: more than it has pixels to tell apart
QUEUES_MAX = 100  # queues with lines of their own; the longest not looked at goes first
QUEUE_LOOKED_AT_MS = 600_000  # a queue's line goes on for this long after the last look
FRESH_MS = 900  # totals that are older are taken anew for a page
NAMES_KEPT_MS = 5_000  # for this long it is known which queues hold dead letters
PASSED_S_MIN = 0.5  # between two points: a rate over less is noise
_DLQ_SUFFIX = "_dlq"


class Totals(msgspec.Struct, frozen=True):
    """All queues at one moment. `dead_letters` is what the dead-letter queues hold."""

    at_ms: int
    queues: int
    pushed: int
    acked: int
    depth: int
    in_flight: int
    dead_letters: int
    oldest_age_ms: int
    oldest_queue: str


class Points:
    """Lines of the same times: rows of numbers, the oldest first."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._values: array[float] = array("d")

    def add(self, *row: float) -> None:
        assert len(row) == self._width
        self._values.extend(row)
        beyond = len(self._values) - POINTS_MAX * self._width
        if beyond >= 100 * self._width:  # a cut moves everything, so it is made rarely
            del self._values[:beyond]

    @property
    def last(self) -> list[float]:
        return list(self._values[-self._width :])

    def columns(self) -> list[list[float]]:
        """Evenly thinned out to what a page shows; the newest row is always there."""
        count = len(self._values) // self._width
        step = max(1, -(-count // POINTS_SHOWN))
        first = (count - 1) % step * self._width if count else 0
        return [
            [_short(each) for each in self._values[first + index :: step * self._width]]
            for index in range(self._width)
        ]


class DeadLetterQueues:
    """Which queues hold dead letters: those that another queue names, and those whose name says so
    although their source is gone."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._targets: dict[str, tuple[QueueSettings, str]] = {}
        self._known: frozenset[str] = frozenset()
        self._known_of = -1  # how many queues there were
        self._known_ms = 0

    def target_of(self, name: str, settings: QueueSettings) -> str:
        """Where the dead letters of a queue go."""
        known = self._targets.get(name)
        if known is None or known[0] is not settings:
            known = (settings, dead_letter_name(name, settings.dead_letter))
            self._targets[name] = known
        return known[1]

    def sources(self) -> dict[str, list[str]]:
        """Each dead-letter queue with the queues that send to it."""
        queues = self._engine.queues
        found: dict[str, list[str]] = {
            name: [] for name in queues if name.endswith((_DLQ_SUFFIX, _DLQ_SUFFIX + FIFO_SUFFIX))
        }
        for name, actor in queues.items():
            target = self.target_of(name, actor.queue.settings)
            if target in queues:
                found.setdefault(target, []).append(name)
        if len(self._targets) > len(queues):
            self._targets = {name: kept for name, kept in self._targets.items() if name in queues}
        self._known = frozenset(found)
        self._known_of, self._known_ms = len(queues), self._engine.now_ms()
        return found

    def names(self) -> frozenset[str]:
        """The same without who sends to them, as found a moment ago: it is asked for every tick,
        and changes only with queues and their settings."""
        queues, now_ms = self._engine.queues, self._engine.now_ms()
        if len(queues) != self._known_of or now_ms > self._known_ms + NAMES_KEPT_MS:
            self.sources()
        return self._known


class Ages:
    """Since when the oldest message of each queue waits; looked up anew only when a queue has
    changed, since thousands of queues are asked every second."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[tuple[int, ...], int]] = {}

    def since_ms(self, actor: QueueActor, now_ms: int) -> int:
        queue = actor.queue
        totals = queue.totals
        seen = (totals.pushed, totals.acked, queue.depth, queue.in_flight)
        known = self._known.get(queue.name)
        if known is not None and known[0] == seen:
            return known[1]
        since_ms = now_ms - actor.info().oldest_age_ms
        self._known[queue.name] = (seen, since_ms)
        return since_ms

    def forget_all_but(self, queues: dict[str, QueueActor]) -> None:
        if len(self._known) > 2 * len(queues) + 100:
            self._known = {name: kept for name, kept in self._known.items() if name in queues}


class Sampler:
    """Takes the samples, and keeps the latest totals."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._ages = Ages()
        self.dead_letter_queues = DeadLetterQueues(engine)
        # time, in/s, out/s, depth, oldest age s, in flight, dead letters, stored bytes
        self.points = Points(8)
        self.stored_bytes = 0
        self.totals = self._sampled = self.take()
        self._queues: dict[str, QueueLine] = {}

    def take(self) -> Totals:
        """All queues as they are now: one short walk."""
        engine, now_ms = self._engine, self._engine.now_ms()
        pushed = acked = depth = in_flight = 0
        oldest_ms, oldest_queue = now_ms, ""
        since_ms = self._ages.since_ms
        for name, actor in engine.queues.items():
            queue = actor.queue
            totals = queue.totals
            pushed += totals.pushed
            acked += totals.acked
            if queue.depth:
                depth += queue.depth
                in_flight += queue.in_flight
                since = since_ms(actor, now_ms)
                if since < oldest_ms:
                    oldest_ms, oldest_queue = since, name
        self._ages.forget_all_but(engine.queues)
        names = self.dead_letter_queues.names()
        dead = sum(engine.queues[name].queue.depth for name in names if name in engine.queues)
        self.totals = Totals(
            now_ms,
            len(engine.queues),
            pushed,
            acked,
            depth,
            in_flight,
            dead,
            now_ms - oldest_ms,
            oldest_queue,
        )
        return self.totals

    def fresh(self) -> Totals:
        """The latest totals, taken anew if nobody has looked for a while."""
        if self._engine.now_ms() - self.totals.at_ms > FRESH_MS:
            self.take()
        return self.totals

    def sample(self) -> None:
        """One point more on each line."""
        before, now = self._sampled, self.take()
        passed_s = (now.at_ms - before.at_ms) / 1000
        if passed_s >= PASSED_S_MIN:
            self._sampled = now
            self.points.add(
                now.at_ms / 1000,
                # Totals go down when a queue is deleted; a rate does not.
                max(0, now.pushed - before.pushed) / passed_s,
                max(0, now.acked - before.acked) / passed_s,
                now.depth,
                now.oldest_age_ms / 1000,
                now.in_flight,
                now.dead_letters,
                self.stored_bytes,
            )
        for name, line in list(self._queues.items()):
            actor = self._engine.queues.get(name)
            if actor is None or now.at_ms - line.looked_at_ms > QUEUE_LOOKED_AT_MS:
                del self._queues[name]
            else:
                line.sample(actor, now.at_ms)

    def line_of(self, actor: QueueActor) -> QueueLine:
        """The line of one queue, begun now if nobody has looked at it lately."""
        line = self._queues.pop(actor.name, None)
        if line is None or line.incarnation != actor.queue.incarnation:
            line = QueueLine(actor)
            line.sample(actor, self._engine.now_ms())
        self._queues[actor.name] = line  # behind all others
        if len(self._queues) > QUEUES_MAX:
            del self._queues[next(iter(self._queues))]
        line.looked_at_ms = self._engine.now_ms()
        return line


class QueueLine:
    def __init__(self, actor: QueueActor) -> None:
        self.incarnation = actor.queue.incarnation
        # time, in/s, out/s, depth, oldest age s, in flight
        self.points = Points(6)
        self.looked_at_ms = 0
        self._at_ms = 0
        self._pushed = self._acked = 0

    def sample(self, actor: QueueActor, now_ms: int) -> None:
        passed_s = (now_ms - self._at_ms) / 1000
        if passed_s < PASSED_S_MIN and self._at_ms:
            return
        info = actor.info()
        is_first = not self._at_ms
        self.points.add(
            now_ms / 1000,
            0 if is_first else max(0, info.pushed - self._pushed) / passed_s,
            0 if is_first else max(0, info.acked - self._acked) / passed_s,
            info.depth,
            info.oldest_age_ms / 1000,
            info.in_flight,
        )
        self._at_ms, self._pushed, self._acked = now_ms, info.pushed, info.acked


def _short(value: float) -> float:
    """As it is written shortest: most are whole numbers."""
    return int(value) if value.is_integer() else round(value, 3)
