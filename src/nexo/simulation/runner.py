"""Runs journal calls in virtual time: at once, or as slow as the disk says.

A slow call is what a thread would make of it: it starts, the loop goes on, and the outcome is told
later. When in that span the work is done is drawn, because a crash in between finds it done or
not. And commits keep coming: whoever waits for the disk is answered soon, while the disk is well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nexo.simulation.disk import Crashed
from nexo.simulation.history import Violation
from nexo.vocabulary.errors import NexoError

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from nexo.engine.desk import Done, Job
    from nexo.engine.engine import Engine
    from nexo.simulation.loop import VirtualLoop
    from nexo.simulation.store import WatchedJournal

COMMIT_OVERDUE_S = 5.0  # of virtual time; the slowest disk of a plan takes a fraction of it
COMMIT_OVERDUE_STEPS = 5_000  # of the loop, for what spins while hardly any time passes


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


class CommitWatch:
    """Looks after each step; what waits is known by the committer not being idle."""

    def __init__(self, engine: Engine, loop: VirtualLoop) -> None:
        self._engine = engine
        self._loop = loop
        self._commits = -1
        self._since_s = 0.0
        self._steps = 0

    def look(self) -> None:
        committer = self._engine.committer
        is_due = not committer.idle and self._engine.refusal is None
        if not is_due or committer.commits != self._commits:
            self._commits, self._since_s, self._steps = committer.commits, self._loop.time(), 0
            return
        self._steps += 1
        waited_s = self._loop.time() - self._since_s
        if waited_s > COMMIT_OVERDUE_S or self._steps > COMMIT_OVERDUE_STEPS:
            raise Violation(
                "commits keep coming",
                f"something waits for the disk since {waited_s:.1f} s and {self._steps} steps, "
                f"after {self._commits} commits",
            )

    def check_ended(self) -> None:
        """The engine is closed: nothing is left that waits for it."""
        if self._engine.refusal is None and not self._engine.committer.idle:
            raise Violation("a closed broker leaves nobody waiting", "something was not committed")
