"""`nexo pipeline`: jobs on Spark, and how they are doing."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command_from_info
from typer.models import CommandInfo

from nexo.cli import pipeline_jobs as jobs
from nexo.cli.group import command_group
from nexo.cli.pipeline_work import LakeFlag
from nexo.cli.talk import Talk, talks

if TYPE_CHECKING:
    from nexo.pipeline.status import Status

_RUN = """Run a job, one of these or a file of yours, until it is done or Ctrl-C.

\b
Examples
  nexo pipeline run archive --queue orders --lake lake
  nexo pipeline run insights --lake lake --once
  nexo pipeline run my_job.py -- --day 2026-05-31
  nexo pipeline run archive --queue orders --master spark://host:7077
"""


class Jobs(TyperGroup):
    """The jobs, and any file that holds one."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return super().get_command(ctx, cmd_name) or self._file_command(cmd_name)

    def _file_command(self, name: str) -> Any:
        from nexo.pipeline.jobs import is_file, unknown_job

        if not is_file(name):
            raise unknown_job(name)
        info = CommandInfo(name="FILE", cls=TyperCommand, callback=jobs.file_job(name))
        return get_command_from_info(info, pretty_exceptions_short=False, rich_markup_mode="rich")


app = command_group("pipeline", "Jobs on Spark: archive, insights, replay, redrive, compact.")
run = typer.Typer(name="run", help=_RUN, cls=Jobs)


@run.callback(invoke_without_command=True, help=_RUN, cls=Jobs)
def show_help(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


run.command()(jobs.archive)
run.command()(jobs.insights)
run.command()(jobs.replay)
run.command()(jobs.redrive)
run.command()(jobs.compact)
app.add_typer(run)


@app.command(name="list")
@talks
def show_jobs(talk: Talk) -> None:
    """Show the jobs that there are."""
    from nexo.pipeline.jobs import JOBS

    if talk.as_json:
        talk.document(JOBS)
        return
    from nexo.cli.tables import console, plain_table

    table = plain_table("job", "does", "reads", "writes", wide=("does", "reads", "writes"))
    for each in JOBS:
        table.add_row(each.name, each.does, each.reads, each.writes)
    console().print(table)


@app.command()
@talks
def status(talk: Talk, lake: LakeFlag = "nexo-lake") -> None:
    """Show how the jobs on a lake are doing: progress, speed, lag, the last error.

    \b
    Examples
      nexo pipeline status --lake lake
      nexo pipeline status --lake lake --json

    It asks neither broker nor Spark: each job keeps a small file in its lake.
    """
    from nexo.pipeline.lake import Lake
    from nexo.pipeline.status import read_statuses

    found = read_statuses(Lake(lake))
    if talk.as_json:
        talk.document(found)
    elif not found:
        talk.line(f"no job has run on {lake} yet")
    else:
        _show(found)


def _show(found: "list[Status]") -> None:
    from nexo.cli.durations import show_duration
    from nexo.cli.tables import console, plain_table

    figures = ("rows", "rows/s", "lag", "told")
    table = plain_table("job", "state", *figures, "error", right=figures, wide=("error",))
    now = datetime.now(UTC)
    for each in found:
        lag = "" if each.lag is None else f"{each.lag:,}"
        told = max(0.0, round((now - (each.updated_at or now)).total_seconds()))
        speed = f"{each.rows_per_second:,.0f}" if each.state == "running" else ""
        row = (f"{each.rows:,}", speed, lag, f"{show_duration(told)} ago", each.error)
        table.add_row(each.job, each.state, *row)
    console().print(table)
