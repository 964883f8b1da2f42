"""Messages for people: one with its life, and dead letters by reason."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from nexo.cli.messages import preview, state_of
from nexo.cli.tables import age, plain_table
from nexo.vocabulary.units import show_size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nexo import LifeEvent, MessageDetails, ReasonGroup

_COLOURS = {
    "acked": "green",
    "nacked": "yellow",
    "expired": "yellow",
    "dead_lettered": "red",
    "redriven": "magenta",
    "purged": "red",
}


def message_page(message: "MessageDetails") -> Table:
    """Everything about one message but its body and its life."""
    page = Table.grid(padding=(0, 2))
    page.add_column(style="bold")
    page.add_column(overflow="fold")
    page.add_row(Text("id"), Text(message.id))
    page.add_row("queue", Text(message.queue))
    page.add_row("state", Text(state_of(message)))
    if message.created_at.year > 1970:  # else it is gone, and its life is all that is known
        page.add_row("created", f"{_moment(message.created_at)}  ({_ago(message.created_at)})")
        page.add_row("priority", str(message.priority))
        page.add_row("attempts", str(message.attempts))
        page.add_row("size", show_size(len(message.body)))
    if message.group_id is not None:
        page.add_row("group", Text(message.group_id))
    if message.visible_at is not None:
        page.add_row("visible again", _moment(message.visible_at))
    if message.delayed_until is not None:
        page.add_row("delayed until", _moment(message.delayed_until))
    letter = message.dead_letter
    if letter is not None:
        page.add_row("source", Text(letter.source))
        page.add_row(
            "failed after", f"{letter.attempts} attempt{'' if letter.attempts == 1 else 's'}"
        )
        page.add_row("reason", Text(letter.reason, style="red"))
        page.add_row("last consumer", Text(letter.consumer or "-"))
        page.add_row("first failed", _moment(letter.first_failed_at))
        page.add_row("last failed", _moment(letter.last_failed_at))
    for name, value in message.attributes.items():
        page.add_row("attribute", Text(f"{name}={value}"))
    return page


def life_table(life: "Sequence[LifeEvent]") -> Table:
    """Each event with its reason below, whole."""
    table = plain_table(
        "time (UTC)", "event", "attempt", "where, who and why", wide=("where, who and why",)
    )
    for event in life:
        where = Text(event.queue, overflow="fold")
        if event.consumer:
            where.append(f"  {event.consumer}", style="dim")
        if event.reason:
            where.append(f"\n{event.reason}", style=_COLOURS.get(event.kind, ""))
        what = Text(event.kind.replace("_", " "), style=_COLOURS.get(event.kind, ""))
        table.add_row(_moment(event.at), what, str(event.attempts or "-"), where)
    return table


def print_reasons(out: Console, groups: "Sequence[ReasonGroup]") -> None:
    """Each reason whole, with what is known of it below: reasons are longer than columns."""
    total = sum(group.count for group in groups)
    page = Table.grid(padding=(0, 2))
    page.add_column(justify="right", style="bold")
    page.add_column(overflow="fold")
    for group in groups:
        page.add_row(f"{group.count:,}", Text(group.reason or "(no reason)", style="red"))
        times = f"first {_ago(group.first_at)}, last {_ago(group.last_at)}"
        who = f", last consumer {group.consumer}" if group.consumer else ""
        page.add_row("", Text(f"{times}, from {', '.join(group.sources)}{who}", style="dim"))
        example = Text("e.g. ", style="dim").append(group.example.id)
        page.add_row("", example.append(f"  {preview(group.example.body)}"))
    out.print(page)
    noun = "dead letter" if total == 1 else "dead letters"
    out.print(f"\n{total:,} {noun} in {groups[0].queue}")


def _ago(at: datetime) -> str:
    return f"{age(max((datetime.now(UTC) - at).total_seconds(), 0.001)).plain} ago"


def _moment(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
