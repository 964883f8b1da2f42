"""`nexo queue …`: create, look at, change and delete queues, and what operators do to their
messages: look, empty, redrive, hold, release."""

import time
from collections.abc import Callable
from typing import Annotated, Any

import typer

from nexo.cli import chosen
from nexo.cli.chosen import takes_choice
from nexo.cli.messages import message_document
from nexo.cli.parameters import (
    Queue,
    command_group,
    queue_argument,
    queue_names,
    takes_queue_settings,
)
from nexo.cli.progress import progress_bar, show_rate
from nexo.cli.session import Ending, Session, created, is_there, takes_session
from nexo.vocabulary.errors import InvalidArgument
from nexo.vocabulary.units import count_of

app = command_group(
    "queue",
    """Create, inspect, change and delete queues.

    \b
    Examples
      nexo queue create orders --visibility-timeout 45 --max-attempts 3
      nexo queue list
      nexo queue redrive orders_dlq
    """,
)

POLL_S = 0.1  # how often a redrive is asked how far it is


@app.command()
@takes_queue_settings
@takes_session
def create(session: Session, settings: dict[str, Any], name: Queue) -> None:
    """Create a queue. If it exists with the same settings, nothing happens.

    \b
    Examples
      nexo queue create orders
      nexo queue create orders --visibility-timeout 45 --max-attempts 3
      nexo queue create mails --backoff-initial 1 --backoff-max 10m --max-receive-rate 50
    """
    with session.client() as client:
        was_there = is_there(client.queue(name).info)
        client.create_queue(name, **settings)
        session.answer(client.queue(name).info(), created("queue", name, was_there))


@app.command("list")
@takes_session
def list_queues(session: Session) -> None:
    """List all queues with their message counts.

    \b
    Examples
      nexo queue list
      nexo queue list --json | jq '.[].name'
    """
    with session.client() as client:
        infos = client.queues()
    if session.as_json:
        session.document(infos)
    elif not infos:
        session.line("No queues yet. Create one with nexo queue create NAME")
    else:
        from nexo.cli.tables import console, queue_table

        console().print(queue_table(infos))


@app.command()
@takes_session
def info(session: Session, name: Queue) -> None:
    """Show a queue: message counts, totals, settings and Spark claims.

    \b
    Examples
      nexo queue info orders
      nexo queue info orders --json | jq .depth
    """
    with session.client() as client:
        found = client.queue(name).info()
    if session.as_json:
        session.document(found)
    else:
        from nexo.cli.tables import console, queue_page

        console().print(queue_page(found))


@app.command()
@takes_queue_settings
@takes_session
def edit(session: Session, settings: dict[str, Any], name: Queue) -> None:
    """Change settings of a queue. Settings that you do not name keep their value.

    \b
    Examples
      nexo queue edit orders --visibility-timeout 2m
      nexo queue edit orders --max-receive-rate none
    """
    if not settings:
        raise InvalidArgument(
            "no setting was given", "add at least one, such as --visibility-timeout 45"
        )
    with session.client() as client:
        queue = client.queue(name)
        if "backoff" in settings:  # its parts are flags of their own: the others stay too
            import msgspec

            now = queue.info().settings.backoff
            settings["backoff"] = {**msgspec.to_builtins(now or {}), **settings["backoff"]}
        queue.edit(**settings)
        session.answer(queue.info(), f"Changed queue {name}")


@app.command()
@takes_session
def delete(
    session: Session,
    name: Queue,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
) -> None:
    """Delete a queue and all its messages.

    \b
    Examples
      nexo queue delete orders
      nexo queue delete orders --yes
    """
    with session.client() as client:
        queue = client.queue(name)
        depth = queue.info().depth
        session.confirm(f"Permanently delete {name} and its {count_of(depth)}?", yes)
        queue.delete()
    session.answer({"name": name, "deleted": True}, f"Deleted queue {name}")


@app.command()
@takes_session
def purge(
    session: Session,
    name: Queue,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
) -> None:
    """Delete all messages of a queue, including those in flight.

    \b
    Examples
      nexo queue purge orders
      nexo queue purge orders --yes
    """
    with session.client() as client:
        queue = client.queue(name)
        depth = queue.info().depth
        session.confirm(f"Permanently delete {count_of(depth)} from {name}?", yes)
        with progress_bar(session, f"Purging {name}", depth) as bar:
            purged = queue.purge()
            bar.show(purged, total=purged)
    session.answer({"name": name, "purged": purged}, f"Purged {count_of(purged)} from {name}")


@app.command()
@takes_session
def peek(
    session: Session,
    name: Queue,
    limit: Annotated[
        int, typer.Option(metavar="N", min=1, max=1_000, help="Maximum number of messages.")
    ] = 10,
) -> None:
    """Show messages without taking them from the queue.

    \b
    Examples
      nexo queue peek orders
      nexo queue peek orders_dlq --limit 100 --json
    """
    with session.client() as client:
        messages = client.queue(name).peek(limit)
    if session.as_json:
        session.document([message_document(each) for each in messages])
    elif not messages:
        session.line(f"Queue {name} is empty")
    else:
        from nexo.cli.tables import console, message_table

        console().print(message_table(messages))


@app.command()
@takes_choice
@takes_session
def redrive(
    session: Session,
    choice: dict[str, Any],
    name: Annotated[str, queue_argument("Name of the dead-letter queue.")],
    to: Annotated[
        str | None,
        typer.Option(
            metavar="QUEUE",
            help="Target queue. Default: the queue that each message came from.",
            autocompletion=queue_names,
        ),
    ] = None,
    rate: Annotated[
        float | None, typer.Option(metavar="N", min=0.001, help="Maximum messages per second.")
    ] = None,
) -> None:
    """Move dead letters back to the queues they came from.

    \b
    Examples
      nexo queue redrive orders_dlq
      nexo queue redrive orders_dlq --to orders_retry --rate 100
      nexo queue redrive orders_dlq --reason 'TimeoutError: no answer after # s'
      nexo queue redrive orders_dlq --where "created_at > now() - INTERVAL 1 DAY"

    Attempts start again at zero. Ctrl-C stops the redrive; messages that were
    already moved stay where they are.
    """
    began = time.perf_counter()
    with session.client() as client:
        queue = client.queue(name)
        choice = chosen.with_whole_ids(queue, choice)
        if choice["where"] is not None:
            moved, skipped = queue.redrive(to=to, rate=rate, **choice), 0
        else:
            task = queue.redrive(to=to, rate=rate, wait=False, **choice)
            progress = task.progress()
            with (
                progress_bar(session, f"{name} → {to or 'their queues'}", progress.total) as bar,
                Ending() as ending,
            ):
                while not progress.finished:
                    ending.sleep(POLL_S)
                    progress = task.cancel() if ending.is_near else task.progress()
                    bar.show(progress.moved, total=progress.total)
            moved, skipped = progress.moved, progress.skipped
    told = f"Moved {show_rate(moved, time.perf_counter() - began)}"
    if not moved and not skipped:
        is_some = any(value is not None for value in choice.values())
        told = f"No message in {name} matches" if is_some else f"Queue {name} is empty"
    elif skipped and not moved:
        told = f"{name} is not a dead-letter queue; name the target with --to QUEUE"
    elif skipped:
        noun = "message has" if skipped == 1 else "messages have"
        told += f"; {skipped:,} {noun} no queue to go back to, name one with --to QUEUE"
    session.answer({"name": name, "moved": moved, "skipped": skipped}, told)


app.command("search")(chosen.search)
app.command("message")(chosen.message)
app.command("discard")(chosen.discard)
app.command("resend")(chosen.resend)


def set_paused(paused: bool) -> Callable[..., Any]:
    """The commands `pause` and `resume`."""

    def command(session: Session, name: Queue) -> None:
        with session.client() as client:
            queue = client.queue(name)
            if paused:
                queue.pause()
            else:
                queue.resume()
        told = (
            f"Paused queue {name}; it still accepts pushes" if paused else f"Resumed queue {name}"
        )
        session.answer({"name": name, "paused": paused}, told)

    command.__doc__ = _PAUSE if paused else _RESUME
    return takes_session(command)


_PAUSE = """Stop deliveries from a queue. It still accepts pushes.

    \b
    Example
      nexo queue pause orders
    """
_RESUME = """Start deliveries from a paused queue again.

    \b
    Example
      nexo queue resume orders
    """


app.command("pause")(set_paused(True))
app.command("resume")(set_paused(False))


@app.command()
@takes_session
def release(
    session: Session,
    name: Queue,
    consumer: Annotated[
        str, typer.Option(metavar="ID", help="Consumer ID, as shown by nexo queue info.")
    ],
    dead_letter: Annotated[
        bool,
        typer.Option("--dead-letter", help="Move the messages to the dead-letter queue instead."),
    ] = False,
    forget: Annotated[
        bool, typer.Option("--forget", help="Also remove the consumer from the list.")
    ] = False,
) -> None:
    """Return messages claimed by a Spark query that keeps failing or is gone.

    \b
    Examples
      nexo queue release orders --consumer 5f0c…
      nexo queue release orders --consumer 5f0c… --dead-letter
      nexo queue release orders --consumer 5f0c… --forget

    If the query still runs, it reads the released batch as empty and
    continues. With --forget it starts as a new consumer if it comes back.
    """
    with session.client() as client:
        released = client.queue(name).release(consumer, dead_letter=dead_letter, forget=forget)
    where = f"to the dead-letter queue of {name}" if dead_letter else f"to {name}"
    told = f"Returned {count_of(released)} {where}"
    if not released:
        told = f"Consumer {consumer} holds no messages of {name}"
    session.answer({"name": name, "released": released}, told)
