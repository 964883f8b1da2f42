"""A world of size: one shape, its lives one after the other, and the account at the end.

Each life is a start of the broker. A start is held to a bound too: it costs what is held, not what
has happened before it.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, Any

from nexo.engine.clock import SystemClock
from nexo.engine.engine import Engine
from nexo.simulation.disk import Crashed
from nexo.simulation.history import History, Violation
from nexo.simulation.large.chunks import CHUNKS
from nexo.simulation.large.leases import LEASES
from nexo.simulation.large.lines import LINES
from nexo.simulation.large.quotas import QUOTAS
from nexo.simulation.large.shape import Account, Site
from nexo.simulation.large.upsets import UPSETS
from nexo.simulation.ledger import Ledger
from nexo.simulation.loop import Halted, VirtualLoop
from nexo.simulation.meter import Meter
from nexo.simulation.plan import Boot, End
from nexo.simulation.runner import CommitWatch, SimulatedRunner
from nexo.simulation.squeeze import squeezed
from nexo.simulation.store import DiskStore, MemoryStore

if TYPE_CHECKING:
    from nexo.simulation.large.shape import Life, Shape
    from nexo.simulation.store import Store

_WALL_START_S = 1_700_000_000.0
_ON_DISK_SHARE = 0.2  # of the worlds; a simulated disk is slow, and its faults are not the point
_SLOW_SHARE = 0.3
_STARTED_S = 0.001
_LIFE_S_MAX = 20_000.0  # of virtual time

_STEPS_WITHOUT_TIME_MAX = 50_000  # a quick disk takes none, and there is much to do

SHAPES = [*CHUNKS, *LEASES, *LINES, *QUOTAS, *UPSETS]  # a seed has that of its turn

# What these bound is bounded; they are made small, so that a small world shows that it is.
LIMITS = {
    "UNFOLDED_BYTES_MAX": 8 * 1024,
    "SNAPSHOT_STEP_ENTRIES": 10,
    "CHUNK_ROWS_MAX": 64,
    "PIECE_BITS": 4,
    # At most so many are looked at in one step, whether something is done with them or not.
    "DUE_STEP_SPANS": 40,
    "READ_AHEAD_CHUNKS": 20,
}

START_LINES_MAX = 30_000  # of a start that finds nothing but records since the snapshots
START_OWNER_LINES_MAX = 1_500  # more for each queue and topic …
START_LANE_LINES_MAX = 200  # … for each priority of a queue …
START_HELD_LINES_MAX = 170  # … and for each message that is in a queue …
START_KEPT_LINES_MAX = 40  # … or kept by a topic, for all of which a start may have to read a line
BYTES_READ_TIMES_MAX = 4  # in one life, of everything that was ever pushed


class LargeWorld:
    """`seed` chooses the shape, unless it is given; `scale` multiplies its sizes."""

    def __init__(self, seed: int, scale: float = 1.0, kind: type[Shape] | None = None) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.shape = (kind or SHAPES[seed % len(SHAPES)])(self.random, scale)
        self.history = History()
        self.meter = Meter()
        self.start_lines: list[tuple[int, int]] = []  # of each start, and what it was allowed
        self._ledger = Ledger(self.history)
        self._account = Account()
        self.on_disk = self.random.random() < _ON_DISK_SHARE or self.shape.needs_disk
        self._is_slow = self.random.random() < _SLOW_SHARE and not self.on_disk
        self._store: Store = DiskStore(self.random, 0) if self.on_disk else MemoryStore(self.random)
        self._now_s = 0.0
        self._loop = VirtualLoop(0.0)

    def run(self) -> None:
        """Raises a `Violation` if a promise was broken, and whatever else went wrong."""
        lives = self.shape.lives()
        try:
            with squeezed({**LIMITS, **self.shape.limits}):
                for number, life in enumerate(lives):
                    is_last = number == len(lives) - 1
                    end = self.shape.end or self.random.choice([End.KILL, End.CLOSE])
                    self._live(life, End.CLOSE if is_last else end)
                self._store.verify()
                self.meter.check()
        finally:
            self._loop.bury()
            self._store.close()

    def _live(self, life: Life, end: End) -> None:
        self._loop.bury()
        self._loop = loop = VirtualLoop(self._now_s + 1.0)
        self.history.time = loop.time
        self.history.add("-- start", type(self.shape).__name__, life.__name__, end.value)
        try:
            loop.run(self._run(loop, life, end))
        except (Halted, Crashed):
            self.history.add("-- ended", end.value)
        self._now_s = loop.time()
        loop.bury()
        self._store.end(power_lost=False)

    async def _run(self, loop: VirtualLoop, life: Life, end: End) -> None:
        journal = self._store.journal(self._ledger)
        if self._is_slow:
            self._store.arm(_slow_boot(end), journal)
        clock = SystemClock(lambda: _WALL_START_S + loop.time(), loop.time)
        engine = Engine(
            journal,
            clock=clock,
            runner=SimulatedRunner(loop, journal, self.random, self._lag_s, late_share=0.0),
            memory_limit_bytes=self.shape.memory_limit_bytes,
            new_incarnation=lambda: self.random.getrandbits(64),
            **self.shape.options,
        )
        loop.run_handle = self.meter.count
        await asyncio.sleep(0)  # what follows is counted
        await engine.open()
        await asyncio.sleep(_STARTED_S)  # what a start leaves to the first turns of the loop
        self._check_start(engine)
        site = Site(engine, journal, self.random, self._account)
        watch = CommitWatch(engine, loop)
        self.meter.handled = site.handled
        loop.after_step = watch.look
        loop.steps_without_time_max = _STEPS_WITHOUT_TIME_MAX
        loop.run_handle = self.meter.run
        loop.call_later(_LIFE_S_MAX, _too_long)
        await asyncio.sleep(0)  # each step is held to its bound from the next one on
        await life(site)
        self._check_read(site)
        if end is End.KILL:
            loop.halt()
            return
        loop.run_handle = _unmetered  # closing may take its time: nobody waits for the loop then
        await asyncio.sleep(0)
        await engine.close()
        watch.check_ended()

    def _lag_s(self) -> float:
        return self._store.lag_ms() / 1000

    def _check_start(self, engine: Engine) -> None:
        lines = self.meter.taken()
        topics = [actor.topic for actor in engine.topics.values()]
        allowed = START_LINES_MAX
        allowed += START_OWNER_LINES_MAX * (len(engine.queues) + len(topics))
        queues = [actor.queue for actor in engine.queues.values()]
        allowed += START_LANE_LINES_MAX * sum(len(queue.lanes) for queue in queues)
        allowed += START_HELD_LINES_MAX * sum(queue.depth for queue in queues)
        allowed += START_KEPT_LINES_MAX * sum(t.log.end - t.start for t in topics)
        self.start_lines.append((lines, allowed))
        if lines > allowed:
            raise Violation(
                "a start costs what is held, not what has happened",
                f"it took {lines} lines, and {allowed} are allowed",
            )

    def _check_read(self, site: Site) -> None:
        """What is read back is read a few times at most."""
        allowed = BYTES_READ_TIMES_MAX * self._account.total_bytes
        if site.journal.bytes_read > allowed:
            raise Violation(
                "contents are read back a few times at most",
                f"{site.journal.bytes_read} bytes were read of {self._account.total_bytes}",
            )


def _slow_boot(end: End) -> Boot:
    return Boot(
        end=end,
        work_ms=0,
        operation=0,
        failures=[],
        full_at=None,
        full_ms=0,
        is_slow=True,
        down_ms=0,
        wall_jump_s=0,
    )


def _unmetered(handle: Any) -> None:
    handle._run()


def _too_long() -> None:
    raise Violation("a world comes to its end", f"it took more than {_LIFE_S_MAX:.0f} s")
