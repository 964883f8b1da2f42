"""A world: one seed, from its first boot to the last accounting.

The broker starts, its actors work, something ends it; that a few times over. Then everything is
healed and drained, and every message accounted for.
"""

from __future__ import annotations

import asyncio
import contextlib
from random import Random
from typing import TYPE_CHECKING, Any

from nexo.engine.clock import SystemClock
from nexo.engine.engine import Engine
from nexo.machine import invariants
from nexo.simulation import plan as plans
from nexo.simulation.account import Accounting
from nexo.simulation.disk import Crashed
from nexo.simulation.history import History, Violation
from nexo.simulation.ledger import Ledger
from nexo.simulation.loop import Halted, VirtualLoop
from nexo.simulation.plan import Boot, End
from nexo.simulation.runner import CommitWatch, SimulatedRunner
from nexo.simulation.squeeze import squeezed
from nexo.simulation.store import DiskStore, MemoryStore
from nexo.simulation.topics import TopicWitness
from nexo.simulation.witness import Witness
from nexo.simulation.workload.consumers import Consumer
from nexo.simulation.workload.drivers import Driver
from nexo.simulation.workload.operators import Operator
from nexo.simulation.workload.producers import Producer, Publisher, Reader
from nexo.simulation.workload.stage import Stage, live
from nexo.vocabulary.errors import DataCorrupt, NexoError
from nexo.vocabulary.names import archive_name

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from nexo.simulation.plan import Plan
    from nexo.simulation.store import Store, WatchedJournal
    from nexo.simulation.workload.stage import Actor

_WALL_START_S = 1_700_000_000.0
_STEPS_PER_CHECK = 8
_START_AGAIN_S = 1.0  # whatever supervises the broker starts it again after this


class Cast:
    """All actors of a world. They outlive the broker, as clients do."""

    def __init__(self, stage: Stage, plan: Plan) -> None:
        names = list(plan.queues)
        self._stage = stage
        producers = [
            Producer(stage, stage.random.choice(names), number) for number in range(plan.producers)
        ]
        self.consumers = [
            Consumer(stage, stage.random.choice(names), number) for number in range(plan.consumers)
        ]
        self.drivers = [Driver(stage, name, number) for number, name in enumerate(plan.drivers)]
        self._operator = Operator(stage)
        topics = list(plan.topics)
        publishers = [Publisher(stage, name, number) for number, name in enumerate(topics)]
        archives = [archive_name(name) for name in names if plan.queues[name].archive]
        readers = [Reader(stage, name) for name in topics + archives if stage.chance(0.7)]
        self.actors: list[Actor] = [
            *producers,
            *self.consumers,
            *self.drivers,
            self._operator,
            *publishers,
            *readers,
        ]

    def end_moves(self) -> None:
        """Stop the redrives that are still under way."""
        for move in self._operator.moves:
            move.cancel()
        self._operator.moves.clear()


class World:
    def __init__(self, seed: int, steps: float = 1.0) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.plan = plans.draw(self.random, steps)
        self.history = History()
        self.ledger = Ledger(self.history)
        witness = Witness(self.ledger, self.history)
        self.stage = Stage(self.random, witness, TopicWitness(witness))
        self.stage.queues = dict(self.plan.queues)
        self.stage.topic_settings = dict(self.plan.topics)
        self.stage.late_bindings = list(self.plan.late_bindings)
        self.cast = Cast(self.stage, self.plan)
        self._store: Store = (
            DiskStore(self.random, self.plan.reserve_bytes)
            if self.plan.on_disk
            else MemoryStore(self.random)
        )
        self._now_s = 0.0
        self._wall_ahead_s = _WALL_START_S
        self._was_open = False
        self._loop = VirtualLoop(0.0)
        self._steps = 0
        self._watch: CommitWatch | None = None

    def run(self) -> None:
        """Raises a `Violation` if a promise was broken, and whatever else went wrong."""
        try:
            with squeezed(self.plan.limits):
                last = self.plan.boots[-1]
                for boot in self.plan.boots[: None if self.plan.ends_restarted else -1]:
                    self._live(boot, self._work)
                self._live(last, self._close)
                for book in self.ledger.books.values():
                    book.check_order()
        finally:
            self._loop.bury()
            self._store.close()

    # -- One life of the broker ---------------------------------------------------------------

    def _live(self, boot: Boot, life: Callable[[Boot], Coroutine[Any, Any, None]]) -> None:
        self._wall_ahead_s += boot.wall_jump_s
        self._loop.bury()
        self._loop = loop = VirtualLoop(self._now_s + boot.down_ms / 1000)
        self.history.time = loop.time
        self.history.is_closed = False
        self.history.add("-- boot", boot.end.value, f"wall {boot.wall_jump_s:+d} s")
        loop.after_step = self._after_step
        self._watch = None
        if self._was_open:
            self._store.verify()
        try:
            loop.run(life(boot))
        except (Halted, Crashed):
            self.history.add("-- ended", boot.end.value)
            self.history.is_closed = True
        self._now_s = loop.time()
        loop.bury()
        self._store.end(boot.end is not End.KILL)

    async def _work(self, boot: Boot) -> None:
        await self._start(boot)
        await self._define()
        work = [asyncio.ensure_future(live(actor)) for actor in self.cast.actors]
        await asyncio.sleep(boot.work_ms / 1000)
        if boot.end is not End.CLOSE:
            self._loop.halt()
            await asyncio.sleep(0)
        await self._rest(work)
        with contextlib.suppress(NexoError):  # a fault may strike at the very last commit
            await self.stage.witness.engine.close()
        self.history.add("-- closed")

    async def _close(self, boot: Boot) -> None:
        """The last life: some more work unless it begins with a restart, then the accounting."""
        journal = await self._start(None if self.plan.ends_restarted else boot)
        if self.plan.ends_restarted:
            self._store.heal(journal)
        await self._define()
        if not self.plan.ends_restarted:
            work = [asyncio.ensure_future(live(actor)) for actor in self.cast.actors]
            await asyncio.sleep(boot.work_ms / 1000)
            await self._rest(work)
        self._store.heal(journal)
        self.history.add("-- healed")
        await Accounting(self.stage, self.cast, self.plan).run()
        await self.stage.witness.engine.close()
        if self._watch is not None:
            self._watch.check_ended()
        self._store.verify()

    async def _rest(self, work: list[asyncio.Task[None]]) -> None:
        """Let the actors end what they are doing, or leave it undone."""
        self.stage.is_open = False
        await asyncio.wait(work, timeout=2.0)
        for each in work:
            each.cancel()
        await asyncio.wait(work)
        self.cast.end_moves()
        self.stage.is_open = True

    # -- Starting -----------------------------------------------------------------------------

    async def _start(self, boot: Boot | None) -> WatchedJournal:
        """Start until it works: a fault may strike at any operation of the start too."""
        while True:
            journal = self._store.journal(self.ledger)
            if boot is not None:
                self._store.arm(boot, journal)
                if boot.full_at is not None:
                    self._loop.call_later(boot.full_ms / 1000, self._store.make_room)
                boot = None  # what is armed stays so
            clock = SystemClock(lambda: self._wall_ahead_s + self._loop.time(), self._loop.time)
            runner = SimulatedRunner(self._loop, journal, self.random, self._lag_s)
            engine = Engine(
                journal,
                clock=clock,
                runner=runner,
                memory_limit_bytes=self.plan.memory_limit_bytes,
                new_incarnation=lambda: self.random.getrandbits(64),
            )
            try:
                await engine.open()
            except DataCorrupt as error:
                raise Violation("a start finds all data sound", error.message) from error
            except NexoError as error:
                self.history.add("-- no start", error.code, error.message[:80])
                await asyncio.sleep(_START_AGAIN_S)
                self._store.make_room()
                continue
            self._was_open = True
            self._watch = CommitWatch(engine, self._loop)
            self.stage.witness.engine, self.stage.witness.now_ms = engine, clock.now_ms
            self.history.add("-- started", clock.now_ms())
            return journal

    def _lag_s(self) -> float:
        return self._store.lag_ms() / 1000

    async def _define(self) -> None:
        """Create what is not there yet; a crash may have come before it was on disk."""
        stage, plan = self.stage, self.plan
        while True:
            engine = stage.witness.engine
            try:
                if engine.refusal is not None:  # it may show what was never stored
                    raise engine.refusal
                for name, settings in plan.queues.items():
                    if name not in engine.queues:
                        await engine.create_queue(name, settings)
                for name, topic_settings in plan.topics.items():
                    if name not in engine.topics:
                        await engine.create_topic(name, topic_settings)
                for topic, queue, where in plan.bindings:
                    if stage.topics.is_unknown(topic, queue):
                        await stage.topics.bind(topic, queue, where)
            except NexoError as error:
                self.history.add("failed", "define", error.code)
                await asyncio.sleep(_START_AGAIN_S)
                continue
            return

    def _after_step(self) -> None:
        """Check every queue after each step in some worlds, now and then one in the others."""
        if self._watch is None:
            return
        self._watch.look()
        witness = self.stage.witness
        self.ledger.latest_ms = max(self.ledger.latest_ms, witness.now_ms())
        queues = list(witness.engine.queues.values())
        if not self.plan.checks_each_step and queues:
            self._steps += 1
            turn, rest = divmod(self._steps, _STEPS_PER_CHECK)
            if rest:
                return
            queues = [queues[turn % len(queues)]]
        for actor in queues:
            try:
                invariants.check(actor.queue)
            except AssertionError as broken:
                raise Violation(
                    "every message is in one place", f"{actor.name}: {broken}"
                ) from None
