"""The live view: three curves in a terminal, or a line each second elsewhere."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from examples.peak_shaving.course import Course, Point

BARS = " ▁▂▃▄▅▆▇█"
WIDTH = 60
COLOURS = {"arrivals": "dark_orange", "departures": "dodger_blue2", "depth": "medium_purple"}


@contextlib.contextmanager
def showing(course: Course, seconds: float) -> Iterator[Callable[[], None]]:
    """Gives what is to be called after each sample."""
    console = Console()
    if not console.is_terminal:
        yield _lines(console, course)
        return
    with Live(console=console, auto_refresh=False) as live:
        yield lambda: live.update(_panel(course.points(), seconds), refresh=True)


def curve(values: Sequence[float], top: float, width: int = WIDTH) -> str:
    """Values as bars, each the highest of its share."""
    if not values or top <= 0:
        return ""
    shares = min(width, len(values))
    highest = (
        max(values[len(values) * n // shares : len(values) * (n + 1) // shares])
        for n in range(shares)
    )
    return "".join(BARS[min(8, round(8 * value / top))] for value in highest)


def _panel(points: Sequence[Point], seconds: float) -> Panel:
    table = Table.grid(padding=(0, 2))
    table.add_column(justify="left")
    table.add_column(width=WIDTH)
    table.add_column(justify="right", min_width=12)
    now = points[-1]
    width = max(1, min(WIDTH, round(WIDTH * now.at_s / seconds)))
    rate_max = max(max(point.arrivals, point.departures) for point in points)
    for name, unit in (("arrivals", "/s"), ("departures", "/s"), ("depth", "")):
        values = [getattr(point, name) for point in points]
        top = rate_max if unit else max(values)
        bars = Text(curve(values, top, width), COLOURS[name])
        table.add_row(Text(name, "bold"), bars, f"{values[-1]:,.0f}{unit}")
    return Panel(table, title=f"peak shaving  {now.at_s:.0f} of {seconds:.0f} s", expand=False)


def _lines(console: Console, course: Course) -> Callable[[], None]:
    told = 0

    def tell() -> None:
        nonlocal told
        point = course.points()[-1]
        if int(point.at_s) > told:
            told = int(point.at_s)
            console.print(
                f"{point.at_s:5.1f} s  in {point.arrivals:8,.0f}/s  "
                f"out {point.departures:8,.0f}/s  waiting {point.depth:9,}",
                highlight=False,
            )

    return tell
