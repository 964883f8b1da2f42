"""`nexo consume`: a consumer for trying things out, which can fail on purpose."""

import asyncio
import random
import signal
import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from nexo.cli.completion import queue_names
from nexo.cli.durations import parse_duration
from nexo.cli.progress import Bar, progress_bar, show_rate
from nexo.cli.talk import TIMEOUT_S, Talk, talks
from nexo.vocabulary.errors import NexoError

if TYPE_CHECKING:
    from nexo.client import AsyncMessage

FAILED_ON_PURPOSE = "failed on purpose (--fail-rate)"
PREFETCH_MAX = 1_000


@talks
def consume(
    talk: Talk,
    queue: Annotated[
        str, typer.Argument(help="The queue; created if needed.", autocompletion=queue_names)
    ],
    concurrency: Annotated[
        int, typer.Option(metavar="N", min=1, max=10_000, help="Messages worked on at once.")
    ] = 16,
    fail_rate: Annotated[
        float, typer.Option(metavar="P", min=0.0, max=1.0, help="The share that fails, 0 to 1.")
    ] = 0.0,
    count: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Stop after so many acks.")
    ] = None,
    work: Annotated[
        float,
        typer.Option(
            metavar="DURATION", parser=parse_duration, help="How long the work on each takes."
        ),
    ] = 0.0,
    idle: Annotated[
        float | None,
        typer.Option(
            metavar="DURATION", parser=parse_duration, help="Stop when nothing came for so long."
        ),
    ] = None,
    show: Annotated[bool, typer.Option("--print", help="Print the bodies.")] = False,
) -> None:
    """Subscribe, confirm the reception, work, and ack. Until Ctrl-C, or --count acks.

    \b
    Examples
      nexo consume orders --count 1000
      nexo consume orders --concurrency 4 --work 250ms
      nexo consume orders --fail-rate 0.2 --idle 5s   retries and dead letters

    What was given to it and not worked on goes back at once when it ends.
    """
    from nexo.engine.process import run

    talk.require_broker()
    began = time.perf_counter()
    with progress_bar(talk, f"← {queue}", count) as bar:
        worker = Worker(bar, concurrency, fail_rate, count, work, idle, show)
        run(worker.work_on(talk, queue))
    seconds = time.perf_counter() - began
    if show:
        return
    talk.answer(
        {
            "queue": queue,
            "acked": worker.acked,
            "nacked": worker.nacked,
            "seconds": seconds,
            "rate": worker.acked / seconds,
        },
        f"acked {show_rate(worker.acked, seconds)}" + worker.note(),
    )


class Worker:
    def __init__(
        self,
        bar: Bar,
        concurrency: int,
        fail_rate: float,
        count: int | None,
        work_s: float,
        idle_s: float | None,
        show: bool,
    ) -> None:
        self.acked = 0
        self.nacked = 0
        self._bar = bar
        self._free = asyncio.Semaphore(concurrency)
        self._prefetch = min(4 * concurrency, PREFETCH_MAX)
        self._fail_rate = fail_rate
        self._count = count
        self._work_s = work_s
        self._idle_s = idle_s
        self._show = show
        self._under_way = 0
        self._enough = asyncio.Event()
        self._heard = 0.0
        self._failure: NexoError | None = None
        self._chance = random.SystemRandom()
