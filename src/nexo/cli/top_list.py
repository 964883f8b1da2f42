"""The list of queues in `nexo top`: a line each, drawn only where it is seen, so that ten thousand
queues cost what a screen of them does.

The name is always there. Where the window is narrow, columns that tell less are left out, and a
long name is cut in its middle: names that belong together begin alike, and end in `_dlq` or not.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding, BindingType
from textual.events import Click, Resize
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widget import Widget

from nexo.cli.top import Look, Order
from nexo.vocabulary.units import show_duration

if TYPE_CHECKING:
    from nexo import QueueInfo

NAME_CHARS_MIN = 26  # before a column is left out for longer names
COLUMNS_MIN = 3  # depth and rates: no name is worth more
_GAP = "  "
_PAUSED = " paused"


class Column:
    """A figure of a queue. `worth`: the least is the first to be left out."""

    def __init__(
        self,
        heading: tuple[str, str],
        chars: int,
        worth: int,
        order: Order | None,
        style: str,
        value: "Callable[[QueueInfo, dict[str, float]], float]",
        show: Callable[[float, int], str],
    ) -> None:
        self.heading = heading
        self.chars = chars
        self.worth = worth
        self.order = order
        self.style = style
        self.value = value
        self.show = show


def count(number: float, chars: int) -> str:
    """A number in at most so many characters: 1,234,567 or 12.3M."""
    text = f"{number:,.0f}"
    for unit in "kMGT":
        if len(text) <= chars:
            return text
        number /= 1000
        text = f"{number:.1f}{unit}"
    return text


def rate(number: float, chars: int) -> str:
    """As above; what is slower than one a second is not nothing."""
    return f"{number:.1f}" if 0.05 <= number < 1 else count(number, chars)


def age(seconds: float, chars: int) -> str:
    return show_duration(seconds) if seconds else "-"


COLUMNS: tuple[Column, ...] = (
    Column(("", "depth"), 9, 9, Order.DEPTH, "bold", lambda q, _: q.depth, count),
    Column(("in", "flight"), 7, 4, None, "cyan", lambda q, _: q.in_flight, count),
    Column(("", "delayed"), 7, 2, None, "", lambda q, _: q.scheduled, count),
    Column(("", "oldest"), 6, 6, Order.OLDEST, "", lambda q, _: q.oldest_age, age),
    Column(("", "in/s"), 6, 8, Order.RATE, "green", lambda _, r: r["push_rate"], rate),
    Column(("", "out/s"), 6, 1, Order.RATE, "green", lambda _, r: r["deliver_rate"], rate),
    Column(("", "acks/s"), 6, 7, Order.RATE, "green", lambda _, r: r["ack_rate"], rate),
    Column(("con-", "sumers"), 6, 3, Order.CONSUMERS, "", lambda q, _: q.consumers, count),
    Column(("dead", "letters"), 7, 5, Order.DEAD_LETTERS, "red", lambda q, _: q.dead_lettered,
           count),
)  # fmt: skip


def shortened(name: str, chars: int) -> str:
    """A name with its middle left out where it is too long."""
    if len(name) <= chars:
        return name
    ending = (chars - 1) // 2
    return f"{name[: chars - 1 - ending]}…{name[-ending:]}"


def _look_alike(names: Sequence[str], chars: int) -> bool:
    long = [name for name in names if len(name) > chars]
    return len({shortened(name, chars) for name in long}) < len(long)


class Layout:
    """Which columns fit, and what is left for names. Names that would look the same when they are
    cut get more room, as long as the columns that matter most stay."""

    def __init__(self, chars: int, names: Sequence[str]) -> None:
        name_chars = max(map(len, names), default=0)
        wanted = min(name_chars, NAME_CHARS_MIN)
        self.columns: tuple[Column, ...] = COLUMNS
        while self.columns and chars - self._taken() < wanted:
            self._leave_one_out()
        while len(self.columns) > COLUMNS_MIN and _look_alike(names, chars - self._taken()):
            self._leave_one_out()
        # Names wider than any are no use: figures stand beside what they belong to.
        self.name_chars = max(1, min(chars - self._taken(), max(name_chars, NAME_CHARS_MIN)))

    def _leave_one_out(self) -> None:
        least = min(self.columns, key=lambda each: each.worth)
        self.columns = tuple(each for each in self.columns if each is not least)

    def _taken(self) -> int:
        return sum(len(_GAP) + each.chars for each in self.columns)

    def column_at(self, x: int) -> Column | None:
        left = self.name_chars
        for column in self.columns:
            if left <= x < (left := left + len(_GAP) + column.chars):
                return column
        return None


class Headings(Widget):
    """The names of the columns, in two lines, with an arrow at the one that orders the list."""

    DEFAULT_CSS = "Headings { height: 2; }"

    class Chosen(Message):
        """Somebody clicked on a heading."""

        def __init__(self, order: Order) -> None:
            super().__init__()
            self.order = order

    def __init__(self, queues: "QueueList") -> None:
        super().__init__()
        self._queues = queues

    def render_line(self, y: int) -> Strip:
        layout, order = self._queues.layout_now, self._queues.order
        arrow = "↑" if (order is Order.NAME) != self._queues.turned else "↓"
        name = f"queue{arrow}" if order is Order.NAME else "queue"
        plain, bold = Style(), Style(bold=True)
        segments = [Segment(f"{name if y else '':<{layout.name_chars}}", bold)]
        is_marked = False
        for column in layout.columns:
            heading = column.heading[y]
            is_sorted = column.order is order and not is_marked
            if y and is_sorted:
                heading, is_marked = heading + arrow, True
            space = len(_GAP) + column.chars - len(heading)
            segments += [Segment(" " * space, plain), Segment(heading, bold)]
        return Strip(segments).adjust_cell_length(self.size.width, plain)

    def on_click(self, event: Click) -> None:
        if event.x < self._queues.layout_now.name_chars:
            self.post_message(self.Chosen(Order.NAME))
            return
        column = self._queues.layout_now.column_at(event.x)
        if column is not None and column.order is not None:
            self.post_message(self.Chosen(column.order))


class QueueList(ScrollView, can_focus=True):
    """The queues that the filter lets through, and the one that is chosen: it stays chosen where
    the order changes under it."""

    DEFAULT_CSS = """
    QueueList { height: 1fr; overflow-x: hidden; overflow-y: scroll; scrollbar-size-vertical: 1; }
    QueueList > .queues--cursor { background: $primary 50%; text-style: bold; }
    QueueList > .queues--paused { color: $warning; }
    """
    COMPONENT_CLASSES: ClassVar[set[str]] = {"queues--cursor", "queues--paused"}
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", show=False),
        Binding("down,j", "move(1)", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("pagedown", "page(1)", show=False),
        Binding("home", "move(-1000000)", show=False),
        Binding("end", "move(1000000)", show=False),
        Binding("enter", "open", "Open", key_display="enter"),
    ]

    class Opened(Message):
        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

    class Moved(Message):
        """Another queue is chosen, or others are seen."""

    def __init__(self, order: Order) -> None:
        super().__init__()
        self.order = order
        self.turned = False
        self.text = ""
        self.is_old = False  # whether the figures are from before the broker went away
        self.look = Look([])
        self.shown: list[QueueInfo] = []
        self.layout_now = Layout(80, ())
        self._chosen = ""  # while nobody chose one, the first line is it, whatever it shows

    @property
    def cursor(self) -> int:
        names = [info.name for info in self.shown]
        return names.index(self._chosen) if self._chosen in names else 0

    @property
    def chosen(self) -> str:
        return self.shown[self.cursor].name if self.shown else ""

    @property
    def above(self) -> int:
        return min(int(self.scroll_offset.y), len(self.shown))

    @property
    def below(self) -> int:
        return max(0, len(self.shown) - self.above - self.size.height)

    def update(self, look: Look | None = None) -> None:
        """Take new figures, or what the order and the filter are now."""
        was_seen = self._is_seen(self.cursor)
        self.look = look if look is not None else self.look
        self.shown = self.look.sorted(self.order, self.text, self.turned)
        self.virtual_size = Size(self.size.width, len(self.shown))
        self._fit()
        if was_seen:
            self._reveal()
        self.refresh()
        self.post_message(self.Moved())

    def render_line(self, y: int) -> Strip:
        number = y + int(self.scroll_offset.y)
        if number >= len(self.shown):
            return Strip.blank(self.size.width, self.rich_style)
        info, layout = self.shown[number], self.layout_now
        rates = self.look.rates[info.name]
        quiet = Style(dim=True)
        segments = self._name_of(info, layout.name_chars)
        for column in layout.columns:
            value = column.value(info, rates)
            text = column.show(value, column.chars).rjust(column.chars)
            segments.append(Segment(_GAP + text, Style.parse(column.style) if value else quiet))
        strip = Strip(segments).adjust_cell_length(self.size.width)
        if self.is_old:
            strip = strip.apply_style(quiet)
        here = number == self.cursor
        style = self.get_component_rich_style("queues--cursor") if here else self.rich_style
        return strip.apply_style(style)

    def _name_of(self, info: "QueueInfo", chars: int) -> list[Segment]:
        mark = _PAUSED if info.paused else ""
        name = shortened(info.name, max(1, chars - len(mark)))
        paused = self.get_component_rich_style("queues--paused", partial=True)
        space = " " * (chars - len(name) - len(mark))
        return [Segment(name), Segment(mark, paused), Segment(space)]

    def action_move(self, lines: int) -> None:
        if self.shown:
            wanted = min(max(self.cursor + lines, 0), len(self.shown) - 1)
            self._chosen = self.shown[wanted].name
            self._reveal()
            self.refresh()
            self.post_message(self.Moved())

    def action_page(self, pages: int) -> None:
        self.action_move(pages * max(1, self.size.height - 1))

    def action_open(self) -> None:
        if self.shown:
            self.post_message(self.Opened(self.chosen))

    def on_click(self, event: Click) -> None:
        number = event.y + int(self.scroll_offset.y)
        if number < len(self.shown):
            is_again = self.shown[number].name == self._chosen
            self.action_move(number - self.cursor)
            if is_again:
                self.action_open()

    def on_resize(self, event: Resize) -> None:
        self.update()

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        self.post_message(self.Moved())

    def _fit(self) -> None:
        names = [info.name + _PAUSED * info.paused for info in self.shown]
        self.layout_now = Layout(self.scrollable_content_region.width, names)

    def _is_seen(self, number: int) -> bool:
        return self.above <= number < self.above + max(1, self.size.height)

    def _reveal(self) -> None:
        cursor, top = self.cursor, self.above
        if cursor < top:
            self.scroll_to(y=cursor, animate=False)
        elif cursor >= top + (height := max(1, self.size.height)):  # none before it is laid out
            self.scroll_to(y=cursor - height + 1, animate=False)
