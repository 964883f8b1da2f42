"""Runs journal calls in virtual time: at once, or as slow as the disk says.

A slow call is what a thread would make of it: it starts, the loop goes on, and the outcome is told
later. When in that span the work is done is drawn, because a crash in between finds it done or
not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nexo.simulation.disk import Crashed
from nexo.vocabulary.errors import NexoError

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from nexo.engine.desk import Done, Job
    from nexo.simulation.loop import VirtualLoop
    from nexo.simulation.watched import WatchedJournal


class SimulatedRunner:
    """`lag_s` draws how long the next call takes; 0 is in the loop, as a quick disk is."""

    def __init__(
        self,
        loop: VirtualLoop,
        journal: WatchedJournal,
        random: Random,
        lag_s: Callable[[], float],
        late_share: float = 0.5,
    ) -> None:
        """`late_share` of the slow calls are done at the end of their time, the others at once."""
        self._loop = loop
        self._journal = journal
        self._random = random
        self._lag_s = lag_s
        self._late_share = late_share
        self._under_way: Callable[[], None] | None = None

    def run(self, job: Job, done: Done, is_long: bool) -> None:
        lag_s = self._lag_s()
        if lag_s <= 0:
            outcome = self._perform(job)
            if outcome is not None:
                self._journal.told()
                done(*outcome)
            return
        self._journal.reserved = True
        outcomes: list[tuple[Any, NexoError | None]] = []

        def work() -> None:
            self._under_way = None
            outcome = self._perform(job)
            if outcome is not None:
                outcomes.append(outcome)

        def tell() -> None:
            if self._under_way is not None:
                self._under_way()
            self._journal.reserved = False
            if outcomes:
                self._journal.told()
                done(*outcomes[0])

        self._under_way = work
        if self._random.random() >= self._late_share:
            work()
        self._loop.call_later(lag_s, tell)

    def close(self) -> None:
        """As a thread pool does: the call under way is waited for."""
        if self._under_way is not None:
            self._under_way()
        self._journal.reserved = False

    def _perform(self, job: Job) -> tuple[Any, NexoError | None] | None:
        """The outcome; None if the power went."""
        self._journal.inside = True
        try:
            return job(), None
        except NexoError as error:
            return None, error
        except Crashed:
            self._loop.halt()
            return None
        finally:
            self._journal.inside = False
