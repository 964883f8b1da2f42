"""`nexo push`: one message, or a line each from standard input."""

import sys
from collections.abc import Iterator, Sequence
from typing import Annotated, BinaryIO

import typer

from nexo.cli.attributes import attributes_of
from nexo.cli.completion import Queue
from nexo.cli.durations import parse_duration
from nexo.cli.talk import Talk, talks
from nexo.vocabulary.errors import InvalidArgument

LINES_AT_ONCE = 1_000  # a batch waits for the disk once
READ_BYTES = 1024 * 1024


@talks
def push(
    talk: Talk,
    queue: Queue,
    body: Annotated[
        str | None,
        typer.Argument(metavar="BODY", help="The message; without it, a line each is read."),
    ] = None,
    priority: Annotated[
        int, typer.Option(metavar="N", min=0, max=255, help="Higher goes first.")
    ] = 0,
    delay: Annotated[
        float | None,
        typer.Option(metavar="DURATION", parser=parse_duration, help="Ready only after this."),
    ] = None,
    attribute: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="An attribute; may be given again."),
    ] = None,
    group_id: Annotated[
        str | None, typer.Option(metavar="ID", help="The group, on FIFO and fair queues.")
    ] = None,
    deduplication_id: Annotated[
        str | None, typer.Option(metavar="ID", help="The same id again is the same message.")
    ] = None,
    create: Annotated[bool, typer.Option("--create", help="Create the queue if needed.")] = False,
) -> None:
    """Push one message, or a line each from standard input.

    \b
    Examples
      nexo push orders "hello"
      nexo push orders '{"id": 1}' --priority 9 --delay 5m
      seq 1000 | nexo push numbers --create

    Prints the id of each message once it is on disk.
    """
    if body is None and sys.stdin.isatty():
        raise InvalidArgument(
            "there is nothing to push", "give a BODY, or lines on standard input: seq 9 | nexo push"
        )
    if body is None and deduplication_id is not None:
        raise InvalidArgument("lines cannot share a deduplication id", "push them one by one")
    attributes = attributes_of(attribute or [])
    with talk.client() as client:
        target = client.queue(queue, create=create)
        if body is not None:
            message_id = target.push(
                body,
                priority=priority,
                delay=delay,
                attributes=attributes,
                group_id=group_id,
                deduplication_id=deduplication_id,
            )
            talk.answer({"id": message_id}, message_id)
            return
        for lines in batches(sys.stdin.buffer):
            ids = target.push_batch(
                lines,
                priority=priority,
                delay=delay,
                attributes=attributes,
                group_id=group_id,
            )
            _show(talk, ids)


def _show(talk: Talk, ids: Sequence[str]) -> None:
    if talk.as_json:
        talk.line("\n".join(f'{{"id":"{message_id}"}}' for message_id in ids))
    else:
        talk.line("\n".join(ids))


def batches(stream: BinaryIO) -> Iterator[list[bytes]]:
    """Lines as they come: what can be read at once goes out at once, so that the output of
    `tail -f` arrives line by line and a file in large batches."""
    rest = b""
    while chunk := stream.read1(READ_BYTES):  # type: ignore[attr-defined]
        *lines, rest = (rest + chunk).split(b"\n")
        for start in range(0, len(lines), LINES_AT_ONCE):
            yield lines[start : start + LINES_AT_ONCE]
    if rest:
        yield [rest]
