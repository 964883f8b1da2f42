"""`nexo consumers`: who is connected, who consumes what, and close one."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from nexo.cli.parameters import queue_names
from nexo.cli.session import Session, takes_session

if TYPE_CHECKING:
    from nexo import ConnectionInfo, ConsumerInfo

_COLOURS = {"stuck": "red", "not reading": "red", "idle": "dim"}


@takes_session
def consumers(
    session: Session,
    queue: Annotated[
        str | None,
        typer.Argument(
            metavar="QUEUE",
            help="Show only the consumers of this queue.",
            show_default=False,
            autocompletion=queue_names,
        ),
    ] = None,
    close: Annotated[
        int | None,
        typer.Option(
            metavar="NUMBER",
            min=1,
            help="Close the connection with this number; its client reconnects.",
        ),
    ] = None,
) -> None:
    """List connections and consumers, or close a connection.

    \b
    Examples
      nexo consumers
      nexo consumers orders
      nexo consumers --close 12

    A consumer is stuck if it holds messages and has acked none for a minute.
    The messages that a closed connection held return to the queue at once.
    SQS clients are listed for five minutes after their last call, and cannot
    be closed; what they hold is not known.
    """
    with session.client() as client:
        if close is not None:
            client.close_connection(close)
            session.answer({"number": close, "closed": True}, f"Closed connection {close}")
            return
        found = client.connections()
    if queue is not None:
        found = [each for each in found if any(one.queue == queue for one in each.consumers)]
    if session.as_json:
        session.document(found)
    elif not found:
        session.line(f"No consumers on {queue}" if queue is not None else "No connections")
    else:
        _print(found, queue)


def _print(found: "list[ConnectionInfo]", queue: str | None) -> None:
    from rich.text import Text

    from nexo.cli.tables import age, console, figure, plain_table

    figures = ("number", "unacked", "rate", "last ack")
    table = plain_table(
        "number", "name", "queue", "state", "unacked", "rate", "last ack", "from", "token",
        right=figures, wide=("name", "queue", "from", "token"),
    )  # fmt: skip
    now = datetime.now(UTC)
    for each in found:
        consuming: list[ConsumerInfo | None] = [
            one for one in each.consumers if queue is None or one.queue == queue
        ]
        for one in consuming or [None]:
            since = None if one is None or one.last_ack_at is None else now - one.last_ack_at
            table.add_row(
                str(each.number),
                Text(each.name or each.software),
                Text(one.queue if one is not None else "-"),
                Text(one.state, style=_COLOURS.get(one.state, "green")) if one else Text("-"),
                Text(f"{one.unacked:,}/{one.prefetch:,}" if one and one.prefetch else "-"),
                figure(one.rate) if one is not None else Text("-"),
                age(max(since.total_seconds(), 0.001)) if since is not None else Text("-"),
                Text(each.address),
                Text(each.token or "-"),
            )
    console().print(table)
