"""The accounting, told: what became of everything, and whether that is all of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from examples.gps.accounting import Accounting

SHOWN_MAX = 5


def tell(console: Console, accounting: Accounting, kills: int) -> None:
    positions, alerts = accounting.positions, accounting.alerts
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold")
    table.add_row(
        "positions",
        f"{positions.confirmed:,} confirmed of {positions.sent:,} sent",
        f"{positions.in_lake:,} in the lake, {positions.waiting:,} waiting",
        _check(positions.holds),
    )
    table.add_row(
        "alerts",
        f"{alerts.pushed:,} pushed of {alerts.found:,} found",
        f"{alerts.acked:,} acked, {alerts.waiting:,} waiting, {alerts.dead_letters:,} dead",
        _check(alerts.holds),
    )
    console.print()
    console.print(table)
    _list(console, "confirmed, and nowhere", positions.lost)
    _list(console, "more than once in the lake", positions.doubled)
    _list(console, "in the lake, and never sent", positions.strays)
    _list(console, "alerts that nobody has", alerts.lost)
    survived = f", although {kills} processes were killed with -9" if kills > 1 else ""
    if kills == 1:
        survived = ", although a process was killed with -9"
    console.print()
    if accounting.holds:
        console.print(Text(f"Everything is accounted for{survived}.", "bold green"))
    else:
        console.print(Text("The accounting does not close.", "bold red"))


def _check(holds: bool) -> Text:
    return Text("✓", "bold green") if holds else Text("✗", "bold red")


def _list(console: Console, what: str, ids: Sequence[str]) -> None:
    if ids:
        more = " …" if len(ids) > SHOWN_MAX else ""
        shown = ", ".join(ids[:SHOWN_MAX])
        console.print(Text(f"  {len(ids):,} {what}: {shown}{more}", "red"))
