"""Tables for people: topics, and the life of messages as `nexo.events` tells it."""

from datetime import datetime
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from nexo.cli.durations import show_duration
from nexo.cli.tables import figure, plain_table
from nexo.server.sizes import show_size
from nexo.vocabulary.events import decode_event
from nexo.vocabulary.identity import priority_of
from nexo.vocabulary.limits import SEQUENCE_BITS
from nexo.vocabulary.states import EventKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nexo import TopicInfo, TopicSettings

_COLOURS = {
    EventKind.PUSHED: "cyan",
    EventKind.DELIVERED: "blue",
    EventKind.RECEIVED: "blue",
    EventKind.ACKED: "green",
    EventKind.NACKED: "yellow",
    EventKind.EXPIRED: "yellow",
    EventKind.DEAD_LETTERED: "red",
    EventKind.REDRIVEN: "magenta",
    EventKind.PURGED: "red",
}
_KIND_CHARS = max(map(len, EventKind))


def topic_table(infos: "Sequence[TopicInfo]") -> Table:
    figures = ("messages", "oldest", "next", "size")
    table = plain_table(
        "topic", *figures, "keeps", "bound queues", right=figures, wide=("topic", "bound queues")
    )
    for info in infos:
        table.add_row(
            info.name,
            figure(info.messages, "bold"),
            figure(info.start),
            figure(info.end),
            show_size(info.kept_bytes),
            keeps(info.settings),
            ", ".join(info.bound_queues),
        )
    return table


def topic_page(info: "TopicInfo") -> Table:
    """Everything about one topic."""
    page = Table.grid(padding=(0, 2))
    page.add_column(style="bold")
    page.add_row(info.name, f"{info.messages:,} messages, {show_size(info.kept_bytes)}")
    page.add_row("", "")
    page.add_row("oldest offset", f"{info.start:,}")
    page.add_row("next offset", f"{info.end:,}")
    page.add_row("keeps", keeps(info.settings))
    page.add_row("largest message", show_size(info.settings.max_message_bytes))
    page.add_row("bound queues", ", ".join(info.bound_queues) or "[dim]none[/dim]")
    return page


def keeps(settings: "TopicSettings") -> str:
    """The retention in words."""
    limits = []
    if settings.retention_messages is not None:
        limits.append(f"{settings.retention_messages:,} messages")
    if settings.retention_seconds is not None:
        limits.append(show_duration(settings.retention_seconds))
    if settings.retention_bytes is not None:
        limits.append(show_size(settings.retention_bytes))
    return ", ".join(limits) or "everything"


def life_line(body: bytes) -> Text:
    """One event of `nexo.events` on one line: when, what, where, which, and why."""
    event = decode_event(body)
    at = datetime.fromtimestamp(event.at_ms / 1000).astimezone()
    line = Text(at.strftime("%H:%M:%S.%f")[:-3], style="dim")
    line.append(f"  {event.kind:<{_KIND_CHARS}}", style=_COLOURS.get(event.kind, ""))
    line.append(f"  {event.queue}", style="bold")
    line.append(f"  {event.count:,}")
    line.append(f"  {_numbers(event.first_seq, event.count)}", style="dim")
    if event.attempts > 1:
        line.append(f"  attempt {event.attempts}", style="yellow")
    if event.consumer:
        line.append(f"  {event.consumer}", style="dim")
    if event.reason:
        line.append(f"  {' '.join(event.reason.split())}")
    return line


def _numbers(first_seq: int, count: int) -> str:
    """Which messages: their numbers in the lane, with its priority if it has one."""
    first = first_seq & ((1 << SEQUENCE_BITS) - 1)
    priority = priority_of(first_seq)
    lane = f"p{priority} " if priority else ""
    return f"{lane}#{first}" if count == 1 else f"{lane}#{first}-{first + count - 1}"
