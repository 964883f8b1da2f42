"""`nexo pipeline run` in a process of its own, as a user runs it, so that it can be killed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.spark.fast import FAST

if TYPE_CHECKING:
    from collections.abc import Mapping

NEXO = str(Path(sys.executable).with_name("nexo"))
LIMIT_S = 200.0


class Job:
    """A job under way. It leads a process group, and Java one of its own; both are killed."""

    program: tuple[str, ...] = (NEXO, "pipeline", "run")

    def __init__(self, directory: Path, url: str, *arguments: str, **config: str) -> None:
        self._log = directory / "job.log"
        settings: Mapping[str, str] = {**FAST, **config}
        conf = [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
        name, rest = arguments[0], arguments[1:]
        with self._log.open("w") as log:
            self.process = subprocess.Popen(
                [*self.program, name, *conf, *rest],
                env={**os.environ, "NEXO_URL": url, "SPARK_LOCAL_IP": "127.0.0.1"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def end(self) -> int:
        """Wait for its end; its exit code."""
        try:
            return self.process.wait(LIMIT_S)
        finally:
            self.kill()

    def kill(self) -> None:
        if self.process.poll() is None:
            groups = [self.process.pid, *_children(self.process.pid)]
            for group in groups:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(group, signal.SIGKILL)
            self.process.wait()

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def log(self) -> str:
        return self._log.read_text()


class DeadlyJob(Job):
    """One that is struck at a step of a commit (`tests/pipeline/deadly.py`)."""

    def __init__(self, step: str, directory: Path, url: str, *arguments: str) -> None:
        self.marker = directory / "struck"
        deadly = ("-m", "tests.pipeline.deadly", step, str(self.marker))
        self.program = (sys.executable, *deadly)
        super().__init__(directory, url, *arguments)


def _children(process: int) -> list[int]:
    """The processes that it has started itself."""
    told = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(process)], capture_output=True, text=True, check=False
    )
    return [int(each) for each in told.stdout.split()]
