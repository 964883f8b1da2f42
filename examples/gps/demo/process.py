"""A process of the demo: it can be started again, killed, and asked to end."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).resolve().parents[3]  # where `examples` is
TAIL_CHARACTERS = 2_000


class Process:
    """It leads a group of its own, so that Ctrl-C in the terminal does not reach it, and so that
    a kill takes its children too: Spark's Java is one of them."""

    def __init__(self, name: str, title: str, arguments: Sequence[str], log: Path) -> None:
        self.name = name
        self.title = title
        self.arguments = list(arguments)
        self.starts = 0
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def number(self) -> int:
        return self._process.pid if self._process is not None else 0

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def code(self) -> int | None:
        """How it ended; None while it runs."""
        return self._process.poll() if self._process is not None else None

    def start(self) -> None:
        self.starts += 1
        path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-P", *self.arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**_environment(), "PYTHONPATH": path},
                cwd=self._log.parent,  # where no nexo.toml is
                start_new_session=True,
            )

    def ask_to_end(self) -> None:
        if self._process is not None and self.is_running:
            self._process.terminate()

    def end(self, patience_s: float) -> int | None:
        """Ask it to end; after a while it is killed. Returns how it ended."""
        if self._process is None:
            return None
        self.ask_to_end()
        try:
            code = self._process.wait(patience_s)
        except subprocess.TimeoutExpired:
            code = None
        self.kill()  # what it may have left behind
        return code

    def kill(self) -> None:
        """With -9, and all that it has started."""
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):  # nobody is left
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def last_words(self) -> str:
        try:
            return self._log.read_text(encoding="utf-8", errors="replace")[-TAIL_CHARACTERS:]
        except FileNotFoundError:
            return ""


def _environment() -> dict[str, str]:
    """Ours, without settings for other brokers: the demo is the same everywhere."""
    return {name: value for name, value in os.environ.items() if not name.startswith("NEXO_")}
