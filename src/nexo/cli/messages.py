"""Messages on the command line: `nexo push`, `nexo pop`, and how one is shown to programs and to
people."""

import base64
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from nexo.cli.parameters import Queue, attributes_of, parse_duration
from nexo.cli.session import Session, takes_session
from nexo.vocabulary.errors import InvalidArgument, StaleReceipt

if TYPE_CHECKING:
    from nexo import Event, Message, PeekedMessage

LINES_AT_ONCE = 1_000  # a batch waits for the disk once
READ_BYTES = 1024 * 1024

PREVIEW_CHARS = 60
_PLAIN = ("id", "queue", "priority", "attempts", "group_id", "attributes")
_TIMES = ("created_at", "visible_at", "delayed_until")
_DEAD_LETTER = ("reason", "source", "attempts", "first_failed_at", "last_failed_at", "consumer")


@takes_session
def push(
    session: Session,
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
    with session.client() as client:
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
            session.answer({"id": message_id}, message_id)
            return
        for lines in batches(sys.stdin.buffer):
            ids = target.push_batch(
                lines,
                priority=priority,
                delay=delay,
                attributes=attributes,
                group_id=group_id,
            )
            _show(session, ids)


def _show(session: Session, ids: Sequence[str]) -> None:
    if session.as_json:
        session.line("\n".join(f'{{"id":"{message_id}"}}' for message_id in ids))
    else:
        session.line("\n".join(ids))


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


@takes_session
def pop(
    session: Session,
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
    with session.client() as client:
        source = client.queue(queue)
        messages = source.pop_batch(max, wait=wait, visibility_timeout=visibility_timeout)
        if session.as_json:
            session.document([message_document(each) for each in messages])
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


def message_document(message: "Message | PeekedMessage") -> dict[str, Any]:
    """The client's field names. A body that is not text travels as base64, and says so."""
    text = text_of(message.body)
    document: dict[str, Any] = {name: getattr(message, name) for name in (*_PLAIN, *_TIMES)}
    document["body"] = text if text is not None else base64.b64encode(message.body).decode()
    document["text"] = text
    if text is None:
        document["body_encoding"] = "base64"
    document["state"] = state_of(message)
    letter = message.dead_letter
    document["dead_letter"] = letter and {name: getattr(letter, name) for name in _DEAD_LETTER}
    return document


def event_document(event: "Event") -> dict[str, Any]:
    """The same for an event of a topic."""
    text = text_of(event.body)
    document: dict[str, Any] = {
        "topic": event.topic,
        "offset": event.offset,
        "published_at": event.published_at,
        "attributes": event.attributes,
        "body": text if text is not None else base64.b64encode(event.body).decode(),
        "text": text,
    }
    if text is None:
        document["body_encoding"] = "base64"
    return document


def state_of(message: "Message | PeekedMessage") -> str:
    """Where a message is, in the words of the glossary."""
    return message.state.name.lower()


def text_of(body: bytes) -> str | None:
    """The body as text, if it is any."""
    try:
        return body.decode()
    except UnicodeDecodeError:
        return None


def preview(body: bytes) -> str:
    """The beginning of a body on one line."""
    text = text_of(body)
    shown = f"{len(body):,} bytes" if text is None else text
    shown = "".join(each if each.isprintable() else " " for each in shown[: PREVIEW_CHARS * 2])
    return shown if len(shown) <= PREVIEW_CHARS else shown[: PREVIEW_CHARS - 1] + "…"
