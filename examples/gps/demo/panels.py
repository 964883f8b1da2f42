"""The parts of the view, each a figure of one thing."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from examples.gps import names
from examples.gps.tally import PATHS, Total

if TYPE_CHECKING:
    from collections.abc import Sequence

    from examples.gps.demo.happenings import Happening
    from examples.gps.demo.look import Course, Look
    from examples.gps.demo.process import Process

BARS = " ▁▂▃▄▅▆▇█"
COLOURS = {"reckless": "red", "speeding": "dark_orange", "stopped": "dodger_blue2"}
DOORS = {"udp": "JSON/UDP", "sqs": "SQS/HTTP", "native": "native"}
CURVE_WIDTH, KEPT_WIDTH = 8, 30
STATES = {"starting": "yellow", "running": "green", "finishing": "yellow", "ended": "dim"}


def figure(number: float, style: str = "") -> Text:
    """A number; nothing to see stays in the background."""
    return Text(f"{number:,.0f}", style=style if number else "dim")


def curve(values: Sequence[float], width: int) -> str:
    """The last values as bars, the highest of them full."""
    shown = values[-width:]
    top = max(shown, default=0.0)
    if top <= 0:
        return ""
    return "".join(BARS[round(8 * value / top)] for value in shown)


def doors(course: Course) -> Table:
    table = _table("through", "sent", "confirmed", "/s", "", left=("",))
    for path in PATHS:
        total = course.last.totals.get(path, Total())
        rates = course.arrivals(path)
        missing = "yellow" if total.confirmed < total.sent - 80 else "green"
        table.add_row(
            DOORS[path],
            figure(total.sent),
            figure(total.confirmed, missing),
            figure(rates[-1], "bold"),
            Text(curve(rates[::2], CURVE_WIDTH), "green"),
        )
    return table


def queues(course: Course) -> Table:
    table = _table("queue", "depth", "flight", "later", "in/s", "out/s")
    for name in (names.POSITIONS, names.ALERTS, names.DEAD_ALERTS, names.BY_UDP):
        line, is_topic = course.last.line(name), name == names.BY_UDP
        named = Text.assemble(name, (" topic" if is_topic else "", "dim"))
        bad = "red" if name == names.DEAD_ALERTS else "bold"
        table.add_row(
            named,
            figure(line.depth, bad),
            Text("-", "dim") if is_topic else figure(line.in_flight, "cyan"),
            Text("-", "dim") if is_topic else figure(line.scheduled, "yellow"),
            figure(course.rate(name, "pushed"), "green"),
            Text("-", "dim") if is_topic else figure(course.rate(name, "acked"), "green"),
        )
    return table


def spark(look: Look) -> Group:
    return Group(_queries(look), Text(), _kept(look))


def _queries(look: Look) -> Table:
    table = _table("query", "batch", "rows", "took", "total", "late")
    found = look.spark.queries if look.spark is not None else {}
    for name, goes_to in (("positions", "→ lake"), ("windows", "→ alerts")):
        batch = found.get(name)
        title = Text.assemble(name, (f" {goes_to}", "dim"))
        if batch is None:
            table.add_row(title, *(Text("-", "dim") for _ in range(5)))
            continue
        table.add_row(
            title,
            figure(batch.number, "bold"),
            figure(batch.rows),
            Text(f"{batch.milliseconds / 1000:.1f} s"),
            figure(batch.rows_total, "green"),
            figure(batch.late_total, "yellow"),
        )
    return table


def _kept(look: Look) -> Text:
    """How much of what was confirmed is in the lake."""
    if not look.batches:
        return Text("Java and Spark start: the first batch takes a while", "dim")
    share = min(1.0, look.rows_kept / max(1, look.confirmed))
    full = round(KEPT_WIDTH * share)
    return Text.assemble(
        "in the lake ",
        ("█" * full, "green"),
        ("░" * (KEPT_WIDTH - full), "dim"),
        f" {share:.0%}",
    )


def processes(running: Sequence[Process], look: Look) -> Table:
    table = Table.grid(padding=(0, 2))
    for process in running:
        state, colour = ("up", "green") if process.is_running else ("down", "red")
        if process.code == 0:
            state, colour = "ended", "dim"
        if process.name == "spark" and process.is_running:
            is_its = look.spark is not None and look.spark.process == process.number
            state = look.spark.state if look.spark is not None and is_its else "starting"
            colour = STATES.get(state, "green")
        elif process.name == "broker" and process.is_running and not look.is_up:
            state, colour = "starting", "yellow"
        again = f"start {process.starts}" if process.starts > 1 else ""
        table.add_row(
            Text.assemble(("● ", colour), process.name),
            Text(state, colour),
            Text(f"{process.number}", "dim"),
            Text(again, "yellow"),
        )
    return table


def alerts(look: Look, count: int) -> Table:
    """The latest that were handled."""
    table = Table.grid(padding=(0, 2))
    for each in look.handled[:count]:
        at = datetime.fromtimestamp(each.at, UTC).astimezone().strftime("%H:%M:%S")
        again = Text(f"attempt {each.attempts}", "yellow") if each.attempts > 1 else Text("")
        table.add_row(Text(at, "dim"), *_alert(each.alert), again)
    if not look.handled:
        table.add_row(Text("the first windows are not over yet", "dim"))
    return table


def dead_letters(look: Look, count: int) -> Table:
    table = Table.grid(padding=(0, 2))
    for letter in look.dead_letters[:count]:
        kind, vehicle, _ = _alert(letter.alert)
        reason = Text(letter.reason, "red", no_wrap=True, overflow="ellipsis")
        table.add_row(kind, vehicle, reason)
    if not look.dead_letters:
        table.add_row(Text("none yet", "dim"))
    return table


def happenings(told: Sequence[Happening], count: int) -> Table:
    table = Table.grid(padding=(0, 1))
    table.add_column(justify="right", style="dim")
    for each in told[-count:]:
        table.add_row(f"{each.at_s:.0f} s", Text(each.what, "red" if each.is_bad else "green"))
    return table


def _alert(alert: dict[str, Any]) -> tuple[Text, Text, Text]:
    kind = alert["kind"]
    what = f"{alert.get('speed_kmh', 0):.0f} km/h"
    if kind == "stopped":
        what = f"{alert.get('stopped_s', 0):.0f} s"
    return Text(kind, COLOURS.get(kind, "")), Text(alert["vehicle"]), Text(what)


def _table(first: str, *others: str, left: Sequence[str] = ()) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    table.add_column(first, no_wrap=True)
    for name in others:
        table.add_column(name, justify="left" if name in left else "right", no_wrap=True)
    return table
