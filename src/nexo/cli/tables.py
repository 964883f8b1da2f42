"""Tables for people: queues with their settings, messages, topics, and the life of messages as
`nexo.events` tells it."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from rich import box
from rich.console import Console, Group
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from nexo.cli.messages import preview, state_of
from nexo.vocabulary.events import decode_event
from nexo.vocabulary.identity import priority_of
from nexo.vocabulary.limits import SEQUENCE_BITS
from nexo.vocabulary.settings import QUEUE_SETTINGS
from nexo.vocabulary.states import EventKind
from nexo.vocabulary.units import count_of, show_duration, show_size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nexo import PeekedMessage, QueueInfo, TopicInfo, TopicSettings

_DURATIONS = frozenset(each.name for each in QUEUE_SETTINGS if each.kind == "duration")
_SIZES = frozenset(each.name for each in QUEUE_SETTINGS if each.kind == "size")

_COLOURS = {
    EventKind.PUSHED: "cyan",
    EventKind.DELIVERED: "blue",
    EventKind.RECEIVED: "blue",
    EventKind.ACKED: "green",
    EventKind.NACKED: "yellow",
    EventKind.TIMED_OUT: "yellow",
    EventKind.EXPIRED: "yellow",
    EventKind.DEAD_LETTERED: "red",
    EventKind.REDRIVEN: "magenta",
    EventKind.PURGED: "red",
}
_WIDE_COLUMNS = 110
_KIND_CHARS = max(map(len, EventKind))


def console() -> Console:
    return Console(highlight=False)


def plain_table(*columns: str, right: "Sequence[str]" = (), wide: "Sequence[str]" = ()) -> Table:
    """A table without walls: it stays readable in a log and in an e-mail. Where the window is
    narrow, the wide columns give way to the others."""
    table = Table(
        box=box.SIMPLE_HEAD,
        header_style="bold",
        pad_edge=False,
        show_edge=False,
        collapse_padding=True,
    )
    for column in columns:
        justify: Literal["right", "left"] = "right" if column in right else "left"
        table.add_column(
            column,
            justify=justify,
            no_wrap=column not in wide,
            overflow="fold" if column in wide else "ellipsis",  # names and reasons stay whole
            min_width=max(map(len, column.split("\n"))),
        )
    return table


def figure(number: float, style: str = "") -> Text:
    """A number; nothing to see stays in the background."""
    return Text(f"{number:,.0f}", style=style if number else "dim")


def queue_table(infos: "Sequence[QueueInfo]") -> Table:
    figures = (
        "\ndepth",
        "\nready",
        "in\nflight",
        "\ndelayed",
        "\noldest",
        "con-\nsumers",
        "dead\nletters",
    )
    table = plain_table("\nqueue", *figures, right=figures, wide=("\nqueue",))
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
    page.add_row(info.name, f"{count_of(info.depth)}{state}")
    page.add_row("", "")
    for name in ("ready", "in_flight", "scheduled", "consumers"):
        page.add_row(name.replace("_", " "), f"{getattr(info, name):,}")
    if info.unreadable:
        page.add_row("[red]unreadable[/red]", f"{info.unreadable:,}  see nexo doctor")
    page.add_row("oldest", show_duration(info.oldest_age) if info.oldest_age else "-")
    for consumer, count in info.claimed.items():
        if count:
            held_for = show_duration(round(info.claimed_age.get(consumer, 0.0)))
            page.add_row("claimed", f"{count:,} for {held_for} by the Spark consumer {consumer}")
            command = f"nexo queue release {info.name} --consumer {consumer}"
            page.add_row("", f"[dim]if its query is gone: {command}[/dim]")
    page.add_row("", "")
    for name in ("pushed", "delivered", "acked", "nacked", "timed_out", "expired", "dead_lettered"):
        page.add_row(name.replace("_", "-"), f"{getattr(info, name):,}")
    page.add_row("", "")
    for name in info.settings.__struct_fields__:
        page.add_row(name.replace("_", "-"), _setting(name, getattr(info.settings, name)))
    return page


def _setting(name: str, value: Any) -> str:
    if value is None or value == {}:
        return "[dim]none[/dim]"
    if name in _SIZES:
        return show_size(value)
    if isinstance(value, dict):
        return escape(", ".join(f"{each}={text}" for each, text in value.items()))
    if isinstance(value, bool):
        return "on" if value else "[dim]off[/dim]"
    if name in _DURATIONS:
        return show_duration(value)
    if name == "backoff":
        spread = f", {value.jitter:.0%} jitter" if value.jitter else ""
        first, most = show_duration(value.initial), show_duration(value.max)
        return f"{first}, times {value.factor:g} after each failure, at most {most}{spread}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def message_table(messages: "Sequence[PeekedMessage]") -> Table:
    """Messages as a peek shows them."""
    if any(message.dead_letter is not None for message in messages):
        return _dead_letter_table(messages)
    figures = ("priority", "attempts", "age")
    table = plain_table("id", "state", *figures, "body", right=figures, wide=("body",))
    for message in messages:
        table.add_row(
            _one_line(_short(message.id), "dim"),
            state_of(message),
            figure(message.priority),
            figure(message.attempts),
            _since(message.created_at),
            _one_line(preview(message.body)),
        )
    return table


def _dead_letter_table(messages: "Sequence[PeekedMessage]") -> Table:
    """Dead letters with what went wrong, in whole: below each of them, since reasons are longer
    than columns."""
    table = plain_table(
        "id", "age", "attempts", "from", "body and reason", right=("age", "attempts"),
        wide=("from", "body and reason"),
    )  # fmt: skip
    for message in messages:
        letter = message.dead_letter
        table.add_row(
            _one_line(_short(message.id), "dim"),
            _since(message.created_at),
            figure(letter.attempts if letter else message.attempts),
            Text(letter.source if letter else "", overflow="fold"),
            Group(
                _one_line(preview(message.body)),
                Text(" ".join(letter.reason.split()) if letter else "", "red", overflow="fold"),
            ),
        )
    return table


def _short(message_id: str) -> str:
    """In a narrow window ids give way: those of one queue differ at their end."""
    return message_id if console().width >= _WIDE_COLUMNS else f"…{message_id[-12:]}"


def _since(moment: datetime) -> Text:
    return age(max((datetime.now(UTC) - moment).total_seconds(), 0.001))


def _one_line(text: str, style: str = "") -> Text:
    return Text(text, style=style, no_wrap=True, overflow="ellipsis")


def topic_table(infos: "Sequence[TopicInfo]") -> Table:
    figures = ("messages", "oldest", "next", "size")
    table = plain_table(
        "topic",
        *figures,
        "retention",
        "bound queues",
        right=figures,
        wide=("topic", "bound queues"),
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
    page.add_row(info.name, f"{count_of(info.messages)}, {show_size(info.kept_bytes)}")
    page.add_row("", "")
    page.add_row("oldest offset", f"{info.start:,}")
    page.add_row("next offset", f"{info.end:,}")
    page.add_row("retention", keeps(info.settings))
    page.add_row("largest message", show_size(info.settings.max_message_bytes))
    page.add_row("bound queues", ", ".join(info.bound_queues) or "[dim]none[/dim]")
    return page


def keeps(settings: "TopicSettings") -> str:
    """The retention in words."""
    limits = []
    if settings.retention_messages is not None:
        limits.append(count_of(settings.retention_messages))
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
