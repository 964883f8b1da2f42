"""Tables for people: queues, their settings, messages."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from nexo.cli.durations import show_duration
from nexo.cli.messages import preview, state_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nexo import PeekedMessage, QueueInfo

_DURATIONS = frozenset(
    {
        "visibility_timeout",
        "retransmit_timeout",
        "delay",
        "retention",
        "deduplication_window",
        "archive_retention",
    }
)


def console() -> Console:
    return Console(highlight=False)


def plain_table(*columns: str, right: "Sequence[str]" = (), wide: "Sequence[str]" = ()) -> Table:
    """A table without walls: it stays readable in a log and in an e-mail. Columns that are wide
    share the room that the others leave."""
    table = Table(
        box=box.SIMPLE_HEAD,
        header_style="bold",
        pad_edge=False,
        show_edge=False,
        collapse_padding=True,
    )
    for column in columns:
        if column in wide:
            table.add_column(column, overflow="fold", ratio=1, min_width=10)
        else:
            justify: Literal["right", "left"] = "right" if column in right else "left"
            # Names give way to numbers where the window is narrow.
            is_name = column == "queue"
            table.add_column(
                column,
                justify=justify,
                vertical="bottom",
                no_wrap=not is_name,
                min_width=max(map(len, column.split("\n"))),
            )
    return table


def figure(number: float, style: str = "") -> Text:
    """A number; nothing to see stays in the background."""
    return Text(f"{number:,.0f}", style=style if number else "dim")


def queue_table(infos: "Sequence[QueueInfo]") -> Table:
    figures = ("depth", "ready", "in\nflight", "delayed", "oldest", "con-\nsumers", "dead\nletters")
    table = plain_table("queue", *figures, right=figures)
    for info in infos:
        table.add_row(
            queue_name(info),
            figure(info.depth, "bold"),
            figure(info.ready),
            figure(info.in_flight),
            figure(info.scheduled),
            age(info.oldest_age),
            figure(info.consumers),
            figure(info.dead_lettered, "red"),
        )
    return table


def queue_name(info: "QueueInfo") -> Text:
    name = Text(info.name)
    return name.append("  paused", style="yellow") if info.paused else name


def age(seconds: float) -> Text:
    return Text(show_duration(seconds) if seconds else "-", style="" if seconds else "dim")


def queue_page(info: "QueueInfo") -> Table:
    """Everything about one queue."""
    page = Table.grid(padding=(0, 2))
    page.add_column(style="bold")
    state = "  [yellow]paused[/yellow]" if info.paused else ""
    page.add_row(info.name, f"{info.depth:,} messages{state}")
    page.add_row("", "")
    for name in ("ready", "in_flight", "scheduled", "consumers"):
        page.add_row(name.replace("_", " "), f"{getattr(info, name):,}")
    page.add_row("oldest", show_duration(info.oldest_age) if info.oldest_age else "-")
    for consumer, count in info.claimed.items():
        page.add_row("claimed", f"{count:,} by {consumer}")
    page.add_row("", "")
    for name in ("pushed", "delivered", "acked", "nacked", "expired", "dead_lettered"):
        page.add_row(name.replace("_", "-"), f"{getattr(info, name):,}")
    page.add_row("", "")
    for name in info.settings.__struct_fields__:
        page.add_row(name.replace("_", "-"), _setting(name, getattr(info.settings, name)))
    return page


def _setting(name: str, value: Any) -> str:
    if value is None:
        return "[dim]none[/dim]"
    if isinstance(value, bool):
        return "on" if value else "[dim]off[/dim]"
    if name in _DURATIONS:
        return show_duration(value)
    if name == "backoff":
        spread = f", {value.jitter:.0%} spread" if value.jitter else ""
        first, most = show_duration(value.initial), show_duration(value.max)
        return f"{first}, then {value.factor:g} times longer each time, up to {most}{spread}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def message_table(messages: "Sequence[PeekedMessage]") -> Table:
    """Messages as a peek shows them; dead letters with what went wrong."""
    letters = any(message.dead_letter is not None for message in messages)
    columns = ["id", "state", "priority", "attempts", "age", "body", *(["failed"] * letters)]
    table = plain_table(*columns, right=("priority", "attempts", "age"), wide=("body", "failed"))
    for message in messages:
        waited_s = (datetime.now(UTC) - message.created_at).total_seconds()
        row = [
            Text(message.id, style="dim", no_wrap=True),
            Text(state_of(message)),
            figure(message.priority),
            figure(message.attempts),
            age(max(waited_s, 0.001)),
            Text(preview(message.body)),
        ]
        if letters:
            letter = message.dead_letter
            row.append(Text(f"{letter.reason} (from {letter.source})" if letter else ""))
        table.add_row(*row)
    return table
