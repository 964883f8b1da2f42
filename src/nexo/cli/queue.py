"""`nexo queue …`: create, look at, change and delete queues."""

from typing import Annotated, Any

import typer

from nexo.cli.completion import Queue
from nexo.cli.group import command_group
from nexo.cli.queue_settings import takes_settings
from nexo.cli.queue_upkeep import peek, purge, redrive, release, set_paused
from nexo.cli.talk import Talk, talks
from nexo.vocabulary.errors import InvalidArgument

app = command_group(
    "queue",
    """Create, look at, change and delete queues.

    \b
    Examples
      nexo queue create orders --visibility-timeout 45 --max-attempts 3
      nexo queue list
      nexo queue redrive orders_dlq
    """,
)


@app.command()
@takes_settings
@talks
def create(talk: Talk, settings: dict[str, Any], name: Queue) -> None:
    """Create a queue; again with the same settings is no error.

    \b
    Examples
      nexo queue create orders
      nexo queue create orders --visibility-timeout 45 --max-attempts 3
      nexo queue create mails --backoff-initial 1 --backoff-max 10m --max-receive-rate 50
    """
    with talk.client() as client:
        client.create_queue(name, **settings)
        talk.answer(client.queue(name).info(), f"queue {name} is there")


@app.command("list")
@talks
def list_queues(talk: Talk) -> None:
    """List the queues with their figures.

    \b
    Examples
      nexo queue list
      nexo queue list --json | jq '.[].name'
    """
    with talk.client() as client:
        infos = client.queues()
    if talk.as_json:
        talk.document(infos)
    elif not infos:
        talk.line("there are no queues yet: nexo queue create NAME")
    else:
        from nexo.cli.tables import console, queue_table

        console().print(queue_table(infos))


@app.command()
@talks
def info(talk: Talk, name: Queue) -> None:
    """Show a queue: figures, totals, settings, claims.

    \b
    Examples
      nexo queue info orders
      nexo queue info orders --json | jq .depth
    """
    with talk.client() as client:
        found = client.queue(name).info()
    if talk.as_json:
        talk.document(found)
    else:
        from nexo.cli.tables import console, queue_page

        console().print(queue_page(found))


@app.command()
@takes_settings
@talks
def edit(talk: Talk, settings: dict[str, Any], name: Queue) -> None:
    """Change settings of a queue; those not named stay as they are.

    \b
    Examples
      nexo queue edit orders --visibility-timeout 2m
      nexo queue edit orders --max-receive-rate none
    """
    if not settings:
        raise InvalidArgument("nothing is to be changed", "name a setting: --visibility-timeout 45")
    with talk.client() as client:
        queue = client.queue(name)
        if "backoff" in settings:  # its parts are flags of their own: the others stay too
            import msgspec

            now = queue.info().settings.backoff
            settings["backoff"] = {**msgspec.to_builtins(now or {}), **settings["backoff"]}
        queue.edit(**settings)
        talk.answer(queue.info(), f"queue {name} is changed")


@app.command()
@talks
def delete(
    talk: Talk,
    name: Queue,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Delete a queue with everything in it.

    \b
    Examples
      nexo queue delete orders
      nexo queue delete orders --yes
    """
    with talk.client() as client:
        queue = client.queue(name)
        depth = queue.info().depth
        talk.confirm(f"Delete {name} with {depth:,} messages, for good?", yes)
        queue.delete()
    talk.answer({"name": name, "deleted": True}, f"queue {name} is deleted")


app.command()(purge)
app.command()(peek)
app.command()(redrive)
app.command("pause")(set_paused(True))
app.command("resume")(set_paused(False))
app.command()(release)
