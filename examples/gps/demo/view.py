"""The live view: a page in a terminal, lines elsewhere."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from rich.console import Group
from rich.layout import Layout
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from examples.gps import names
from examples.gps.demo import panels
from examples.gps.demo.lines import Lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import Console, RenderableType

    from examples.gps.demo.happenings import Happenings
    from examples.gps.demo.stage import Stage
    from examples.gps.demo.watch import Watch

LIVE, FINISHING = "live", "finishing"
ALERTS_SHOWN, LETTERS_SHOWN, HAPPENINGS_SHOWN = 10, 3, 6  # what fits in 30 lines
_HINTS = {
    LIVE: "Ctrl-C: finish and account",
    FINISHING: "Ctrl-C again: end at once",
}


class View:
    def __init__(
        self, stage: Stage, watch: Watch, happenings: Happenings, seconds: float, vehicles: int
    ) -> None:
        self._stage = stage
        self._watch = watch
        self._happenings = happenings
        self._seconds = seconds
        self._vehicles = vehicles
        self.phase = LIVE

    @contextlib.contextmanager
    def showing(self, console: Console) -> Iterator[Callable[[], None]]:
        """Gives what is to be called after each step."""
        if not console.is_terminal:
            lines = Lines(console, self._happenings)
            yield lambda: lines.tell(self._watch.course)
            return
        with Live(console=console, screen=True, auto_refresh=False) as live:
            yield lambda: live.update(self.page(), refresh=True)

    def page(self) -> Layout:
        course, look = self._watch.course, self._watch.course.last
        page = Layout()
        page.split_column(
            Layout(self._head(), size=1),
            Layout(name="in", size=7),
            Layout(name="work", size=7),
            Layout(name="told"),
            Layout(self._links(), size=3),
        )
        page["in"].split_row(
            Layout(_panel("Fleet", panels.doors(course)), ratio=9),
            Layout(_panel("Broker", panels.queues(course)), ratio=10),
        )
        page["work"].split_row(
            Layout(_panel("Spark", panels.spark(look)), ratio=11),
            Layout(_panel("Processes", panels.processes(self._stage.processes, look)), ratio=9),
        )
        told = Group(
            panels.dead_letters(look, LETTERS_SHOWN),
            Text(),
            panels.happenings(self._happenings.all, HAPPENINGS_SHOWN),
        )
        letters, retried = look.line(names.DEAD_ALERTS).depth, look.line(names.ALERTS).nacked
        handled = f"Alerts  {look.handled_total:,} handled, {retried:,} tries failed"
        page["told"].split_row(
            Layout(_panel(handled, panels.alerts(look, ALERTS_SHOWN))),
            Layout(_panel(f"Dead letters  {letters:,}, and what happened", told)),
        )
        return page

    def _head(self) -> RenderableType:
        elapsed_s = self._happenings.elapsed_s
        of = f" of {_clock(self._seconds)}" if self._seconds else ""
        colour = "green" if self.phase == LIVE else "yellow"
        head = Table.grid(expand=True)
        head.add_column()
        head.add_column(justify="right")
        head.add_row(
            Text.assemble(
                (" nexo demo ", "bold reverse"),
                f"  {_clock(elapsed_s)}{of}  ",
                ("● ", colour),
                (self.phase, colour),
                f"   {self._vehicles:,} vehicles, ",
                (f"{self._watch.course.total_rate():,.0f}", "bold"),
                " positions/s",
            ),
            Text(_HINTS.get(self.phase, ""), "dim"),
        )
        return head

    def _links(self) -> RenderableType:
        look, http = self._watch.course.last, self._stage.http
        pages = (
            ["console", "metrics", "health"] if self._watch.has_console else ["metrics", "health"]
        )
        ui = look.spark.ui if look.spark is not None else ""
        table = Table.grid(padding=(0, 2))
        table.add_column(style="dim", width=6, justify="right")
        table.add_column(no_wrap=True)
        table.add_row("broker", Text("  ".join(f"{http}/{page}" for page in pages), "cyan"))
        top = f"nexo top --url {self._stage.url}"
        table.add_row("", Text.assemble((top, "cyan"), ("   Spark  " if ui else "", "dim"), ui))
        table.add_row("lake", Text(str(self._stage.folder / "lake"), "cyan"))
        return table


def _panel(title: str, content: RenderableType) -> Panel:
    return Panel(content, title=title, title_align="left", border_style="dim", padding=(0, 1))


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"
