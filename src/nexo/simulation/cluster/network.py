"""Processes and what lies between them: each runs only while it is awake, and a message may be cut
off, late, or arrive with its answer lost.

All of them share one virtual loop. What belongs to a process runs in its context: a task that it
starts, a timer that it sets. The loop asks before it runs anything, so that a process that sleeps
(SIGSTOP, a machine that hangs) goes on later exactly where it was, and one that was killed never.
"""

from __future__ import annotations

import asyncio
import contextvars
import enum
from typing import TYPE_CHECKING, Any, TypeVar

from nexo.vocabulary.errors import NexoError, NotReady, Unreachable

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from random import Random

    from nexo.simulation.loop import VirtualLoop

Result = TypeVar("Result")

_PLACE: contextvars.ContextVar[Place | None] = contextvars.ContextVar("place", default=None)
_STORE_SILENT_S = 10.0  # after which a node gives up a database that says nothing
_LAG_S = (0.0005, 0.001, 0.004, 0.03)


class Way(enum.Enum):
    OPEN = "open"
    BROKEN = "broken"  # connections break, and new ones are refused
    SILENT = "silent"  # nothing arrives, and nobody is told


class Place:
    """One process."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_dead = False
        self.is_awake = True
        self.naps = 0
        self.context = contextvars.copy_context()
        self.context.run(_PLACE.set, self)
        self.frozen: list[asyncio.Handle] = []
        self.asked: dict[object, Callable[[], None]] = {}  # who waits for its answers


class Network:
    def __init__(self, loop: VirtualLoop, random: Random) -> None:
        self.loop, self._random = loop, random
        self._cuts: dict[frozenset[str], Way] = {}
        self._held_back: dict[frozenset[str], list[Callable[[], None]]] = {}
        self.mishap_share = 0.0  # of calls to the database that end in doubt
        self.outside = Place("outside")
        self.store = Place("store")
        loop.run_handle = self._run
        loop.steps_without_time_max = 50_000

    # -- Processes ----------------------------------------------------------------------------

    def _run(self, handle: asyncio.Handle) -> None:
        place: Place | None = handle._context.get(_PLACE)  # type: ignore[attr-defined]
        if place is None or (place.is_awake and not place.is_dead):
            handle._run()
        elif not place.is_dead:
            place.frozen.append(handle)

    def spawn(self, place: Place, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        return self.loop.create_task(work, context=place.context.copy())

    def put_to_sleep(self, place: Place) -> None:
        place.is_awake = False
        place.naps += 1

    def wake(self, place: Place) -> None:
        place.is_awake = True
        frozen, place.frozen = place.frozen, []
        self.loop._soon.extend(frozen)

    def kill(self, place: Place) -> None:
        """Connections to it break."""
        place.is_dead = True
        place.frozen.clear()
        asked, place.asked = place.asked, {}
        for fail in asked.values():
            fail()

    # -- Cuts ---------------------------------------------------------------------------------

    def cut(self, one: str, other: str, way: Way) -> None:
        self._cuts[frozenset((one, other))] = way

    def mend(self, one: str, other: str) -> None:
        """What a silent cut has held back may arrive now, though nobody waits for it any more."""
        between = frozenset((one, other))
        self._cuts.pop(between, None)
        for arrive in self._held_back.pop(between, ()):
            if self._random.random() < 0.5:
                self.loop.call_soon(arrive, context=self.store.context)

    def mend_all(self) -> None:
        for one, other in [sorted(between) for between in self._cuts]:
            self.mend(one, other)

    def way(self, one: Place, other: Place) -> Way:
        return self._cuts.get(frozenset((one.name, other.name)), Way.OPEN)

    def lag_s(self) -> float:
        return self._random.choice(_LAG_S)

    # -- Calls --------------------------------------------------------------------------------

    async def ask(
        self, to: Place, work: Callable[[], Coroutine[Any, Any, Result]], patience_s: float
    ) -> Result:
        """Let another process do something. It may be done though this raises `Unreachable`."""
        loop, me = self.loop, _here()
        future: asyncio.Future[Result] = loop.create_future()

        def tell(result: Any, error: BaseException | None) -> None:
            if not future.done():
                if error is None:
                    future.set_result(result)
                else:
                    future.set_exception(error)

        def break_off() -> None:
            error = Unreachable(f"the connection to {to.name} broke")
            loop.call_later(self.lag_s(), tell, None, error, context=me.context)

        def arrive() -> None:
            task = loop.create_task(work())
            task.add_done_callback(answer)

        def answer(task: asyncio.Task[Result]) -> None:
            to.asked.pop(future, None)
            way = self.way(me, to)
            if way is Way.BROKEN:
                break_off()
            elif way is Way.OPEN and not task.cancelled():
                error = task.exception()
                result = None if error is not None else task.result()
                loop.call_later(self.lag_s(), tell, result, error, context=me.context)

        way = self.way(me, to)
        if to.is_dead or way is Way.BROKEN:
            break_off()
        elif way is Way.OPEN:
            to.asked[future] = break_off
            loop.call_later(self.lag_s(), arrive, context=to.context)
        try:
            async with asyncio.timeout(patience_s):
                return await future
        except TimeoutError:
            raise Unreachable(f"{to.name} does not answer") from None
        finally:
            to.asked.pop(future, None)

    async def transact(
        self,
        job: Callable[[], Result],
        lost: Callable[[], None] | None = None,
        *,
        may_be_late: bool = True,
    ) -> Result:
        """One transaction of the database. `NotReady`: its outcome is unknown, or even still to
        come; then `lost` is called first, as who holds a connection finds out first."""
        loop, me = self.loop, _here()
        future: asyncio.Future[Result] = loop.create_future()
        chance, way = self._random.random(), self.way(me, self.store)
        loses_answer = chance < self.mishap_share

        def tell(outcome: tuple[Any, Exception | None]) -> None:
            if not future.done():
                if outcome[1] is None:
                    future.set_result(outcome[0])
                else:
                    future.set_exception(outcome[1])

        def arrive(is_told: bool = True) -> None:
            outcome = _outcome_of(job)
            if is_told and self.way(me, self.store) is Way.OPEN:
                loop.call_later(self.lag_s(), tell, outcome, context=me.context)

        if way is Way.OPEN and not (loses_answer and chance < self.mishap_share / 3):
            lag_s = self.lag_s()
            if loses_answer and may_be_late and chance > self.mishap_share * 2 / 3:
                lag_s += self._random.uniform(0, 3)  # it is done when nobody expects it any more
            loop.call_later(lag_s, arrive, not loses_answer, context=self.store.context)
        elif way is Way.SILENT and may_be_late:
            between = frozenset((me.name, self.store.name))
            self._held_back.setdefault(between, []).append(lambda: arrive(False))
        patience_s = self.lag_s() if way is Way.BROKEN else _STORE_SILENT_S
        if way is Way.OPEN and loses_answer:
            patience_s = self.lag_s() * 4
        try:
            async with asyncio.timeout(patience_s):
                return await future
        except TimeoutError:
            if lost is not None:
                lost()
            raise NotReady("the connection to the database is lost") from None


def _outcome_of(job: Callable[[], Any]) -> tuple[Any, Exception | None]:
    try:
        return job(), None
    except NexoError as error:
        return None, error


def _here() -> Place:
    place = _PLACE.get()
    assert place is not None, "only a process asks"
    return place
