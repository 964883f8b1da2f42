"""Chosen messages on the command line: `nexo queue search`, `message`, `discard`, `resend`, and
`nexo why`. What destroys asks first, with the count in the question."""

import re
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nexo.cli.messages import message_document
from nexo.cli.parameters import Queue, add_parameters, attributes_of, flag, queue_names
from nexo.cli.session import Session, takes_session
from nexo.vocabulary.errors import InvalidArgument, MessageNotFound
from nexo.vocabulary.limits import PEEK_MESSAGES_MAX
from nexo.vocabulary.states import State
from nexo.vocabulary.units import count_of

if TYPE_CHECKING:
    from rich.console import Console

    from nexo import Client, MessageDetails, ReasonGroup
    from nexo import Queue as QueueHandle

_PANEL = "Which messages"

Ids = Annotated[
    list[str] | None,
    typer.Option(
        "--id",
        metavar="ID",
        help="ID of a message, or its last 12 characters; repeatable.",
        rich_help_panel=_PANEL,
    ),
]
Reason = Annotated[
    str | None,
    typer.Option(
        "--reason",
        metavar="TEXT",
        help="Dead letters with this reason, as shown by nexo why; numbers and IDs are ignored.",
        rich_help_panel=_PANEL,
    ),
]
Where = Annotated[
    str | None,
    typer.Option(
        "--where",
        metavar="SQL",
        help="SQL condition on id, text, body, priority, attempts, created_at, attributes, "
        "group_id, state and reason.",
        rich_help_panel=_PANEL,
    ),
]
Id = Annotated[
    str,
    typer.Argument(
        metavar="ID",
        help="ID of the message, or its last 12 characters as tables show them.",
        show_default=False,
    ),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


def takes_choice(function: Callable[..., None]) -> Callable[..., Any]:
    """Give a command the flags that choose messages; its first parameter becomes what they say, as
    the methods of a queue take it."""
    added = [flag("id", Ids), flag("reason", Reason), flag("where", Where)]

    def gathered(given: dict[str, Any]) -> dict[str, Any]:
        return {"ids": given["id"], "reason": given["reason"], "where": given["where"]}

    return add_parameters(function, added, gathered)


def whole_id(queue: "QueueHandle", given: str) -> str:
    """The ID that was meant. Tables show the last characters of IDs, and what is shown can be
    typed: the rest is the same for all messages of a queue with the same priority, so it is taken
    from the messages that a peek shows."""
    found = _SHORT_ID.fullmatch(given)
    if found is None:
        return given
    beginnings = {each.id[: -len(found[1])] for each in queue.peek(PEEK_MESSAGES_MAX)}
    whole = [f"{each}{found[1].lower()}" for each in sorted(beginnings)]
    ids = [each.id for each in queue.search(ids=whole)] if whole else []
    if not ids:
        raise MessageNotFound(
            f"no message in queue {queue.name!r} has an ID that ends with {found[1]}",
            "give the whole ID; --json and a window of 110 columns show it",
        )
    if len(ids) > 1:
        raise InvalidArgument(
            f"{len(ids)} messages have an ID that ends with {found[1]}",
            f"give the whole ID: {', '.join(ids)}",
        )
    return ids[0]


def with_whole_ids(queue: "QueueHandle", choice: dict[str, Any]) -> dict[str, Any]:
    if choice["ids"] is None:
        return choice
    return {**choice, "ids": [whole_id(queue, each) for each in choice["ids"]]}


_SHORT_ID = re.compile(r"(?:…|\.\.\.)?([0-9A-Fa-f]{12})")


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
            help="Text to find in the body, an attribute or the failure reason.",
            show_default=False,
        ),
    ] = "",
    limit: Annotated[
        int, typer.Option(metavar="N", min=1, max=100_000, help="Maximum number of messages.")
    ] = 100,
) -> None:
    """Find messages without taking them from the queue.

    \b
    Examples
      nexo queue search orders_dlq 4711
      nexo queue search orders_dlq --reason 'order # not found'
      nexo queue search orders --where "created_at < now() - INTERVAL 1 HOUR"
    """
    with session.client() as client:
        queue = client.queue(name)
        found = queue.search(text, limit, **with_whole_ids(queue, choice))
    if session.as_json:
        session.document([message_document(each) for each in found])
    elif not found:
        session.line(f"No message in {name} matches")
    else:
        from nexo.cli.tables import console, message_table

        console().print(message_table(found))
        if len(found) == limit:
            session.line(f"Showing the first {limit:,}; use --limit for more")


@takes_session
def message(
    session: Session,
    name: Queue,
    id: Id,
) -> None:
    """Show one message and its history.

    \b
    Examples
      nexo queue message orders_dlq 0d9c5c3e-…
      nexo queue message orders_dlq 0d9c5c3e-… --json | jq .life
    """
    with session.client() as client:
        queue = client.queue(name)
        found = queue.message(whole_id(queue, id))
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
    if found.state != State.GONE:
        _print_body(out, found.body)
    if found.life:
        out.print("\n[bold]history[/bold]")
        out.print(life_table(found.life))
    if found.life_note:
        out.print(f"[dim]{escape(found.life_note)}[/dim]")


def _print_body(out: "Console", body: bytes) -> None:
    from rich.markup import escape

    out.print("\n[bold]body[/bold]")
    shown = body[:_BODY_BYTES]
    try:
        out.print(escape(_visible(shown.decode())))
    except UnicodeDecodeError:
        out.print(shown.hex(" "))
    if len(body) > _BODY_BYTES:
        out.print(f"[dim]… {len(body):,} bytes in total; --json shows all[/dim]")


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
        typer.Argument(
            metavar="ID",
            help="IDs of the messages, or their last 12 characters.",
            show_default=False,
        ),
    ] = None,
    yes: Yes = False,
) -> None:
    """Permanently delete selected messages.

    \b
    Examples
      nexo queue discard orders_dlq 0d9c5c3e-… 0d9c5c3f-…
      nexo queue discard orders_dlq --reason 'order # not found'
      nexo queue discard orders --where "text LIKE '%test%'" --yes

    Messages in flight are deleted too, except those claimed by a Spark query.
    """
    choice = {**choice, "ids": [*(ids or []), *(choice["ids"] or [])] or None}
    if not any(choice.values()):
        raise InvalidArgument(
            "no messages selected",
            "give IDs, --reason or --where; nexo queue purge deletes all messages",
        )
    with session.client() as client:
        queue = client.queue(name)
        choice = with_whole_ids(queue, choice)
        count = queue.count(**choice)
        if count:
            session.confirm(f"Permanently discard {count_of(count)} from {name}?", yes)
        gone = queue.discard(choice["ids"], reason=choice["reason"], where=choice["where"])
    told = f"Discarded {count_of(gone)} from {name}" if gone else f"No message in {name} matches"
    session.answer({"name": name, "discarded": gone}, told)


@takes_session
def resend(
    session: Session,
    name: Queue,
    id: Id,
    body: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT", help="New body; @FILE reads it from a file, - from standard input."
        ),
    ] = None,
    set_attribute: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Set an attribute; repeatable."),
    ] = None,
    drop_attribute: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Remove an attribute; repeatable."),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(
            metavar="QUEUE",
            help="Target queue. Default: the source of a dead letter, else this queue.",
            autocompletion=queue_names,
        ),
    ] = None,
) -> None:
    """Send a changed copy of a message and delete the original.

    \b
    Examples
      nexo queue resend orders_dlq 0d9c5c3e-… --body '{"id": 1}'
      nexo queue resend orders_dlq 0d9c5c3e-… --body @fixed.json --set-attribute by=ann

    The new message has the ID of the original in its attribute
    nexo.original_id. The original is deleted in the same commit.
    """
    changed: dict[str, str | None] = dict.fromkeys(drop_attribute or [])
    changed.update(attributes_of(set_attribute or [], "--set-attribute") or {})
    with session.client() as client:
        queue = client.queue(name)
        id = whole_id(queue, id)
        fresh = queue.resend(id, body=_body(body), attributes=changed, to=to)
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
            help="Name of a queue, or of its dead-letter queue.",
            show_default=False,
            autocompletion=queue_names,
        ),
    ],
    redrive: Annotated[
        str | None,
        typer.Option(metavar="REASON", help="Redrive the dead letters with this reason."),
    ] = None,
    discard: Annotated[
        str | None,
        typer.Option(
            metavar="REASON", help="Permanently delete the dead letters with this reason."
        ),
    ] = None,
    yes: Yes = False,
) -> None:
    """Show why messages failed: dead letters by reason, with an example each.

    \b
    Examples
      nexo why orders
      nexo why orders --redrive 'TimeoutError: no answer after # s'
      nexo why orders --discard 'order # not found' --yes

    # stands for numbers and IDs, which differ from message to message.
    """
    if redrive is not None and discard is not None:
        raise InvalidArgument("--redrive and --discard cannot be combined", "use one of them")
    with session.client() as client:
        groups = client.queue(name).why()
        if redrive is not None:
            _act(session, client, groups, name, redrive, True, yes)
        elif discard is not None:
            _act(session, client, groups, name, discard, False, yes)
        elif session.as_json:
            session.document([_group_document(each) for each in groups])
        elif not groups:
            session.line(f"Queue {name} has no dead letters")
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
    session.confirm(f"Permanently discard {count_of(group.count)} from {group.queue}?", yes)
    count = queue.discard(reason=reason, source=source)
    session.answer(
        {"name": group.queue, "reason": group.reason, "discarded": count},
        f"Discarded {count_of(count)} from {group.queue}",
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
