"""`nexo produce`: random texts, as many or as fast as you like."""

import base64
import os
import time
from typing import TYPE_CHECKING, Annotated

import typer

from nexo.cli.parameters import queue_argument
from nexo.cli.progress import progress_bar, show_rate
from nexo.cli.session import Session, takes_session
from nexo.cli.signals import Ending

if TYPE_CHECKING:
    from nexo import Queue
    from nexo.cli.progress import Bar

STEP_S = 0.05  # with a rate, what is due is pushed this often


@takes_session
def produce(
    session: Session,
    queue: Annotated[str, queue_argument("The queue; created if needed.")],
    count: Annotated[
        int, typer.Option(metavar="N", min=0, help="How many; 0: until Ctrl-C.")
    ] = 1_000,
    rate: Annotated[
        float | None, typer.Option(metavar="R", min=0.001, help="Messages a second, at most.")
    ] = None,
    size: Annotated[int, typer.Option(metavar="N", min=1, help="Characters of each.")] = 15,
    priority: Annotated[
        int, typer.Option(metavar="N", min=0, max=255, help="Higher goes first.")
    ] = 0,
    batch: Annotated[
        int, typer.Option(metavar="N", min=1, max=10_000, help="Messages pushed at once.")
    ] = 500,
) -> None:
    """Push random texts. What it counts is on disk.

    \b
    Examples
      nexo produce orders --count 100000
      nexo produce orders --count 0 --rate 200     until Ctrl-C
      nexo produce orders --size 1000 --batch 50
    """
    total = count or None
    began = time.perf_counter()
    with session.client() as client, progress_bar(session, f"→ {queue}", total) as bar:
        target = client.queue(queue, create=True)
        with Ending() as ending:
            _push(target, bar, ending, total, rate, size, priority, batch)
    seconds = time.perf_counter() - began
    pushed = bar.count
    session.answer(
        {"queue": queue, "pushed": pushed, "seconds": seconds, "rate": pushed / seconds},
        f"pushed {show_rate(pushed, seconds)}",
    )


def _push(
    target: "Queue",
    bar: "Bar",
    ending: Ending,
    total: int | None,
    rate: float | None,
    size: int,
    priority: int,
    batch: int,
) -> None:
    began = time.perf_counter()
    while not ending.is_near and (total is None or bar.count < total):
        amount = batch if total is None else min(batch, total - bar.count)
        if rate is not None:
            due = int((time.perf_counter() - began) * rate) + 1 - bar.count
            if due <= 0:
                ending.sleep(max(STEP_S, (bar.count - 1) / rate + began - time.perf_counter()))
                continue
            amount = min(amount, due)
        target.push_batch(texts(amount, size), priority=priority)
        bar.advance(amount)


def texts(count: int, size: int) -> list[bytes]:
    """Random texts of letters, digits, dashes and underscores."""
    characters = base64.urlsafe_b64encode(os.urandom(count * size))
    return [characters[start : start + size] for start in range(0, count * size, size)]
