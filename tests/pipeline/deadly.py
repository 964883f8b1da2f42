"""`nexo pipeline run` that is killed at a chosen step of a commit: `deadly.py STEP MARKER ARGS…`.

The step is struck once, `kill -9`: by the driver before or after a commit, or by a task in the
middle of its rows. MARKER is a file that says it has been.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from nexo.cli.main import run
from nexo.pipeline import slices
from nexo.pipeline.commits import Commits

Rows = Callable[..., Iterator[Any]]


def strike(marker: str) -> None:
    if not Path(marker).exists():
        Path(marker).touch()
        os.kill(os.getpid(), signal.SIGKILL)


def dying_task(marker: str) -> Rows:
    """Here it is pickled with all it needs: an executor does not know this file."""
    import os
    import signal
    from pathlib import Path

    from nexo.pipeline import slices

    read = slices.rows_of

    def die_in_the_middle(*arguments: Any) -> Iterator[Any]:
        for rows in read(*arguments):
            yield rows
            if not Path(marker).exists():
                Path(marker).touch()
                os.kill(os.getpid(), signal.SIGKILL)

    return die_in_the_middle


def arm(step: str, marker: str) -> None:
    if step == "task":
        armed: Any = slices  # its names are its own, but for this
        armed.rows_of = dying_task(marker)
        return
    moment, _, table = step.partition(" ")
    committing: Any = Commits
    put = committing._put

    def die(self: Commits, *arguments: Any) -> None:
        if self.kind.name == table and moment == "before":
            strike(marker)
        put(self, *arguments)
        if self.kind.name == table and moment == "after":
            strike(marker)

    committing._put = die


if __name__ == "__main__":
    arm(*sys.argv[1:3])
    sys.exit(run(["pipeline", "run", *sys.argv[3:]]))
