"""What a worker is doing: a live line where a person looks on, log lines everywhere else."""

import contextlib
import logging
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.text import Text

    from nexo.cli.talk import Talk
    from nexo.client.worker.worker import Worker

REPORT_S = 10.0  # between two log lines with figures
RATE_S = 5.0  # the rate is that of the last seconds

_log = logging.getLogger("nexo.worker")


@contextlib.contextmanager
def watching(
    talk: "Talk", worker: "Worker", queue: str, set_up_logs: Callable[[], None]
) -> Iterator[None]:
    """Show it for the length of a `with` block."""
    told = {"queue": queue, "function": worker.function_name}
    if not talk.is_watched:
        set_up_logs()
        _log.info("working", extra=told)
        with _reporting(worker, queue):
            yield
        return
    from rich.console import Console
    from rich.live import Live

    line = _Line(worker, queue)
    live = Live(
        get_renderable=line.render,
        console=Console(stderr=True),
        refresh_per_second=8,
        transient=True,
        redirect_stdout=sys.stdout.isatty(),  # what a handler prints to a file stays there
    )
    with live:
        set_up_logs()  # now, so that log lines go above the live one
        yield


class _Line:
    def __init__(self, worker: "Worker", queue: str) -> None:
        self._worker = worker
        self._queue = queue
        self._seen: deque[tuple[float, int]] = deque()

    def render(self) -> "Text":
        from rich.text import Text

        figures = self._worker.figures
        line = Text.assemble(
            ("⚙ ", "cyan"),
            f"{self._queue} → {self._worker.function_name}  ",
            (f"{figures.handled:,} handled", "bold green"),
            f"  {self._rate(figures.handled):,.0f}/s  {figures.in_flight:,} in flight",
        )
        if figures.failed:
            line.append(f"  {figures.failed:,} failed", "bold red")
        if figures.lost:
            line.append(f"  {figures.lost:,} too late", "yellow")
        return line

    def _rate(self, handled: int) -> float:
        now = time.monotonic()
        self._seen.append((now, handled))
        while now - self._seen[0][0] > RATE_S:
            self._seen.popleft()
        since, before = self._seen[0]
        return (handled - before) / (now - since) if now > since else 0.0


@contextlib.contextmanager
def _reporting(worker: "Worker", queue: str) -> Iterator[None]:
    """A log line with figures every so often, while there is something new in them."""
    import msgspec

    over = threading.Event()

    def report() -> None:
        before = worker.figures
        while not over.wait(REPORT_S):
            if worker.figures != before:
                before = worker.figures
                told = msgspec.structs.asdict(before)
                _log.info("figures", extra={"queue": queue, **told})

    thread = threading.Thread(target=report, name="nexo-figures", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        _log.info("stopped", extra={"queue": queue, **msgspec.structs.asdict(worker.figures)})
