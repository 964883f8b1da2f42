"""`nexo consume`: a consumer for trying things out, which can fail on purpose."""

import time
from typing import Annotated

import typer

from nexo.cli.parameters import parse_duration, queue_argument
from nexo.cli.progress import progress_bar, show_rate
from nexo.cli.session import Session, takes_session


@takes_session
def consume(
    session: Session,
    queue: Annotated[str, queue_argument("The queue; created if needed.")],
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
    """Subscribe, confirm the reception, work, and ack.

    \b
    Examples
      nexo consume orders --count 1000
      nexo consume orders --concurrency 4 --work 250ms
      nexo consume orders --fail-rate 0.2 --idle 5s   retries and dead letters

    It ends with Ctrl-C, or after --count acks. What was given to it and not
    worked on goes back at once.
    """
    from nexo.cli.consumer import Consumer
    from nexo.engine.process import run

    session.require_broker()
    began = time.perf_counter()
    with progress_bar(session, f"← {queue}", count) as bar:
        consumer = Consumer(bar, concurrency, fail_rate, count, work, idle, show)
        run(consumer.work_on(session, queue))
    seconds = time.perf_counter() - began
    if show:
        return
    note = consumer.note()
    session.answer(
        {
            "queue": queue,
            "acked": consumer.acked,
            "nacked": consumer.nacked,
            "seconds": seconds,
            "rate": consumer.acked / seconds,
        },
        f"acked {show_rate(consumer.acked, seconds)}" + (note and f"; {note}"),
    )
