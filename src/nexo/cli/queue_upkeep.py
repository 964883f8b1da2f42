"""What operators do to the messages of a queue: look, empty, redrive, hold, release."""

import time
from collections.abc import Callable
from typing import Annotated, Any

import typer

from nexo.cli.completion import Queue, queue_argument, queue_names
from nexo.cli.ending import Ending
from nexo.cli.messages import message_document
from nexo.cli.progress import progress_bar, show_rate
from nexo.cli.talk import Talk, talks

POLL_S = 0.1  # how often a redrive is asked how far it is


@talks
def peek(
    talk: Talk,
    name: Queue,
    limit: Annotated[
        int, typer.Option(metavar="N", min=1, max=1_000, help="At most so many.")
    ] = 10,
) -> None:
    """Look at messages without taking them.

    \b
    Examples
      nexo queue peek orders
      nexo queue peek orders_dlq --limit 100 --json
    """
    with talk.client() as client:
        messages = client.queue(name).peek(limit)
    if talk.as_json:
        talk.document([message_document(each) for each in messages])
    elif not messages:
        talk.line(f"queue {name} is empty")
    else:
        from nexo.cli.tables import console, message_table

        console().print(message_table(messages))


@talks
def purge(
    talk: Talk,
    name: Queue,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Remove every message of a queue, those in flight too.

    \b
    Examples
      nexo queue purge orders
      nexo queue purge orders --yes
    """
    with talk.client() as client:
        queue = client.queue(name)
        depth = queue.info().depth
        talk.confirm(f"Remove {depth:,} messages from {name}, for good?", yes)
        with progress_bar(talk, f"purging {name}", depth) as bar:
            purged = queue.purge()
            bar.show(purged, total=purged)
    talk.answer({"name": name, "purged": purged}, f"{purged:,} messages are gone from {name}")


@talks
def redrive(
    talk: Talk,
    name: Annotated[str, queue_argument("The dead-letter queue.")],
    to: Annotated[
        str | None,
        typer.Option(
            metavar="QUEUE",
            help="Where they go; else each to where it came from.",
            autocompletion=queue_names,
        ),
    ] = None,
    rate: Annotated[
        float | None, typer.Option(metavar="N", min=0.001, help="Messages a second, at most.")
    ] = None,
) -> None:
    """Send dead letters back to the queues they came from.

    \b
    Examples
      nexo queue redrive orders_dlq
      nexo queue redrive orders_dlq --to orders_retry --rate 100

    Their attempts are counted anew. Ctrl-C stops it; what was moved stays
    moved.
    """
    began = time.perf_counter()
    with talk.client() as client:
        task = client.queue(name).redrive(to=to, rate=rate, wait=False)
        progress = task.progress()
        with (
            progress_bar(talk, f"{name} → {to or 'their queues'}", progress.total) as bar,
            Ending() as ending,
        ):
            while not progress.finished:
                ending.sleep(POLL_S)
                progress = task.cancel() if ending.is_near else task.progress()
                bar.show(progress.moved)
    told = show_rate(progress.moved, time.perf_counter() - began)
    skipped = f"; {progress.skipped:,} have no queue to go to" if progress.skipped else ""
    talk.answer(
        {"name": name, "moved": progress.moved, "skipped": progress.skipped},
        f"moved {told}{skipped}",
    )


def set_paused(paused: bool) -> Callable[..., Any]:
    """The commands `pause` and `resume`."""

    def command(talk: Talk, name: Queue) -> None:
        with talk.client() as client:
            queue = client.queue(name)
            if paused:
                queue.pause()
            else:
                queue.resume()
        told = "is paused: it takes pushes and gives nothing out" if paused else "goes on"
        talk.answer({"name": name, "paused": paused}, f"queue {name} {told}")

    command.__doc__ = _PAUSE if paused else _RESUME
    return talks(command)


_PAUSE = """Stop deliveries of a queue, not pushes.

    \b
    Example
      nexo queue pause orders
    """
_RESUME = """Let a paused queue deliver again.

    \b
    Example
      nexo queue resume orders
    """


@talks
def release(
    talk: Talk,
    name: Queue,
    consumer: Annotated[
        str, typer.Option(metavar="ID", help="The consumer, as nexo queue info shows it.")
    ],
    dead_letter: Annotated[
        bool, typer.Option("--dead-letter", help="Make them dead letters instead.")
    ] = False,
) -> None:
    """Take messages back from a Spark query that keeps failing.

    \b
    Examples
      nexo queue release orders --consumer 5f0c…
      nexo queue release orders --consumer 5f0c… --dead-letter

    The query then reads the batch that held them as empty, and goes on.
    """
    with talk.client() as client:
        released = client.queue(name).release(consumer, dead_letter=dead_letter)
    where = "are dead letters" if dead_letter else "are back in line"
    told = f"{released:,} messages {where}" if released else f"{consumer} holds nothing of {name}"
    talk.answer({"name": name, "released": released}, told)
