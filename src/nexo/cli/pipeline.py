"""`nexo pipeline`: jobs on Spark with their own flags, what they say in the end, and how they are
doing."""

from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command_from_info
from typer.models import CommandInfo

from nexo.cli.parameters import (
    command_group,
    parse_duration,
    parse_file_size,
    parse_moment,
    queue_names,
)
from nexo.cli.pipeline_work import (
    LakeFlag,
    StorageOptions,
    Work,
    run_file,
    settings_of,
    works,
)
from nexo.cli.session import Session, takes_session
from nexo.vocabulary.errors import InvalidArgument
from nexo.vocabulary.units import Moment, count_of

if TYPE_CHECKING:
    from nexo.pipeline.status import Status

_RUN = """Run a built-in job or your own PySpark file, until it finishes or Ctrl-C.

\b
Examples
  nexo pipeline run archive --queue orders --lake lake
  nexo pipeline run insights --lake lake --once
  nexo pipeline run my_job.py -- --day 2026-05-31
  nexo pipeline run archive --queue orders --master spark://host:7077
"""

_Once = Annotated[bool, typer.Option("--once", help="Process what is available now, then stop.")]
_Every = Annotated[
    float,
    typer.Option(metavar="DURATION", parser=parse_duration, help="Time between micro-batches."),
]
_DataLoss = Annotated[
    bool,
    typer.Option(
        "--fail-on-data-loss/--allow-data-loss",
        help="Fail, or continue, if messages expired before the job read them.",
    ),
]
_BatchMessages = Annotated[
    int | None,
    typer.Option(
        metavar="N", min=1, help="Maximum messages per micro-batch. Default: follows --every."
    ),
]
_Where = Annotated[
    str | None,
    typer.Option(
        metavar="SQL", help="SQL condition on the message columns and text (the body as text)."
    ),
]
_ReplayId = Annotated[
    str | None,
    typer.Option(metavar="ID", help="Name of this replay. Default: made from the options."),
]
_Version = Annotated[
    int | None,
    typer.Option(
        metavar="N", min=0, help="Read this version of the Delta table. Default: the newest."
    ),
]
_DryRun = Annotated[bool, typer.Option("--dry-run", help="Count only; change nothing.")]


class Jobs(TyperGroup):
    """The jobs, and any file that holds one."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return super().get_command(ctx, cmd_name) or self._file_command(cmd_name)

    def _file_command(self, name: str) -> Any:
        from nexo.pipeline.job import is_file, unknown_job

        if not is_file(name):
            raise unknown_job(name)
        info = CommandInfo(name="FILE", cls=TyperCommand, callback=file_job(name))
        return get_command_from_info(info, pretty_exceptions_short=False, rich_markup_mode="rich")


app = command_group("pipeline", "Run Spark jobs: archive, insights, replay, redrive, compact.")
run = typer.Typer(name="run", help=_RUN, cls=Jobs)


@run.callback(invoke_without_command=True, help=_RUN, cls=Jobs)
def show_help(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def _moment(flag: str, help: str) -> Any:
    return typer.Option(flag, metavar="TIME", parser=parse_moment, help=help)


@run.command()
@works
def archive(
    work: Work,
    topic: Annotated[
        list[str] | None, typer.Option(metavar="TOPIC", help="Name of a topic; repeatable.")
    ] = None,
    topic_pattern: Annotated[
        list[str] | None,
        typer.Option(
            metavar="REGEX",
            help="Regular expression for topic names, also of topics created later; repeatable.",
        ),
    ] = None,
    queue: Annotated[
        list[str] | None,
        typer.Option(
            metavar="QUEUE",
            help="Name of a queue with the setting archive on; repeatable.",
            autocompletion=queue_names,
        ),
    ] = None,
    once: _Once = False,
    every: _Every = "10s",  # type: ignore[assignment]  # the parser reads it
    batch_messages: _BatchMessages = None,
    fail_on_data_loss: _DataLoss = True,
) -> None:
    """Copy topics, archived queues and events into the lake.

    \b
    Examples
      nexo pipeline run archive --queue orders --topic news --lake lake
      nexo pipeline run archive --topic-pattern 'shop\\..*' --lake s3://bucket/lake
      nexo pipeline run archive --once                   events only

    A queue needs its archive on: nexo queue edit orders --archive. Events are
    always included. If the job is killed, run it again: no message is lost or
    duplicated.
    """
    from nexo.pipeline.archive import Archive, run

    lake = work.lake()
    asked = Archive(
        topics=tuple(topic or ()),
        topic_patterns=tuple(topic_pattern or ()),
        queues=tuple(queue or ()),
        once=once,
        every_s=every,
        batch_messages=batch_messages,
        fail_on_data_loss=fail_on_data_loss,
        checkpoint=work.checkpoint,
    )
    status = work.do("archive", lambda job: run(job, lake, asked), lake=lake)
    work.answer(status)


@run.command()
@works
def insights(
    work: Work,
    once: _Once = False,
    every: _Every = "10s",  # type: ignore[assignment]  # the parser reads it
    watermark: Annotated[
        float,
        typer.Option(
            metavar="DURATION",
            parser=parse_duration,
            help="How late an event may arrive and still count.",
        ),
    ] = "10m",  # type: ignore[assignment]
    from_lake: Annotated[
        bool, typer.Option("--from-lake", help="Read the events from the lake, not the broker.")
    ] = False,
    day: Annotated[
        str | None,
        typer.Option(
            metavar="DAY", help="With --from-lake: one day, such as 2026-05-31 or yesterday."
        ),
    ] = None,
    batch_messages: _BatchMessages = None,
    fail_on_data_loss: _DataLoss = True,
) -> None:
    """Compute statistics per queue and minute from the events of the broker.

    \b
    Examples
      nexo pipeline run insights --lake lake
      nexo pipeline run insights --lake lake --once
      nexo pipeline run insights --lake lake --from-lake --day yesterday

    Writes the tables queue_minutes, dead_letters and consumers in LAKE/insights.
    """
    from nexo.pipeline.delta import check_lake
    from nexo.pipeline.insights import Insights, day_of, run
    from nexo.pipeline.tables import INSIGHTS_TABLES

    lake = work.lake()
    if day is not None and not from_lake:
        raise InvalidArgument("--day works with --from-lake only", "add --from-lake")
    try:
        chosen = day_of(day) if day is not None else None
    except ValueError:
        raise InvalidArgument(
            f"{day!r:.40} is not a day", "write 2026-05-31, today or yesterday"
        ) from None
    asked = Insights(
        once=once,
        every_s=every,
        watermark_s=watermark,
        batch_events=batch_messages,
        fail_on_data_loss=fail_on_data_loss,
        checkpoint=work.checkpoint,
        from_lake=from_lake,
        first_day=chosen,
        last_day=chosen,
    )
    check_lake(lake, INSIGHTS_TABLES)  # before Spark starts, and a status is written
    status = work.do(
        "insights", lambda job: run(job, lake, asked), lake=lake, asks_broker=not from_lake
    )
    work.answer(status)


@run.command()
@works
def replay(
    work: Work,
    source: Annotated[
        str,
        typer.Option(metavar="NAME", help="Topic or queue whose messages to read from the lake."),
    ],
    to_queue: Annotated[
        str | None,
        typer.Option(metavar="QUEUE", help="Queue to push to.", autocompletion=queue_names),
    ] = None,
    to_topic: Annotated[
        str | None, typer.Option(metavar="TOPIC", help="Topic to publish to.")
    ] = None,
    since: Annotated[Any, _moment("--from", "Only messages created at this time or later.")] = None,
    until: Annotated[Any, _moment("--until", "Only messages created before this time.")] = None,
    where: _Where = None,
    rate: Annotated[
        float | None, typer.Option(metavar="N", min=0.001, help="Maximum messages per second.")
    ] = None,
    replay_id: _ReplayId = None,
    version: _Version = None,
    as_of: Annotated[Any, _moment("--as-of", "Read the table as it was at this time.")] = None,
    dry_run: _DryRun = False,
) -> None:
    """Push messages from the lake to a queue or topic again.

    \b
    Examples
      nexo pipeline run replay --source orders --to-queue orders --from 2026-05-31
      nexo pipeline run replay --source orders --to-queue orders --from 2h --replay-id again
      nexo pipeline run replay --source orders --to-topic tests --dry-run \\
          --where "get_json_object(text, '$.total') > 100"

    A replay runs once. Run the same command again and it continues where it
    stopped; once finished, it adds nothing. Give another --replay-id to replay
    the messages again. A time such as 2h counts from the first run, and needs a
    --replay-id.
    """
    from nexo.pipeline.replay import Replay, run

    begin, end, table_time = _checked(since), _checked(until), _checked(as_of)
    asked = Replay(
        source=source,
        to_queue=to_queue,
        to_topic=to_topic,
        since=begin.at if begin else None,
        until=end.at if end else None,
        where=where,
        rate=rate,
        replay_id=replay_id,
        dry_run=dry_run,
        since_ago=begin.ago if begin else None,
        until_ago=end.ago if end else None,
        version=version,
        as_of=table_time.at if table_time else None,
    )
    lake = work.lake()
    asked.check()
    _check_target(work, to_queue, to_topic)
    found: dict[str, int] = defaultdict(int)
    work_on = None if dry_run else lake
    status = work.do("replay", lambda job: found.update(run(job, lake, asked)), lake=work_on)
    target = to_queue or to_topic
    added, matched = found["added"], count_of(found["matched"])
    text = f"Replay {asked.name}: added {added:,} of {matched} to {target}"
    if dry_run:
        text = f"Dry run: {matched} of {source} would be added to {target}"
    work.answer(status, text, replay_id=asked.name, dry_run=dry_run, **found)


def _check_target(work: Work, to_queue: str | None, to_topic: str | None) -> None:
    """Before Spark starts, which takes seconds, and minutes on a cluster."""
    with work.session.client() as client:
        if to_queue is not None:
            client.queue(to_queue).info()
        elif to_topic is not None:
            client.topic(to_topic).info()


@run.command()
@works
def redrive(
    work: Work,
    queue: Annotated[
        str,
        typer.Option(
            metavar="QUEUE", help="Name of the dead-letter queue.", autocompletion=queue_names
        ),
    ],
    to: Annotated[
        str | None,
        typer.Option(
            metavar="QUEUE",
            help="Target queue. Default: the queue that each message came from.",
            autocompletion=queue_names,
        ),
    ] = None,
    where: _Where = None,
    set_body: Annotated[
        str | None,
        typer.Option(metavar="SQL", help="SQL expression for the new body, on the same columns."),
    ] = None,
    dry_run: _DryRun = False,
) -> None:
    """Redrive dead letters, selected by SQL and repaired by SQL.

    \b
    Examples
      nexo pipeline run redrive --queue orders_dlq --where "text like '%42%'" --dry-run
      nexo pipeline run redrive --queue orders_dlq --set-body "replace(text, 'NaN', 'null')"
      nexo pipeline run redrive --queue orders_dlq \\
          --where "attributes['nexo.dead_letter.reason'] = 'no stock'"

    Messages that do not match stay where they are. If the job is killed, run it
    again: no message is lost or duplicated, since each moves in one commit
    together with its new body.
    """
    from nexo.pipeline.redrive import Redrive, run

    asked = Redrive(queue=queue, to=to, where=where, set_body=set_body, dry_run=dry_run)
    with work.session.client() as client:
        for name in (queue, to):
            if name is not None:
                client.queue(name).info()
    found: dict[str, int] = defaultdict(int)

    def do(job: Any) -> None:
        found.update(run(job, asked))

    status = work.do("redrive", do, lake=None if dry_run else work.lake_if_named())
    target = to or "their queues"
    matched = count_of(found["matched"])
    text = f"Moved {found['moved']:,} of {matched} from {queue} to {target}"
    if found["skipped"]:
        text += f"; {found['skipped']:,} without a source queue stay, name a target with --to"
    if found["missing"]:
        text += f"; {found['missing']:,} were taken by other consumers meanwhile"
    if dry_run:
        total = count_of(found["letters"])
        text = f"Dry run: {found['matched']:,} of {total} in {queue} would move to {target}"
    work.answer(status, text, dry_run=dry_run, **found)


@run.command()
@works
def compact(
    work: Work,
    target_bytes: Annotated[
        int,
        typer.Option(
            metavar="SIZE",
            parser=parse_file_size,
            help="Approximate target size of a file.",
            show_default="128MB",
        ),
    ] = 128 * 1024 * 1024,
    files_min: Annotated[
        int, typer.Option(metavar="N", min=2, help="Skip partitions with fewer files than this.")
    ] = 2,
    vacuum: Annotated[
        Any,
        typer.Option(
            metavar="AGE",
            parser=parse_duration,
            help="Also delete files used only by table versions older than this, such as 7d.",
        ),
    ] = None,
) -> None:
    """Merge the many small files of the lake into few large ones.

    \b
    Examples
      nexo pipeline run compact --lake lake
      nexo pipeline run compact --lake lake --files-min 10 --vacuum 7d

    Readers see each row exactly once at any moment. The archive job may keep
    running; while it runs it also compacts by itself.
    """
    from nexo.pipeline.compact import Compact, run

    lake = work.lake()
    vacuum_s = vacuum if isinstance(vacuum, float) else None
    asked = Compact(target_bytes=target_bytes, files_min=files_min, vacuum_s=vacuum_s)
    asked.check()
    found: dict[str, int] = defaultdict(int)

    def do(job: Any) -> None:
        found.update(run(job, lake, asked))

    status = work.do("compact", do, lake=lake, asks_broker=False, needs_spark=False)
    text = (
        f"Merged {count_of(found['files_before'], 'file')} in "
        f"{count_of(found['partitions'], 'partition')} into {found['files_after']:,}"
    )
    if vacuum_s is not None:
        text += f"; deleted {count_of(found['vacuumed'], 'old file')}"
    work.answer(status, text, **found)


def file_job(name: str) -> Callable[..., Any]:
    """The command of a user's file."""

    @works
    def file(
        work: Work,
        arguments: Annotated[
            list[str] | None, typer.Argument(metavar="[-- ARGS]", help="Arguments for your file.")
        ] = None,
    ) -> int:
        """Run your own PySpark file, with Java, Python and the Nexo connector set up."""
        return run_file(work, name, list(arguments or ()))

    return file


app.add_typer(run)


@app.command(name="list")
@takes_session
def show_jobs(session: Session) -> None:
    """List the built-in jobs."""
    from nexo.pipeline.job import JOBS

    if session.as_json:
        session.document(JOBS)
        return
    from nexo.cli.tables import console, plain_table

    table = plain_table("job", "does", "reads", "writes", wide=("does", "reads", "writes"))
    for each in JOBS:
        table.add_row(each.name, each.does, each.reads, each.writes)
    console().print(table)


@app.command()
@takes_session
def migrate(session: Session, lake: LakeFlag = "nexo-lake") -> None:
    """Convert a lake written by an older Nexo (Parquet folders) to Delta tables.

    \b
    Examples
      nexo pipeline migrate --lake lake

    Converts in place, without rewriting data files. Stop the jobs on the lake
    first. If it is interrupted, run it again.
    """
    from nexo.pipeline.lake import Lake
    from nexo.pipeline.migrate import run

    done = run(Lake(lake))
    tables, files = count_of(done.tables, "table"), count_of(done.files, "file")
    text = f"Converted {tables} with {files} to Delta"
    session.answer(done, text)


@app.command()
@takes_session
def status(
    session: Session, lake: LakeFlag = "nexo-lake", storage_option: StorageOptions = None
) -> None:
    """Show the status of the jobs on a lake: progress, speed, lag, last error.

    \b
    Examples
      nexo pipeline status --lake lake
      nexo pipeline status --lake lake --json

    Needs neither broker nor Spark: each job keeps a small status file in its
    lake.
    """
    from nexo.pipeline.lake import Lake
    from nexo.pipeline.status import read_statuses

    found = read_statuses(Lake(lake, settings_of("--storage-option", storage_option)))
    if session.as_json:
        session.document(found)
    elif not found:
        session.line(f"No job has run on {lake} yet")
    else:
        _show(found)


def _show(found: "list[Status]") -> None:
    from nexo.cli.tables import console, plain_table
    from nexo.vocabulary.units import show_duration

    figures = ("rows", "rows/s", "lag", "updated")
    table = plain_table("job", "state", *figures, "error", right=figures, wide=("error",))
    now = datetime.now(UTC)
    for each in found:
        lag = "" if each.lag is None else f"{each.lag:,}"
        told = max(0.0, round((now - (each.updated_at or now)).total_seconds()))
        speed = f"{each.rows_per_second:,.0f}" if each.state == "running" else ""
        row = (f"{each.rows:,}", speed, lag, f"{show_duration(told)} ago", each.error)
        table.add_row(each.job, each.state, *row)
    console().print(table)


def _checked(moment: Any) -> Moment | None:
    return moment if isinstance(moment, Moment) else None
