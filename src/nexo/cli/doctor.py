"""`nexo doctor`: what this machine has, what is missing, and what to do about it."""

from typing import TYPE_CHECKING, Annotated

import typer

from nexo.cli.talk import Talk, talks

if TYPE_CHECKING:
    from nexo.cli.checkup import Finding

_MARKS = {"ok": "[green]✓[/green]", "note": "[cyan]·[/cyan]", "warning": "[yellow]![/yellow]"}
_BROKEN = "[red]✗[/red]"


@talks
def doctor(
    talk: Talk,
    data: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="Also audit this data directory: every page, checksum and record. The broker "
            "that uses it must be stopped; nothing is changed.",
        ),
    ] = None,
) -> None:
    """Check this machine and the broker, and say what to do.

    \b
    Examples
      nexo doctor
      nexo doctor --data nexo-data     with an audit of what is stored
      nexo doctor --json

    Looks at Python, SQLite, disk, clock, ports, broker, Java and Spark. Exits
    1 if something is broken; what is missing or slow is only a warning.
    """
    from nexo.cli.checkup import ERROR, Checkup

    findings = [found for check in Checkup(talk, data).checks() for found in check()]
    is_sound = all(each.status != ERROR for each in findings)
    if talk.as_json:
        talk.document({"sound": is_sound, "checks": [each.document() for each in findings]})
    else:
        _show(findings, is_sound)
    if not is_sound:
        raise typer.Exit(1)


def _show(findings: "list[Finding]", is_sound: bool) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    for each in findings:
        detail = escape(each.detail)
        if each.hint:
            detail += f"\n[dim]→ {escape(each.hint)}[/dim]"
        table.add_row(_MARKS.get(each.status, _BROKEN), f"[bold]{each.name}[/bold]", detail)
    console = Console(highlight=False)
    console.print(table)
    warnings = sum(each.status == "warning" for each in findings)
    if not is_sound:
        console.print("\n[red]Something is broken: see above.[/red]")
    elif warnings:
        count = "1 warning" if warnings == 1 else f"{warnings} warnings"
        console.print(f"\nNothing is broken; {count} above.")
    else:
        console.print("\nAll is well.")
