"""`--reload`: a command in a process of its own, started again when a Python file changes.

The process is asked to end as by Ctrl-C, so that what it is at is finished. When it ends by itself,
as one does that cannot import its module, the next change starts it again.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

LOOK_S = 0.3  # between two looks at the files
END_S = 30.0  # for what the process is at; then it is interrupted
PROGRAM = "import sys; from nexo.cli.main import main; sys.exit(main())"
SKIPPED = frozenset({"__pycache__", "build", "dist", "node_modules", "site-packages", "venv"})


def run_reloading() -> int:
    """The command line of this process without `--reload`, for ever; returns the exit code."""
    return Reloader([each for each in sys.argv[1:] if each != "--reload"], Path.cwd()).run()


class Reloader:
    def __init__(self, arguments: list[str], folder: Path) -> None:
        self._command = [sys.executable, "-c", PROGRAM, *arguments]
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._ending = False

    def run(self) -> int:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._signalled)
        seen = self._state()
        self._start()
        while not self._ending:
            time.sleep(LOOK_S)
            now = self._state()
            if now != seen:
                self._say(f"{_first_change(seen, now)} changed, restarting")
                seen = now
                self._end()
                if not self._ending:
                    self._start()
        return self._end()

    def _start(self) -> None:
        # In a group of its own: Ctrl-C of a terminal reaches this process, which decides.
        self._process = subprocess.Popen(self._command, start_new_session=True)  # noqa: S603

    def _end(self) -> int:
        """Returns the exit code of the process, once it is gone."""
        process = self._process
        if process is None:
            return 0
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(END_S)
            except subprocess.TimeoutExpired:
                process.kill()
        return process.wait()

    def _signalled(self, number: int, frame: FrameType | None) -> None:
        self._ending = True

    def _state(self) -> dict[str, int]:
        return dict(_files(str(self._folder)))

    def _say(self, what: str) -> None:
        print(what, file=sys.stderr, flush=True)


def _files(folder: str) -> Iterator[tuple[str, int]]:
    """Python files below a folder, each with the time of its last change."""
    for path, folders, names in os.walk(folder):
        folders[:] = [each for each in folders if each[0] != "." and each not in SKIPPED]
        for name in names:
            if name.endswith(".py"):
                full = Path(path, name)
                try:
                    yield str(full), full.stat().st_mtime_ns
                except OSError:  # it was there a moment ago
                    continue


def _first_change(before: dict[str, int], now: dict[str, int]) -> str:
    changed = {name for name, _ in before.items() ^ now.items()}
    return Path(min(changed)).name
