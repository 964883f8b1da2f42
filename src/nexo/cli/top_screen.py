"""`nexo top` in a terminal: a list of queues that can be sorted, filtered and opened.

One task asks the broker, the screens show what it found last. The client comes back by itself when
the broker does, so all that is needed here is to say at once that it is away: the connection is
gone, or an answer takes longer than people wait without wondering.
"""

import asyncio
import contextlib
import signal
import time
from typing import TYPE_CHECKING, ClassVar

from rich.console import Group
from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.css.query import NoMatches
from textual.screen import Screen
from textual.widgets import Footer, Input, Static

from nexo.cli.tables import message_table, queue_page
from nexo.cli.top import FIRST_S, Look, Order
from nexo.cli.top_list import Headings, QueueList
from nexo.vocabulary.errors import NexoError, Timeout, Unreachable
from nexo.vocabulary.units import show_duration

if TYPE_CHECKING:
    from rich.console import RenderableType

    from nexo import AsyncClient, QueueInfo
    from nexo.cli.session import Session

TICK_S = 0.2  # how often it looks whether the connection is still there
ANSWER_S = 2.0  # an answer that takes longer is told of
MESSAGES_SHOWN = 20
_ORDERS = list(Order)


def watch(session: "Session", interval: float, order: Order) -> None:
    """Show it until somebody quits."""

    async def run() -> None:
        async with make_client(session) as client:
            app = TopApp(client, session.url, interval, order)
            loop = asyncio.get_running_loop()
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, app.exit)
            await app.run_async()

    asyncio.run(run())


def make_client(session: "Session") -> "AsyncClient":
    import nexo

    return nexo.AsyncClient(session.url, session.token, tls_ca=session.tls_ca)


def noun(number: int, singular: str) -> str:
    return f"{number:,} {singular}{'' if number == 1 else 's'}"


class TopApp(App[None]):
    """What is known of the broker, and the task that asks for it."""

    ENABLE_COMMAND_PALETTE = False
    TITLE = "nexo top"
    CSS = """
    Screen { layout: vertical; }
    #head { height: auto; }
    #away { height: auto; background: $error; color: $text; text-style: bold; display: none; }
    #away.on { display: block; }
    #filter { display: none; height: 1; border: none; padding: 0; }
    #empty { display: none; margin: 1 0; }
    #empty.on { display: block; }
    #status { height: auto; }
    #page { height: 1fr; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "Quit"),
        Binding("ctrl+c", "quit", show=False, priority=True),
    ]

    def __init__(
        self, client: "AsyncClient", url: str, interval: float, order: Order = Order.NAME
    ) -> None:
        super().__init__()
        self.client = client
        self.url = url
        self.look: Look | None = None
        self.trouble = ""  # why there are no new figures, if there are none
        self._interval = interval
        self._order = order
        self._since = time.monotonic()  # when the broker was last heard
        self._asked_at: float | None = None
        self._refusal = ""
        self._lost = asyncio.Event()  # a client that nobody calls does not come back

    def on_mount(self) -> None:
        self.push_screen(ListScreen(self._order))
        self.set_interval(TICK_S, self.check)
        self.run_worker(self._ask_for_ever(), exit_on_error=True)

    async def _ask_for_ever(self) -> None:
        pause = min(FIRST_S, self._interval)
        while True:
            self._asked_at = time.monotonic()
            try:
                infos = await self.client.queues()
            except (Unreachable, Timeout):
                continue  # the client tried for long; what is shown already says so
            except NexoError as error:
                self._refusal = f"{error.message}. {error.hint}".rstrip(". ")
            else:
                self._refusal = ""
                self.look = self.look.after(infos) if self.look is not None else Look(infos)
            self._since, self._asked_at = time.monotonic(), None
            self.check()
            self.show_look()
            self._lost.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._lost.wait(), pause)
            pause = self._interval

    def check(self) -> None:
        """Say that the broker is away as soon as it is known, and that it is back."""
        now = time.monotonic()
        silent_s = now - self._since
        is_late = self._asked_at is not None and now - self._asked_at > ANSWER_S
        trouble = self._refusal
        if not self.client.connected:
            self._lost.set()
        if not self.client.connected and (self.look is not None or silent_s > ANSWER_S):
            trouble = f"Broker away for {show_duration(int(silent_s) or 1)}, trying again"
        elif is_late:
            trouble = f"No answer for {show_duration(int(silent_s) or 1)}, waiting"
        if trouble != self.trouble:
            self.trouble = trouble
            self.show_look()

    def show_look(self) -> None:
        """Let the screen in front show what is known."""
        if isinstance(self.screen, TopScreen) and self.screen.is_ready:
            with contextlib.suppress(NoMatches):  # a screen that is going loses its parts first
                self.screen.show_look()


class TopScreen(Screen[None]):
    """What both screens have: a line at the top, and one that appears when something is wrong."""

    app: TopApp
    is_ready = False  # whether there is something to show it with

    def show_look(self) -> None:
        """Show what the app knows."""

    def show_trouble(self) -> None:
        away = self.query_one("#away", Static)
        away.set_class(bool(self.app.trouble), "on")
        old = ". The figures are from before." if self.app.look is not None else ""
        away.update(Text(f" {self.app.trouble}{old} "))


class ListScreen(TopScreen):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "filter", "Filter", key_display="/"),
        Binding("s", "sort", "Sort"),
        Binding("r", "turn", "Reverse"),
        Binding("escape", "clear", "All queues", key_display="esc"),
    ]

    def __init__(self, order: Order) -> None:
        super().__init__()
        self.queues = QueueList(order)

    def compose(self) -> ComposeResult:
        yield Static(id="head")
        yield Static(id="away")
        yield Input(placeholder="part of a name", id="filter", compact=True)
        yield Headings(self.queues)
        yield Static(id="empty")
        yield self.queues
        yield Static(id="status")
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        self.is_ready = True
        self.queues.focus()
        self.show_look()

    def on_screen_resume(self) -> None:
        if self.is_ready:
            self.show_look()

    def show_look(self) -> None:
        look = self.app.look
        self.show_trouble()
        self.queues.is_old = bool(self.app.trouble)
        self.queues.update(look)
        head = Text.assemble(("nexo top", "bold"), f"  {self.app.url}  ")
        if look is not None:
            infos = look.infos.values()
            depth = sum(info.depth for info in infos)
            head.append(f"{noun(len(infos), 'queue')}, {noun(depth, 'message')}", style="cyan")
        else:
            head.append("connecting" if not self.app.trouble else "", style="dim")
        self.query_one("#head", Static).update(head)
        self._show_empty()

    def _show_empty(self) -> None:
        empty, look = self.query_one("#empty", Static), self.app.look
        is_empty = look is not None and not self.queues.shown
        empty.set_class(is_empty, "on")
        if look is not None and look.infos:
            empty.update(Text(f"No queue has “{self.queues.text}” in its name. Esc shows all."))
        else:
            empty.update(Text("There are no queues yet. Make one: nexo queue create orders"))

    def on_queue_list_moved(self) -> None:
        """The chosen name whole, for lists where it is cut, and what lies beyond the window."""
        queues = self.queues
        told = [
            f"{number:,} more {where}"
            for number, where in ((queues.above, "above"), (queues.below, "below"))
            if number
        ]
        if queues.text:
            told.insert(0, f"{len(queues.shown):,} of {noun(len(queues.look.infos), 'queue')}")
        ending = "  ".join(told)
        space = self.size.width - len(ending) - 2
        name = queues.chosen
        # A name that leaves no room gets a line of its own.
        lead = name.ljust(space) if len(name) <= space else f"{name}\n"
        status = Text(lead, style="bold")
        self.query_one("#status", Static).update(status.append(f"  {ending}", style="bold yellow"))
        self.query_one(Headings).refresh()

    def on_queue_list_opened(self, event: QueueList.Opened) -> None:
        self.app.push_screen(QueueScreen(event.name))

    def on_headings_chosen(self, event: Headings.Chosen) -> None:
        if event.order is self.queues.order:
            self.action_turn()
        else:
            self._sort(event.order)

    def action_sort(self) -> None:
        self._sort(_ORDERS[(_ORDERS.index(self.queues.order) + 1) % len(_ORDERS)])

    def _sort(self, order: Order) -> None:
        self.queues.order, self.queues.turned = order, False
        self.queues.update()

    def action_turn(self) -> None:
        self.queues.turned = not self.queues.turned
        self.queues.update()

    def action_filter(self) -> None:
        field = self.query_one("#filter", Input)
        # Both at once, not with the next layout: who types "/quick" does not mean q, quit.
        field.display = True
        self.set_focus(field)

    def action_clear(self) -> None:
        field = self.query_one("#filter", Input)
        field.clear()
        field.display = False
        self.queues.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        self.queues.text = event.value.strip()
        self.queues.update()
        self._show_empty()

    def on_input_submitted(self) -> None:
        self.queues.focus()


class QueueScreen(TopScreen):
    """One queue: its figures, its first messages, its settings."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,backspace,left", "app.pop_screen", "Back", key_display="esc")
    ]

    def __init__(self, name: str) -> None:
        super().__init__()
        self._queue = name
        self._messages: RenderableType = Text("…", style="dim")

    def compose(self) -> ComposeResult:
        yield Static(id="head")
        yield Static(id="away")
        with VerticalScroll(id="page"):
            yield Static(id="queue")
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        self.is_ready = True
        self.query_one("#page").focus()
        self.show_look()

    def show_look(self) -> None:
        self.show_trouble()
        look = self.app.look
        info = look.infos.get(self._queue) if look is not None else None
        self.query_one("#head", Static).update(Text(self._queue, style="bold", overflow="fold"))
        page = self.query_one("#queue", Static)
        if look is None or info is None:
            page.update(Text("\nThis queue was deleted. Esc goes back to the list."))
            return
        if not self.app.trouble:
            self.run_worker(self._peek(), exclusive=True)
        page.update(
            Group(
                _summary(info, look.rates[self._queue]),
                self._messages,
                Text("\nAll figures, and the settings\n", style="dim"),
                queue_page(info),
            )
        )

    async def _peek(self) -> None:
        """What is next in line. It may be forbidden where figures are not."""
        with contextlib.suppress(Unreachable, Timeout):
            try:
                messages = await self.app.client.queue(self._queue).peek(MESSAGES_SHOWN)
            except NexoError as error:
                self._messages = Text(f"{error.message}", style="yellow")
            else:
                none = Text("No messages", style="dim")
                self._messages = message_table(messages) if messages else none


def _summary(info: "QueueInfo", rates: dict[str, float]) -> Text:
    """What is to be seen without scrolling."""
    oldest = show_duration(info.oldest_age) if info.oldest_age else "-"
    lines = (
        (("depth", f"{info.depth:,}"), ("in flight", f"{info.in_flight:,}"),
         ("delayed", f"{info.scheduled:,}"), ("oldest", oldest)),
        (("in/s", f"{rates['push_rate']:,.1f}"), ("out/s", f"{rates['deliver_rate']:,.1f}"),
         ("acks/s", f"{rates['ack_rate']:,.1f}"), ("consumers", f"{info.consumers:,}")),
    )  # fmt: skip
    text = Text()
    for line in lines:
        for name, value in line:
            space = " " * max(1, 19 - len(name) - len(value))
            text.append(f"{name} ", style="dim").append(value + space, style="bold")
        text.append("\n")
    return text
