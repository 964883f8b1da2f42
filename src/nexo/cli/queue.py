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
    """Create a queue. The same name with the same settings again is no error.

    \b
    Examples
      nexo queue create orders
      nexo queue create orders --visibility-timeout 45 --max-attempts 3
      nexo queue create mails --backoff-initial 1 --backoff-max 10m --max-receive-rate 50
    """
    with talk.client() as client:
        client.create_queue(name, **settings)
        talk.answer(client.queue(name).info(), f"queue {name} is there")
