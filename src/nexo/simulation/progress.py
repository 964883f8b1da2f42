"""Commits keep coming: whoever waits for the disk is answered soon, while the disk is well."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nexo.simulation.history import Violation

if TYPE_CHECKING:
    from nexo.engine.engine import Engine
    from nexo.simulation.loop import VirtualLoop

COMMIT_OVERDUE_S = 5.0  # of virtual time; the slowest disk of a plan takes a fraction of it
COMMIT_OVERDUE_STEPS = 5_000  # of the loop, for what spins while hardly any time passes


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
