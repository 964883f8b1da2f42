"""`nexo pop`: take messages and print them."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from nexo.cli.completion import Queue
from nexo.cli.durations import parse_duration
from nexo.cli.messages import message_document
from nexo.cli.talk import Talk, talks
from nexo.vocabulary.errors import StaleReceipt

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nexo import Message


@talks
def pop(
    talk: Talk,
    queue: Queue,
    wait: Annotated[
        float,
        typer.Option(
            metavar="DURATION", parser=parse_duration, help="How long to wait for the first."
        ),
    ] = 0.0,
    max: Annotated[int, typer.Option(metavar="N", min=1, max=10_000, help="At most so many.")] = 1,
    ack: Annotated[
        bool,
        typer.Option(
            "--ack/--no-ack", help="Whether they are done; else they come back after a while."
        ),
    ] = True,
    visibility_timeout: Annotated[
        float | None,
        typer.Option(
            metavar="DURATION", parser=parse_duration, help="When they come back, unacked."
        ),
    ] = None,
) -> None:
    """Take messages, print their bodies, and ack them.

    \b
    Examples
      nexo pop orders
      nexo pop orders --wait 20 --max 100
      nexo pop orders --no-ack --visibility-timeout 5m --json

    A message is acked after it was printed, so none is lost on the way. An
    empty queue is no error.
    """
    with talk.client() as client:
        source = client.queue(queue)
        messages = source.pop_batch(max, wait=wait, visibility_timeout=visibility_timeout)
        if talk.as_json:
            talk.document([message_document(each) for each in messages])
        else:
            _print(messages)
        refused = source.ack_batch(messages) if ack and messages else []
        if refused:
            message_id, code = refused[0]
            raise StaleReceipt(
                f"{len(refused)} of {len(messages)} could not be acked: {message_id} is {code}",
                "they will be delivered again",
            )


def _print(messages: "Sequence[Message]") -> None:
    """Bodies as they are, a line each."""
    if not messages and sys.stderr.isatty():
        sys.stderr.write("nothing there\n")
    for message in messages:
        sys.stdout.buffer.write(message.body + b"\n")
    sys.stdout.buffer.flush()
