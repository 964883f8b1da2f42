"""`nexo sql`: statements on live queues, topics and the lake, without Spark."""

from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nexo.cli.session import Session, takes_session

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from nexo.query.statements import Statement

ROWS_SHOWN = 1_000
_GAP = 2
_COLUMNS_FEW = 4  # they fold well
_NARROWEST = 60


@takes_session
def sql(
    session: Session,
    statement: Annotated[
        str, typer.Argument(metavar="STATEMENT", help="SELECT statement.", show_default=False)
    ],
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the result to this file: .parquet or .csv."),
    ] = None,
    lake: Annotated[
        str | None,
        typer.Option(metavar="DIR", envvar="NEXO_LAKE", help="Location of the lake."),
    ] = None,
) -> None:
    """Query queues, topics and the lake with SQL. Messages stay in their queues.

    \b
    Examples
      nexo sql "SELECT reason, count(*) FROM orders_dlq GROUP BY ALL"
      nexo sql "SELECT * FROM topic('news') ORDER BY created_at DESC LIMIT 5"
      nexo sql "SELECT source, count(*) FROM lake('messages') GROUP BY ALL" --lake lake
      nexo sql "SELECT id, text FROM orders" --out orders.parquet

    A queue is a table with the columns id, body, text, priority, attempts,
    created_at, attributes, group_id, source, offset, state and reason, as
    it is at one moment. Put names with dots or dashes in double quotes. The
    SQL dialect is DuckDB's. Needs: pip install 'nexo-broker\\[sql]'.
    """
    from nexo.client.sql import running

    with session.client() as client, running(client, statement, lake) as run:
        if out is not None:
            from nexo.query.outputs import write

            rows = write(run, out)
            noun = "row" if rows == 1 else "rows"
            session.answer({"rows": rows, "file": str(out)}, f"Wrote {rows:,} {noun} to {out}")
        elif session.as_json:
            from nexo.query.outputs import rows_of

            session.document(list(rows_of(run)))
        else:
            _print(session, run)


def _print(session: Session, run: "Statement") -> None:
    from nexo.cli.tables import console, plain_table
    from nexo.query.outputs import rows_of

    rows = list(islice(rows_of(run), ROWS_SHOWN + 1))
    if not rows:
        session.line("No rows")
        return
    shown = [{name: _shown(value) for name, value in row.items()} for row in rows[:ROWS_SHOWN]]
    out = console()
    if _width(shown) > max(out.width, _NARROWEST) and len(shown[0]) > _COLUMNS_FEW:
        _print_records(out, shown)
    else:
        numbers = [name for name, value in rows[0].items() if isinstance(value, (int, float))]
        table = plain_table(*rows[0], right=numbers, wide=list(rows[0]))
        for row in shown:
            table.add_row(*row.values())
        out.print(table)
    if len(rows) > ROWS_SHOWN:
        session.line(f"Showing the first {ROWS_SHOWN:,} rows; --json and --out give all of them")


def _width(rows: "list[dict[str, Text]]") -> int:
    """How wide a table of these rows is, with nothing folded."""
    widths = [max(len(name), *(len(row[name]) for row in rows)) for name in rows[0]]
    return sum(widths) + _GAP * (len(widths) - 1)


def _print_records(out: "Console", rows: "list[dict[str, Text]]") -> None:
    """A column each line: where a table does not fit, columns of five characters help nobody."""
    from rich.table import Table
    from rich.text import Text

    for number, row in enumerate(rows, 1):
        out.print(Text(f"row {number:,}", style="bold"))
        record = Table.grid(padding=(0, _GAP))
        record.add_column(style="dim", no_wrap=True)
        record.add_column(overflow="fold")
        for name, value in row.items():
            record.add_row(Text(f"  {name}"), value)
        out.print(record)


def _shown(value: Any) -> "Text":
    from rich.text import Text

    from nexo.server.logs import visible

    if value is None:
        return Text("-", style="dim")
    if isinstance(value, dict):
        value = ", ".join(f"{name}={each}" for name, each in value.items())
    return Text(visible(str(value)))
