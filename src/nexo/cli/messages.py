"""Messages on the command line: `nexo push`, `nexo pop`, `nexo produce`, `nexo consume`, and how
one is shown to programs and to people."""

import base64
import contextlib
import os
import sys
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from nexo.cli.parameters import Queue, attributes_of, parse_duration, queue_argument
from nexo.cli.progress import progress_bar, show_rate
from nexo.cli.session import Ending, Session, takes_session
from nexo.vocabulary.errors import InvalidArgument, QueueNotFound, StaleReceipt

if TYPE_CHECKING:
    import nexo
    from nexo import Event, Message, PeekedMessage
    from nexo.cli.progress import Bar

LINES_AT_ONCE = 1_000  # a batch waits for the disk once
READ_BYTES = 1024 * 1024
STEP_S = 0.05  # with a rate, what is due is produced this often

PREVIEW_CHARS = 60
_PLAIN = ("id", "queue", "priority", "attempts", "group_id", "attributes")
_TIMES = ("created_at", "visible_at", "delayed_until")
GroupId = Annotated[
    str | None, typer.Option(metavar="ID", help="Message group, for FIFO and fair queues.")
]
DeduplicationId = Annotated[
    str | None,
    typer.Option(metavar="ID", help="A second push with the same ID is ignored as a duplicate."),
]
_DEAD_LETTER = ("reason", "source", "attempts", "first_failed_at", "last_failed_at", "consumer")


@takes_session
def push(
    session: Session,
    queue: Queue,
    body: Annotated[
        str | None,
        typer.Argument(
            metavar="BODY", help="Message body. Without it, each line of standard input is one."
        ),
    ] = None,
    priority: Annotated[
        int, typer.Option(metavar="N", min=0, max=255, help="Priority; higher goes first.")
    ] = 0,
    delay: Annotated[
        float | None,
        typer.Option(
            metavar="DURATION", parser=parse_duration, help="Deliver only after this delay."
        ),
    ] = None,
    attribute: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Message attribute; repeatable."),
    ] = None,
    group_id: GroupId = None,
    deduplication_id: DeduplicationId = None,
    create: Annotated[
        bool, typer.Option("--create", help="Create the queue if it does not exist.")
    ] = False,
) -> None:
    """Push one message, or one per line of standard input.

    \b
    Examples
      nexo push orders "hello"
      nexo push orders '{"id": 1}' --priority 9 --delay 5m
      seq 1000 | nexo push numbers --create

    Prints the ID of each message once it is on disk.
    """
    if body is None and sys.stdin.isatty():
        raise InvalidArgument(
            "no message body was given",
            "add BODY, or pipe lines to standard input: seq 9 | nexo push QUEUE",
        )
    if body is None and deduplication_id is not None:
        raise InvalidArgument(
            "--deduplication-id works with one BODY only", "push the lines one at a time"
        )
    attributes = attributes_of(attribute or [])
    with session.client() as client, _may_be_created():
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


@contextlib.contextmanager
def _may_be_created() -> Iterator[None]:
    """A queue that is missing may have been forgotten, not misspelt."""
    try:
        yield
    except QueueNotFound as error:
        raise QueueNotFound(error.message, "add --create to create it") from None


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
            metavar="DURATION",
            parser=parse_duration,
            help="Long-poll time: how long to wait for the first message.",
        ),
    ] = 0.0,
    max: Annotated[
        int, typer.Option(metavar="N", min=1, max=10_000, help="Maximum number of messages.")
    ] = 1,
    ack: Annotated[
        bool,
        typer.Option(
            "--ack/--no-ack",
            help="Ack after printing; with --no-ack messages return after the visibility timeout.",
        ),
    ] = True,
    visibility_timeout: Annotated[
        float | None,
        typer.Option(
            metavar="DURATION",
            parser=parse_duration,
            help="Visibility timeout for these messages. Default: that of the queue.",
        ),
    ] = None,
) -> None:
    """Take messages, print their bodies, and ack them.

    \b
    Examples
      nexo pop orders
      nexo pop orders --wait 20 --max 100
      nexo pop orders --no-ack --visibility-timeout 5m --json

    A message is acked after it is printed, so none is lost if the command is
    interrupted. With an empty queue the command prints nothing and exits 0.
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
                f"could not ack {len(refused)} of {len(messages)} messages ({message_id}: {code})",
                "they will be delivered again",
            )


def _print(messages: "Sequence[Message]") -> None:
    """Bodies as they are, a line each."""
    if not messages and sys.stderr.isatty():
        sys.stderr.write("No messages\n")
    for message in messages:
        sys.stdout.buffer.write(message.body + b"\n")
    sys.stdout.buffer.flush()


@takes_session
def produce(
    session: Session,
    queue: Annotated[str, queue_argument("Name of the queue; it is created if it does not exist.")],
    count: Annotated[
        int, typer.Option(metavar="N", min=0, help="Number of messages; 0 means until Ctrl-C.")
    ] = 1_000,
    rate: Annotated[
        float | None, typer.Option(metavar="R", min=0.001, help="Maximum messages per second.")
    ] = None,
    size: Annotated[int, typer.Option(metavar="N", min=1, help="Characters per message.")] = 15,
    priority: Annotated[
        int, typer.Option(metavar="N", min=0, max=255, help="Priority; higher goes first.")
    ] = 0,
    batch: Annotated[
        int, typer.Option(metavar="N", min=1, max=10_000, help="Messages per push.")
    ] = 500,
) -> None:
    """Push random test messages. It counts those that are on disk.

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
            _produce(target, bar, ending, total, rate, size, priority, batch)
    seconds = time.perf_counter() - began
    pushed = bar.count
    session.answer(
        {"queue": queue, "pushed": pushed, "seconds": seconds, "rate": pushed / seconds},
        f"Pushed {show_rate(pushed, seconds)}",
    )


def _produce(
    target: "nexo.Queue",
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


@takes_session
def consume(
    session: Session,
    queue: Annotated[str, queue_argument("Name of the queue; it is created if it does not exist.")],
    concurrency: Annotated[
        int,
        typer.Option(metavar="N", min=1, max=10_000, help="Messages processed at the same time."),
    ] = 16,
    fail_rate: Annotated[
        float,
        typer.Option(
            metavar="P", min=0.0, max=1.0, help="Share of messages to fail on purpose, 0 to 1."
        ),
    ] = 0.0,
    count: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Stop after this many acks.")
    ] = None,
    work: Annotated[
        float,
        typer.Option(
            metavar="DURATION", parser=parse_duration, help="Simulated processing time per message."
        ),
    ] = 0.0,
    idle: Annotated[
        float | None,
        typer.Option(
            metavar="DURATION", parser=parse_duration, help="Stop after this long without messages."
        ),
    ] = None,
    show: Annotated[bool, typer.Option("--print", help="Print the bodies.")] = False,
) -> None:
    """Subscribe to a queue, and receive, process and ack its messages.

    \b
    Examples
      nexo consume orders --count 1000
      nexo consume orders --concurrency 4 --work 250ms
      nexo consume orders --fail-rate 0.2 --idle 5s   retries and dead letters

    Stops on Ctrl-C, or after --count acks. Prefetched messages that were not
    processed return to the queue at once.
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
        f"Acked {show_rate(consumer.acked, seconds)}" + (note and f"; {note}"),
    )


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
