"""`nexo consumers`: who is connected, who consumes what, and close one."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from nexo.cli.parameters import queue_names
from nexo.cli.session import Session, takes_session

if TYPE_CHECKING:
    from rich.console import RenderableType

    from nexo import ConnectionInfo, ConsumerInfo

_COLOURS = {"stuck": "red", "not reading": "red", "idle": "dim"}
_WIDE_COLUMNS = 120


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
            client.queue(queue).info()  # a name that is misspelt has no consumers either
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

    out = console()
    figures = ("#", "unacked", "acks/s", "last ack")
    columns = ["#", "name", "queue", "state", "unacked", "acks/s", "last ack", "from", "token"]
    is_wide = out.width >= _WIDE_COLUMNS
    if is_wide:
        columns += ["client", "connected"]
    table = plain_table(*columns, right=figures, wide=("name", "queue", "from", "token"))
    now = datetime.now(UTC)
    for each in found:
        consuming: list[ConsumerInfo | None] = [
            one for one in each.consumers if queue is None or one.queue == queue
        ]
        for one in consuming or [None]:
            since = None if one is None or one.last_ack_at is None else now - one.last_ack_at
            cells: list[RenderableType] = [
                str(each.number),
                Text(each.name or each.software),
                Text(one.queue if one is not None else "-"),
                Text(one.state, style=_COLOURS.get(one.state, "green")) if one else Text("-"),
                Text(_unacked(one)),
                figure(one.rate) if one is not None else Text("-"),
                age(max(since.total_seconds(), 0.001)) if since is not None else Text("-"),
                Text(each.address),
                Text(each.token or "-"),
            ]
            if is_wide:
                connected = max((now - each.since).total_seconds(), 0.001)
                cells += [Text(each.software or "-"), Text(f"{age(connected).plain} ago")]
            table.add_row(*cells)
    out.print(table)


def _unacked(one: "ConsumerInfo | None") -> str:
    if one is None or not one.prefetch:
        return "-"
    return f"{one.unacked:,}/{one.prefetch:,}"
