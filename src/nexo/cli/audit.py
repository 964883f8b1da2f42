"""`nexo audit`: who changed what, from the audit log in a data directory."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from nexo.cli.parameters import add_parameters, flag
from nexo.cli.session import Json


def _audit(
    json: dict[str, bool],
    data: Annotated[
        str, typer.Option("--data", metavar="DIR", help="The broker's data directory.")
    ] = "nexo-data",
    limit: Annotated[int, typer.Option(metavar="N", min=1, help="How many, at most.")] = 50,
) -> None:
    """Show who changed what: the newest first, while the broker runs or not.

    \b
    Examples
      nexo audit --data nexo-data
      nexo audit --limit 1000 --json | jq 'select(.outcome != "done")'
    """
    import msgspec

    from nexo.access.audit import read_audit
    from nexo.vocabulary.errors import InvalidArgument

    if not Path(data).is_dir():
        raise InvalidArgument(f"there is no data directory {data}", "check --data")
    found = read_audit(Path(data), limit)
    if json["json"]:
        for entry in found:
            typer.echo(msgspec.json.encode(entry).decode())
        return
    if not found:
        typer.echo("nothing was changed yet")
        return
    from rich.markup import escape

    from nexo.cli.tables import console, plain_table
    from nexo.server.logs import visible

    table = plain_table("when", "who", "from", "action", "on", "outcome", wide=("on",))
    for entry in found:
        when = datetime.fromtimestamp(entry.at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
        where = f"{entry.door} {entry.peer}"
        outcome = entry.outcome if entry.outcome == "done" else f"[red]{entry.outcome}[/red]"
        if entry.count > 1:
            outcome += f" ({entry.count:,} times)"
        # Names come from whoever was refused too: a terminal must not obey them.
        told = (entry.who, where, entry.action, entry.resource)
        table.add_row(when, *(escape(visible(each)) for each in told), outcome)
    console().print(table)


audit = add_parameters(_audit, [flag("json", Json, False)], lambda given: given)
audit.__name__ = "audit"
