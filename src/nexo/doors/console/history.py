"""The lines over time: samples of the engine's counters, in memory and bounded.

All queues together are sampled now and then, and every tick while somebody looks; a single queue
only from the first look on, and for a while after the last. A restart begins anew: what is to be
kept for longer is what the metrics and the `insights` job are for.
"""

from __future__ import annotations

import asyncio
from array import array
from heapq import nsmallest
from typing import TYPE_CHECKING

import msgspec

from nexo.engine.backups import usage_if_known
from nexo.engine.listing import steps
from nexo.engine.peek import traffic
from nexo.vocabulary.limits import (
    CONSOLE_DEEPEST_SHOWN,
    CONSOLE_FRESH_MS,
    CONSOLE_IDLE_S,
    CONSOLE_LINE_KEPT_MS,
    CONSOLE_LINES_MAX,
    CONSOLE_NAMES_KEPT_MS,
    CONSOLE_POINTS_MAX,
    CONSOLE_POINTS_SHOWN,
    CONSOLE_RATE_S_MIN,
    CONSOLE_STEP_QUEUES,
    CONSOLE_USAGE_S,
)
from nexo.vocabulary.names import FIFO_SUFFIX, dead_letter_name

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from nexo.engine.engine import Engine
    from nexo.engine.peek import Traffic
    from nexo.engine.queue_actor import QueueActor
    from nexo.vocabulary.settings import QueueSettings

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
        beyond = len(self._values) - CONSOLE_POINTS_MAX * self._width
        if beyond >= 100 * self._width:  # a cut moves everything, so it is made rarely
            del self._values[:beyond]

    @property
    def last(self) -> list[float]:
        return list(self._values[-self._width :])

    def columns(self) -> list[list[float]]:
        """Evenly thinned out to what a page shows; the newest row is always there."""
        count = len(self._values) // self._width
        step = max(1, -(-count // CONSOLE_POINTS_SHOWN))
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
        self._known: dict[str, list[str]] = {}
        self._known_of = -1  # how many queues there were
        self._known_ms = 0

    def target_of(self, name: str, settings: QueueSettings) -> str:
        """Where the dead letters of a queue go."""
        known = self._targets.get(name)
        if known is None or known[0] is not settings:
            known = (settings, dead_letter_name(name, settings.dead_letter))
            self._targets[name] = known
        return known[1]

    def look(self, actors: Iterable[QueueActor], found: dict[str, list[str]]) -> None:
        """Add what these queues tell to what is found of all."""
        queues = self._engine.queues
        for actor in actors:
            name = actor.name
            if name.endswith((_DLQ_SUFFIX, _DLQ_SUFFIX + FIFO_SUFFIX)):
                found.setdefault(name, [])
            target = self.target_of(name, actor.settings)
            if target in queues:
                found.setdefault(target, []).append(name)

    def learn(self, found: dict[str, list[str]]) -> None:
        """All queues were looked at."""
        queues = self._engine.queues
        if len(self._targets) > 2 * len(queues) + 100:
            self._targets = {name: kept for name, kept in self._targets.items() if name in queues}
        self._known = found
        self._known_of, self._known_ms = len(queues), self._engine.now_ms()

    def sources(self) -> dict[str, list[str]]:
        """Each dead-letter queue with the queues that send to it; of very many queues as the last
        walk has found them."""
        queues = self._engine.queues
        if len(queues) <= CONSOLE_STEP_QUEUES:
            found: dict[str, list[str]] = {}
            self.look(queues.values(), found)
            self.learn(found)
        return self._known

    def names(self) -> Collection[str]:
        """The same without who sends to them, as found a moment ago: it is asked for every tick,
        and changes only with queues and their settings."""
        queues, now_ms = self._engine.queues, self._engine.now_ms()
        if len(queues) != self._known_of or now_ms > self._known_ms + CONSOLE_NAMES_KEPT_MS:
            self.sources()
        return self._known.keys()


class Ages:
    """Since when the oldest message of each queue waits; looked up anew only when a queue has
    changed, since thousands of queues are asked every second."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Traffic, int]] = {}

    def since_ms(self, actor: QueueActor, name: str, seen: Traffic, now_ms: int) -> int:
        known = self._known.get(name)
        if known is not None and known[0] == seen:
            return known[1]
        since_ms = now_ms - actor.info().oldest_age_ms
        self._known[name] = (seen, since_ms)
        return since_ms

    def forget_all_but(self, queues: dict[str, QueueActor]) -> None:
        if len(self._known) > 2 * len(queues) + 100:
            self._known = {name: kept for name, kept in self._known.items() if name in queues}


class Rates:
    """How fast each queue fills and empties, since the look before."""

    def __init__(self) -> None:
        # When, pushed and acked until then, in/s, out/s: changed in place, as there are thousands.
        self._known: dict[str, list[float]] = {}

    def see(self, name: str, seen: Traffic, now_ms: int) -> None:
        known = self._known.get(name)
        if known is None:
            self._known[name] = [now_ms, seen.pushed, seen.acked, 0.0, 0.0]
            return
        passed_s = (now_ms - known[0]) / 1000
        if passed_s >= CONSOLE_RATE_S_MIN:
            # A queue that was created anew counts from zero; a rate does not go below it.
            known[3] = max(0.0, seen.pushed - known[1]) / passed_s
            known[4] = max(0.0, seen.acked - known[2]) / passed_s
            known[0], known[1], known[2] = now_ms, seen.pushed, seen.acked

    def of(self, name: str) -> tuple[float, float]:
        """Messages in and out a second."""
        known = self._known.get(name)
        return (known[3], known[4]) if known is not None else (0.0, 0.0)

    def forget_all_but(self, queues: dict[str, QueueActor]) -> None:
        if len(self._known) > 2 * len(queues) + 100:
            self._known = {name: kept for name, kept in self._known.items() if name in queues}


class _Walk:
    """A look at all queues, some at a time."""

    def __init__(self, engine: Engine, ages: Ages, rates: Rates, letters: DeadLetterQueues) -> None:
        self._engine = engine
        self._ages = ages
        self._rates = rates
        self._letters = letters
        self._now_ms = engine.now_ms()
        self._pushed = self._acked = self._depth = self._in_flight = 0
        self._oldest_ms, self._oldest_queue = self._now_ms, ""
        self.sources: dict[str, list[str]] = {}
        self._deepest: list[tuple[int, str, QueueActor]] = []

    @property
    def deepest(self) -> list[QueueActor]:
        """Those that hold the most."""
        return [actor for _, _, actor in self._deepest]

    def see(self, actors: Collection[QueueActor]) -> None:
        since_ms = self._ages.since_ms
        busy = []
        for actor in actors:
            seen, name = traffic(actor), actor.name
            self._pushed += seen.pushed
            self._acked += seen.acked
            self._rates.see(name, seen, self._now_ms)
            if seen.depth:
                busy.append((-seen.depth, name, actor))
                self._depth += seen.depth
                self._in_flight += seen.in_flight
                since = since_ms(actor, name, seen, self._now_ms)
                if since < self._oldest_ms:
                    self._oldest_ms, self._oldest_queue = since, name
        self._letters.look(actors, self.sources)
        # No name comes twice in a walk, so it never takes the actors to tell two apart.
        self._deepest = nsmallest(CONSOLE_DEEPEST_SHOWN, [*self._deepest, *busy])

    def totals(self) -> Totals:
        queues = self._engine.queues
        letters = [queues[name] for name in self.sources if name in queues]
        return Totals(
            at_ms=self._now_ms,
            queues=len(queues),
            pushed=self._pushed,
            acked=self._acked,
            depth=self._depth,
            in_flight=self._in_flight,
            dead_letters=sum(traffic(actor).depth for actor in letters),
            oldest_age_ms=self._now_ms - self._oldest_ms,
            oldest_queue=self._oldest_queue,
        )


class Sampler:
    """Takes the samples, and keeps the latest totals."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._ages = Ages()
        self.rates = Rates()
        self.dead_letter_queues = DeadLetterQueues(engine)
        # time, in/s, out/s, depth, oldest age s, in flight, dead letters, stored bytes
        self.points = Points(8)
        self.stored_bytes = 0
        self._usage_due_s = 0.0
        self.deepest: list[QueueActor] = []  # those that hold the most
        self.totals = Totals(engine.now_ms(), len(engine.queues), 0, 0, 0, 0, 0, 0, "")
        self._sampled: Totals | None = None
        if len(engine.queues) <= CONSOLE_STEP_QUEUES:
            self._sampled = self.take()
        self._queues: dict[str, QueueLine] = {}

    def take(self) -> Totals:
        """All queues as they are now, in one step: for few of them."""
        walk = _Walk(self._engine, self._ages, self.rates, self.dead_letter_queues)
        walk.see(self._engine.queues.values())
        return self._learn(walk)

    async def walk(self) -> Totals:
        """The same in several steps, between which others have their turn."""
        if len(self._engine.queues) <= CONSOLE_STEP_QUEUES:
            return self.take()
        walk = _Walk(self._engine, self._ages, self.rates, self.dead_letter_queues)
        async for actors in steps(self._engine.queues):
            walk.see(actors)
        return self._learn(walk)

    async def look(self) -> None:
        """Take a sample, and now and then the size of the journal."""
        loop = asyncio.get_running_loop()
        if loop.time() >= self._usage_due_s and self._engine.refusal is None:
            self._usage_due_s = loop.time() + CONSOLE_USAGE_S
            usage = await usage_if_known(self._engine.backups)
            if usage is not None:
                self.stored_bytes = usage.stored_bytes
        self.sample(await self.walk())

    async def look_idly(self) -> None:
        """The same for ever, while there are no pages that could be looked at."""
        while True:
            await self.look()
            await asyncio.sleep(CONSOLE_IDLE_S)

    def _learn(self, walk: _Walk) -> Totals:
        self._ages.forget_all_but(self._engine.queues)
        self.rates.forget_all_but(self._engine.queues)
        self.dead_letter_queues.learn(walk.sources)
        self.deepest = walk.deepest
        self.totals = walk.totals()
        return self.totals

    def fresh(self) -> Totals:
        """The latest totals, taken anew if nobody has looked for a while and the queues are few."""
        is_few = len(self._engine.queues) <= CONSOLE_STEP_QUEUES
        if is_few and self._engine.now_ms() - self.totals.at_ms > CONSOLE_FRESH_MS:
            self.take()
        return self.totals

    def sample(self, now: Totals | None = None) -> None:
        """One point more on each line, of these totals or of those of this moment."""
        now = now or self.take()
        before = self._sampled
        passed_s = (now.at_ms - before.at_ms) / 1000 if before is not None else 0.0
        if before is None:
            self._sampled = now
        elif passed_s >= CONSOLE_RATE_S_MIN:
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
            if actor is None or now.at_ms - line.looked_at_ms > CONSOLE_LINE_KEPT_MS:
                del self._queues[name]
            else:
                line.sample(actor, now.at_ms)

    def line_of(self, actor: QueueActor) -> QueueLine:
        """The line of one queue, begun now if nobody has looked at it lately."""
        line = self._queues.pop(actor.name, None)
        if line is None or line.incarnation != actor.incarnation:
            line = QueueLine(actor)
            line.sample(actor, self._engine.now_ms())
        self._queues[actor.name] = line  # behind all others
        if len(self._queues) > CONSOLE_LINES_MAX:
            del self._queues[next(iter(self._queues))]
        line.looked_at_ms = self._engine.now_ms()
        return line


class QueueLine:
    def __init__(self, actor: QueueActor) -> None:
        self.incarnation = actor.incarnation
        # time, in/s, out/s, depth, oldest age s, in flight
        self.points = Points(6)
        self.looked_at_ms = 0
        self._at_ms = 0
        self._pushed = self._acked = 0

    def sample(self, actor: QueueActor, now_ms: int) -> None:
        passed_s = (now_ms - self._at_ms) / 1000
        if passed_s < CONSOLE_RATE_S_MIN and self._at_ms:
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
