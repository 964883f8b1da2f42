"""How a job is doing: a small file in the lake for each, and the same on the screen."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import deque
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from nexo.pipeline.lake import Lake

RATE_OVER_S = 10.0
RATE_OVER_S_MIN = 1.0  # over less it would be anything


class Part(msgspec.Struct):
    """One source of a job. `lag` is how many messages it is behind; None if that has no end."""

    rows: int = 0
    lag: int | None = None


class Status(msgspec.Struct):
    job: str
    state: str = "starting"  # then running, and finished, stopped or failed
    process: int = 0
    host: str = ""
    started_at: datetime | None = None
    updated_at: datetime | None = None
    rows: int = 0
    rows_per_second: float = 0.0
    lag: int | None = None
    batches: int = 0
    late: int = 0  # events that came after the watermark
    sources: dict[str, Part] = {}
    error: str = ""


class Teller:
    """Tells how a job is doing: to a file in its lake if it has one, and to whoever looks on."""

    def __init__(
        self, job: str, lake: Lake | None, show: Callable[[Status], None] = lambda _: None
    ) -> None:
        self.status = Status(job, process=os.getpid(), host=os.uname().nodename)
        self.status.started_at = datetime.now(UTC)
        self._lake = lake
        self._show = show
        self._lock = threading.RLock()  # Spark tells of progress from threads of its own
        self._began = time.monotonic()
        self._seen: deque[tuple[float, int]] = deque([(self._began, 0)])

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def add(self, source: str, rows: int, lag: int | None = None) -> None:
        """So many rows of a source are done."""
        self.add_all({source: (rows, lag)})

    def add_all(self, told: Mapping[str, tuple[int, int | None]]) -> None:
        """Of each source the rows that are done, and how many it is behind."""
        status = self.status
        with self._lock:
            for source, (rows, lag) in told.items():
                part = status.sources.setdefault(source, Part())
                part.rows += rows
                part.lag = lag
                status.rows += rows
            status.batches += 1
            lags = [each.lag for each in status.sources.values() if each.lag is not None]
            status.lag = sum(lags) if lags else None
            self.tell("running")

    def tell(self, state: str | None = None, error: str = "") -> None:
        with self._lock:
            self._tell(state, error)

    def _tell(self, state: str | None, error: str) -> None:
        status, now = self.status, time.monotonic()
        status.state = state or status.state
        status.error = error or status.error
        status.updated_at = datetime.now(UTC)
        self._seen.append((now, status.rows))
        while len(self._seen) > 2 and self._seen[0][0] < now - RATE_OVER_S:
            self._seen.popleft()
        since, before = self._seen[0]
        if now - since >= RATE_OVER_S_MIN:
            status.rows_per_second = round((status.rows - before) / (now - since), 1)
        if self._lake is not None:
            # A disk that is full, or a store that is away, stops the job where it matters.
            with contextlib.suppress(OSError):
                self._lake.write(msgspec.json.encode(status), "status", f"{status.job}.json")
        self._show(status)


def read_statuses(lake: Lake) -> list[Status]:
    """What every job on a lake has told last. One that says it runs, and does not, has died."""
    found = []
    for name in lake.names("status"):
        content = lake.read("status", name)
        if content is None:  # removed meanwhile
            continue
        status = msgspec.json.decode(content, type=Status)
        is_here = status.host == os.uname().nodename
        if status.state in ("starting", "running") and is_here and not is_running(status.process):
            status.state = "died"
        found.append(status)
    return found


def is_running(process: int) -> bool:
    """Whether there is a process of this number, on this machine."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
