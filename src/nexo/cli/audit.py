"""`nexo audit`: who changed what, from a running broker or the log in a data directory."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from nexo.cli.session import Session, takes_session
from nexo.vocabulary.limits import LIST_PAGE_MAX


@takes_session
def audit(
    session: Session,
    data: Annotated[
        str | None,
        typer.Option(
            "--data", metavar="DIR", help="Read the log in this data directory, not the broker's."
        ),
    ] = None,
    limit: Annotated[int, typer.Option(metavar="N", min=1, help="Maximum number of entries.")] = 50,
) -> None:
    """Show the audit log: who changed what, newest first.

    \b
    Examples
      nexo audit
      nexo audit --data nexo-data
      nexo audit --limit 1000 --json | jq 'select(.outcome != "done")'
    """
    import msgspec

    from nexo.access.audit import read_audit
    from nexo.vocabulary.errors import InvalidArgument

    found: list[Any]
    if data is None:
        with session.client() as client:
            found = list(client.audit(min(limit, LIST_PAGE_MAX)))
    elif not Path(data).is_dir():
        raise InvalidArgument(f"the data directory {data} does not exist", "check --data")
    else:
        found = list(read_audit(Path(data), limit))
    if session.as_json:
        for entry in found:
            typer.echo(msgspec.json.encode(entry).decode())
        return
    if not found:
        typer.echo("No changes yet")
        return
    from rich.markup import escape

    from nexo.cli.tables import console, plain_table
    from nexo.server.logs import visible

    table = plain_table(
        "when", "who", "from", "action", "on", "outcome", wide=("from", "on", "outcome")
    )
    for entry in found:
        when = datetime.fromtimestamp(entry.at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
        where = f"{entry.door} {entry.peer}".strip()
        outcome = entry.outcome if entry.outcome == "done" else f"[red]{entry.outcome}[/red]"
        if entry.count > 1:
            outcome += f" ({entry.count:,} times)"
        # Names come from whoever was refused too: a terminal must not obey them.
        told = (entry.who, where, entry.action, entry.resource)
        table.add_row(when, *(escape(visible(each)) for each in told), outcome)
    console().print(table)
