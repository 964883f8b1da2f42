"""`nexo worker`: run a function in the form of AWS Lambda on the messages of queues.

What it is doing is a live line where a person looks on, and log lines everywhere else.
"""

import contextlib
import functools
import logging
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nexo.cli.parameters import parse_duration, queue_names
from nexo.cli.progress import show_rate
from nexo.cli.session import Session, takes_session

if TYPE_CHECKING:
    from rich.text import Text

    from nexo import Client
    from nexo.client.worker.worker import Worker

_LAMBDA = "Lambda event and context"


Handler = Annotated[
    str,
    typer.Argument(
        metavar="MODULE:HANDLER", help="Function to call, such as app:handler.", show_default=False
    ),
]
Queues = Annotated[
    list[str],
    typer.Option(
        "--queue",
        metavar="QUEUE",
        help="Name of a queue; repeatable.",
        autocompletion=queue_names,
    ),
]
BatchSize = Annotated[
    int, typer.Option(metavar="N", min=1, max=10_000, help="Maximum messages per call.")
]
BatchWindow = Annotated[
    float,
    typer.Option(
        metavar="DURATION", parser=parse_duration, help="Maximum time to wait for a full batch."
    ),
]
Concurrency = Annotated[
    int, typer.Option(metavar="N", min=1, max=1_000, help="Concurrent calls per queue.")
]
Processes = Annotated[
    bool, typer.Option("--processes", help="Run the concurrent calls in separate processes.")
]
Timeout = Annotated[
    float,
    typer.Option(
        metavar="DURATION",
        parser=parse_duration,
        help="Maximum time per call; longer is a failure.",
    ),
]
Prefetch = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=1,
        max=100_000,
        help="Messages to hold in the worker. Default: two batches per concurrent call.",
    ),
]
Idle = Annotated[
    float | None,
    typer.Option(
        metavar="DURATION", parser=parse_duration, help="Stop after this long without messages."
    ),
]
Create = Annotated[bool, typer.Option("--create", help="Create the queues if they do not exist.")]
Reload = Annotated[
    bool,
    typer.Option("--reload", help="Restart when a Python file in the current folder changes."),
]
FunctionName = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Value of context.function_name.", rich_help_panel=_LAMBDA),
]
Region = Annotated[
    str,
    typer.Option(
        metavar="REGION", envvar="AWS_REGION", help="AWS region in events.", rich_help_panel=_LAMBDA
    ),
]
Account = Annotated[
    str, typer.Option(metavar="ID", help="AWS account ID in ARNs.", rich_help_panel=_LAMBDA)
]

REPORT_S = 10.0  # between two log lines with figures
RATE_S = 5.0  # the rate is that of the last seconds

_log = logging.getLogger("nexo.worker")


@takes_session
def worker(
    session: Session,
    handler: Handler,
    queue: Queues,
    batch_size: BatchSize = 10,
    batch_window: BatchWindow = 0.0,
    concurrency: Concurrency = 1,
    processes: Processes = False,
    timeout: Timeout = "15m",  # type: ignore[assignment]  # the parser reads it
    prefetch: Prefetch = None,
    idle: Idle = None,
    create: Create = False,
    reload: Reload = False,
    function_name: FunctionName = None,
    region: Region = "us-east-1",
    account: Account = "000000000000",
) -> None:
    """Run a function on the messages of queues, as AWS Lambda does for SQS.

    \b
    Examples
      nexo worker app:handler --queue orders            def handler(event, context)
      nexo worker app:handler --queue orders --concurrency 8 --timeout 30s
      nexo worker app:handler --queue orders --batch-size 100 --batch-window 2s
      nexo worker app:resize --queue images --processes --concurrency 4
      nexo worker app:handler --queue orders --idle 5s  stop when the queue is empty
      nexo worker app:handler --queue orders --queue returns
      nexo worker app:handler --queue orders --reload   during development

    If the function returns, the batch is acked. If it raises, all its messages
    are retried. To retry only some of them, return
    {"batchItemFailures": [{"itemIdentifier": "<messageId>"}]}. The function
    may be async. On SIGTERM and Ctrl-C, running calls finish before it exits.
    """
    if reload:
        from nexo.cli.reload import run_reloading

        raise typer.Exit(run_reloading())
    from nexo.client.worker.function import find_handler

    if "" not in sys.path:
        sys.path.insert(0, "")  # the module is usually here, and the command lives elsewhere
    find_handler(handler)  # what is wrong in the command line is said before a broker is looked for
    options = {
        "batch_size": batch_size,
        "batch_window": batch_window,
        "concurrency": concurrency,
        "processes": processes,
        "timeout": timeout,
        "prefetch": prefetch,
        "function_name": function_name,
        "account": account,
        "region": region,
    }
    with session.client() as client:
        for name in queue:
            client.queue(name, create=create).info()
        _run(session, client, queue, handler, options, idle)


def _run(
    session: Session,
    client: "Client",
    queues: list[str],
    handler: str,
    options: dict[str, Any],
    idle: float | None,
) -> None:
    from nexo.client.worker.worker import Worker
    from nexo.server.logs import set_up_logs

    set_up = functools.partial(set_up_logs, "json" if session.as_json else "auto", "info")
    running = Worker(client, queues, handler, initializer=set_up, **options)
    queue = ", ".join(dict.fromkeys(queues))
    began = time.perf_counter()
    with watching(session, running, queue, set_up):
        figures = running.run(idle=idle)
    seconds = time.perf_counter() - began
    notes = [f"{figures.failed:,} failed"] * bool(figures.failed)
    notes += [f"{figures.returned:,} returned unprocessed"] * bool(figures.returned)
    notes += [f"{figures.lost:,} acked too late"] * bool(figures.lost)
    session.answer(
        {
            "queue": queue,
            "function": running.function_name,
            "handled": figures.handled,
            "failed": figures.failed,
            "returned": figures.returned,
            "lost": figures.lost,
            "batches": figures.batches,
            "seconds": seconds,
            "rate": figures.handled / seconds,
        },
        "; ".join([f"Handled {show_rate(figures.handled, seconds)}", *notes]),
    )


@contextlib.contextmanager
def watching(
    session: Session, worker: "Worker", queue: str, set_up_logs: Callable[[], None]
) -> Iterator[None]:
    """Show it for the length of a `with` block."""
    told = {"queue": queue, "function": worker.function_name}
    if not session.is_watched:
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
