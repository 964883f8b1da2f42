"""`nexo pipeline run` that is killed at a chosen step of a commit: `deadly.py STEP MARKER ARGS…`.

The step is struck once, `kill -9`: by the driver before or after a commit, or by a task in the
middle of its rows. MARKER is a file that says it has been.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from nexo.cli.main import run
from nexo.pipeline import archive
from nexo.pipeline.commits import Commits

Rows = Callable[[Iterable[Any]], Iterator[Any]]


def strike(marker: str) -> None:
    if not Path(marker).exists():
        Path(marker).touch()
        os.kill(os.getpid(), signal.SIGKILL)


def dying_task(write: Rows, marker: str) -> Rows:
    """Here it is pickled with all it needs: an executor does not know this file."""
    import os
    import signal
    from pathlib import Path

    def die_in_the_middle(batches: Iterable[Any]) -> Iterator[Any]:
        def some() -> Iterator[Any]:
            for batch in batches:
                yield batch
                if not Path(marker).exists():
                    Path(marker).touch()
                    os.kill(os.getpid(), signal.SIGKILL)

        yield from write(some())

    return die_in_the_middle


def arm(step: str, marker: str) -> None:
    if step == "task":
        armed: Any = archive  # its names are its own, but for this
        real = armed.file_writer
        armed.file_writer = lambda lake, floors: dying_task(real(lake, floors), marker)
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
