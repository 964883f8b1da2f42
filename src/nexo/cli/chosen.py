"""Chosen messages on the command line: `nexo queue search`, `message`, `discard`, `resend`, and
`nexo why`. What destroys asks first, with the count in the question."""

import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nexo.cli.messages import message_document
from nexo.cli.parameters import Queue, add_parameters, attributes_of, flag, queue_names
from nexo.cli.session import Session, takes_session
from nexo.vocabulary.errors import InvalidArgument

if TYPE_CHECKING:
    from nexo import Client, MessageDetails, ReasonGroup

_PANEL = "Which messages"

Ids = Annotated[
    list[str] | None,
    typer.Option(
        "--id", metavar="ID", help="This message; may be given again.", rich_help_panel=_PANEL
    ),
]
Reason = Annotated[
    str | None,
    typer.Option(
        "--reason",
        metavar="TEXT",
        help="Dead letters of this reason, as nexo why shows it; numbers and ids do not count.",
        rich_help_panel=_PANEL,
    ),
]
Where = Annotated[
    str | None,
    typer.Option(
        "--where",
        metavar="SQL",
        help="A condition in SQL on id, text, body, priority, attempts, created_at, attributes, "
        "group_id, state and reason.",
        rich_help_panel=_PANEL,
    ),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def takes_choice(function: Callable[..., None]) -> Callable[..., Any]:
    """Give a command the flags that choose messages; its first parameter becomes what they say, as
    the methods of a queue take it."""
    added = [flag("id", Ids), flag("reason", Reason), flag("where", Where)]

    def gathered(given: dict[str, Any]) -> dict[str, Any]:
        return {"ids": given["id"], "reason": given["reason"], "where": given["where"]}

    return add_parameters(function, added, gathered)


def count_of(count: int, noun: str = "message") -> str:
    """A number with its noun: 1 message, 2 messages."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


@takes_choice
@takes_session
def search(
    session: Session,
    choice: dict[str, Any],
    name: Queue,
    text: Annotated[
        str,
        typer.Argument(
            metavar="TEXT",
            help="What the body, an attribute or the reason has to contain.",
            show_default=False,
        ),
    ] = "",
    limit: Annotated[
        int, typer.Option(metavar="N", min=1, max=100_000, help="How many to show, at most.")
    ] = 100,
) -> None:
    """Find messages without taking them.

    \b
    Examples
      nexo queue search orders_dlq 4711
      nexo queue search orders_dlq --reason 'order # not found'
      nexo queue search orders --where "created_at < now() - INTERVAL 1 HOUR"
    """
    with session.client() as client:
        found = client.queue(name).search(text, limit, **choice)
    if session.as_json:
        session.document([message_document(each) for each in found])
    elif not found:
        session.line(f"No message of {name} matches")
    else:
        from nexo.cli.tables import console, message_table

        console().print(message_table(found))
        if len(found) == limit:
            session.line(f"These are the first {limit:,}; --limit shows more")


@takes_session
def message(
    session: Session,
    name: Queue,
    id: Annotated[str, typer.Argument(metavar="ID", help="The message.", show_default=False)],
) -> None:
    """Show one message with its life so far.

    \b
    Examples
      nexo queue message orders_dlq 0d9c5c3e-…
      nexo queue message orders_dlq 0d9c5c3e-… --json | jq .life
    """
    with session.client() as client:
        found = client.queue(name).message(id)
    if session.as_json:
        life = [_event_document(each) for each in found.life]
        session.document({**message_document(found), "life": life, "life_note": found.life_note})
    else:
        _print_message(found)


def _event_document(event: Any) -> dict[str, Any]:
    return {name: getattr(event, name) for name in event.__struct_fields__}


def _print_message(found: "MessageDetails") -> None:
    from rich.markup import escape

    from nexo.cli.message_tables import life_table, message_page
    from nexo.cli.tables import console

    out = console()
    out.print(message_page(found))
    body = found.body[:_BODY_BYTES]
    out.print("\n[bold]body[/bold]")
    try:
        out.print(escape(_visible(body.decode())))
    except UnicodeDecodeError:
        out.print(body.hex(" "))
    if len(found.body) > _BODY_BYTES:
        out.print(f"[dim]… of {len(found.body):,} bytes; --json shows all[/dim]")
    if found.life:
        out.print("\n[bold]life[/bold]")
        out.print(life_table(found.life))
    if found.life_note:
        out.print(f"[dim]{escape(found.life_note)}[/dim]")


_BODY_BYTES = 4_096


def _visible(text: str) -> str:
    """A terminal must not obey what a message says."""
    from nexo.server.logs import visible

    return "\n".join(map(visible, text.splitlines()))


@takes_choice
@takes_session
def discard(
    session: Session,
    choice: dict[str, Any],
    name: Queue,
    ids: Annotated[
        list[str] | None,
        typer.Argument(metavar="ID…", help="The messages.", show_default=False),
    ] = None,
    yes: Yes = False,
) -> None:
    """Remove chosen messages for good.

    \b
    Examples
      nexo queue discard orders_dlq 0d9c5c3e-… 0d9c5c3f-…
      nexo queue discard orders_dlq --reason 'order # not found'
      nexo queue discard orders --where "text LIKE '%test%'" --yes

    Messages that a consumer works on are removed too; those that a Spark
    query holds are not.
    """
    choice = {**choice, "ids": [*(ids or []), *(choice["ids"] or [])] or None}
    if not any(choice.values()):
        raise InvalidArgument(
            "which messages is not said",
            "give IDs, --reason or --where; nexo queue purge removes all",
        )
    with session.client() as client:
        queue = client.queue(name)
        count = queue.count(**choice)
        if count:
            session.confirm(f"Discard {count_of(count)} of {name} for good?", yes)
        gone = queue.discard(choice["ids"], reason=choice["reason"], where=choice["where"])
    told = f"Discarded {count_of(gone)} of {name}" if gone else f"No message of {name} matches"
    session.answer({"name": name, "discarded": gone}, told)


@takes_session
def resend(
    session: Session,
    name: Queue,
    id: Annotated[str, typer.Argument(metavar="ID", help="The message.", show_default=False)],
    body: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="The new body; @FILE reads it, - is standard input."),
    ] = None,
    set_attribute: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Set an attribute; may be given again."),
    ] = None,
    drop_attribute: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Leave an attribute out; may be given again."),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(
            metavar="QUEUE",
            help="Where it goes. Default: the queue a dead letter came from, else the same queue.",
            autocompletion=queue_names,
        ),
    ] = None,
) -> None:
    """Send one message again, with changes, in place of the original.

    \b
    Examples
      nexo queue resend orders_dlq 0d9c5c3e-… --body '{"id": 1}'
      nexo queue resend orders_dlq 0d9c5c3e-… --body @fixed.json --set-attribute by=ann

    The new message has the id of the original in its attribute
    nexo.original_id. The original is acked in the same commit.
    """
    changed: dict[str, str | None] = dict.fromkeys(drop_attribute or [])
    changed.update(attributes_of(set_attribute or [], "--set-attribute") or {})
    with session.client() as client:
        fresh = client.queue(name).resend(id, body=_body(body), attributes=changed, to=to)
    session.answer({"name": name, "id": fresh, "original_id": id}, fresh)


def _body(given: str | None) -> bytes | None:
    if given is None:
        return None
    if given == "-":
        return sys.stdin.buffer.read()
    if not given.startswith("@"):
        return given.encode()
    try:
        return Path(given[1:]).read_bytes()
    except OSError as error:
        raise InvalidArgument(f"--body: {given[1:]} cannot be read: {error.strerror}") from None


@takes_session
def why(
    session: Session,
    name: Annotated[
        str,
        typer.Argument(
            metavar="QUEUE",
            help="A queue, or its dead-letter queue.",
            show_default=False,
            autocompletion=queue_names,
        ),
    ],
    redrive: Annotated[
        str | None,
        typer.Option(metavar="REASON", help="Send the dead letters of this reason back to work."),
    ] = None,
    discard: Annotated[
        str | None,
        typer.Option(metavar="REASON", help="Remove the dead letters of this reason for good."),
    ] = None,
    yes: Yes = False,
) -> None:
    """Show why messages died: dead letters by reason, with an example each.

    \b
    Examples
      nexo why orders
      nexo why orders --redrive 'TimeoutError: no answer after # s'
      nexo why orders --discard 'order # not found' --yes

    A # stands for numbers and ids, which differ from message to message.
    """
    if redrive is not None and discard is not None:
        raise InvalidArgument("--redrive and --discard exclude each other", "give one of them")
    with session.client() as client:
        groups = client.queue(name).why()
        if redrive is not None:
            _act(session, client, groups, name, redrive, True, yes)
        elif discard is not None:
            _act(session, client, groups, name, discard, False, yes)
        elif session.as_json:
            session.document([_group_document(each) for each in groups])
        elif not groups:
            session.line(f"{name} has no dead letters")
        else:
            from nexo.cli.message_tables import print_reasons
            from nexo.cli.tables import console

            print_reasons(console(), groups)


def _act(
    session: Session,
    client: "Client",
    groups: "list[ReasonGroup]",
    name: str,
    reason: str,
    is_redrive: bool,
    yes: bool,
) -> None:
    from nexo.vocabulary.reasons import folded

    group = next((each for each in groups if each.reason == folded(reason)), None)
    if group is None:
        raise InvalidArgument(
            f"no dead letter of {name} has the reason {reason!r:.80}",
            f"nexo why {name} shows the reasons",
        )
    source = name if group.queue != name else None
    queue = client.queue(group.queue)
    if is_redrive:
        count = queue.redrive(reason=reason, source=source)
        session.answer(
            {"name": group.queue, "reason": group.reason, "moved": count},
            f"Moved {count_of(count)} back to {', '.join(group.sources)}",
        )
        return
    session.confirm(f"Discard {count_of(group.count)} of {group.queue} for good?", yes)
    count = queue.discard(reason=reason, source=source)
    session.answer(
        {"name": group.queue, "reason": group.reason, "discarded": count},
        f"Discarded {count_of(count)} of {group.queue}",
    )


def _group_document(group: "ReasonGroup") -> dict[str, Any]:
    return {
        "reason": group.reason,
        "count": group.count,
        "first_at": _moment(group.first_at),
        "last_at": _moment(group.last_at),
        "consumer": group.consumer,
        "sources": list(group.sources),
        "queue": group.queue,
        "example": message_document(group.example),
    }


def _moment(at: datetime) -> str:
    return at.isoformat().replace("+00:00", "Z")
