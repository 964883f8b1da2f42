"""What every job of the pipeline takes on the command line, and how it is run and watched."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nexo.cli.parameters import add_parameters, flag
from nexo.cli.progress import progress_bar, show_rate
from nexo.cli.session import DEFAULT_URL, Json, Session, TlsCa, Token, Url
from nexo.cli.signals import Ending
from nexo.vocabulary.errors import InvalidArgument, NexoError

if TYPE_CHECKING:
    from nexo.pipeline.job import JobRun
    from nexo.pipeline.lake import Lake
    from nexo.pipeline.status import Status

_PANEL = "Spark and the lake"
DEFAULT_LAKE = "nexo-lake"

LakeFlag = Annotated[
    str,
    typer.Option(
        "--lake",
        metavar="LAKE",
        envvar="NEXO_LAKE",
        help="The lake: a folder, s3://…, gs://… or abfss://…",
        rich_help_panel=_PANEL,
    ),
]
StorageOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--storage-option",
        metavar="NAME=VALUE",
        help="A setting of the object store, else from the environment; may be given often.",
        rich_help_panel=_PANEL,
    ),
]
_Checkpoint = Annotated[
    str | None,
    typer.Option(
        "--checkpoint",
        metavar="DIR",
        help="Where Spark keeps its state; by default in the lake, if that is a folder.",
        rich_help_panel=_PANEL,
    ),
]
_Master = Annotated[
    str | None,
    typer.Option(
        "--master",
        metavar="URL",
        help="The cluster: spark://host:7077, yarn, k8s://…; by default this machine.",
        rich_help_panel=_PANEL,
    ),
]
_Conf = Annotated[
    list[str] | None,
    typer.Option(
        "--conf",
        metavar="KEY=VALUE",
        help="A setting of Spark; may be given often.",
        rich_help_panel=_PANEL,
    ),
]


def works(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the flags that every job has; its first parameter becomes the work."""
    added = [
        flag("lake", LakeFlag, DEFAULT_LAKE),
        flag("storage_option", StorageOptions),
        flag("checkpoint", _Checkpoint),
        flag("master", _Master),
        flag("conf", _Conf),
        flag("url", Url, DEFAULT_URL),
        flag("token", Token),
        flag("tls_ca", TlsCa),
        flag("json", Json, False),
    ]
    return add_parameters(function, added, lambda given: Work(**given))


class Work:
    """One run of a job."""

    def __init__(
        self,
        lake: str,
        storage_option: list[str] | None,
        checkpoint: str | None,
        master: str | None,
        conf: list[str] | None,
        **session: Any,
    ) -> None:
        self.session = Session(**session)
        self.checkpoint = checkpoint
        self._lake = lake
        self._storage_options = settings_of("--storage-option", storage_option)
        self._master = master
        self._conf = settings_of("--conf", conf)

    def lake(self) -> "Lake":
        from nexo.pipeline.lake import Lake

        return Lake(self._lake, self._storage_options)

    def lake_if_named(self) -> "Lake | None":
        """For jobs that need none: their status goes where `pipeline status` will look."""
        is_named = self._lake != DEFAULT_LAKE or Path(DEFAULT_LAKE).is_dir()
        return self.lake() if is_named else None

    def broker(self) -> dict[str, str]:
        """The options of the data source that say where the broker is and who asks."""
        given = {
            "endpoint": self.session.url,
            "token": self.session.token,
            "tlsCa": self.session.tls_ca,
        }
        return {name: value for name, value in given.items() if value}

    def spark_session(self, name: str) -> Any:
        from nexo.spark import session

        return session(f"nexo {name}", self._master, self._conf)

    def do(
        self,
        job: str,
        work: Callable[["JobRun"], None],
        *,
        lake: "Lake | None" = None,
        asks_broker: bool = True,
        needs_spark: bool = True,
    ) -> "Status":
        """Run a job while its progress is shown; says how it ended."""
        from nexo.pipeline.failures import SPARK_ERRORS, explained
        from nexo.pipeline.job import JobRun
        from nexo.pipeline.status import Teller

        if asks_broker:
            self.session.require_broker()
        if lake is not None:
            from nexo.pipeline.delta import check_lake

            check_lake(lake)  # before anything is written into it
        with progress_bar(self.session, job) as bar:
            bar.show(0, "starting Spark" if needs_spark else "")

            def show(told: "Status") -> None:
                lag = "" if told.lag is None else f"{told.lag:,} behind"
                bar.show(told.rows, f"{told.rows_per_second:,.0f} rows/s  {lag}")

            teller = Teller(job, lake, show)
            spark: Any = None
            try:
                spark = self.spark_session(job) if needs_spark else None
                with Ending() as ending:
                    job_run = JobRun(
                        spark, self.broker(), teller, should_stop=lambda: ending.is_near
                    )
                    work(job_run)
                    teller.tell("stopped" if ending.is_near else "finished")
            except (NexoError, *SPARK_ERRORS) as error:
                failure = explained(error)
                teller.tell("failed", str(failure))
                raise failure from None
            finally:
                if spark is not None:
                    spark.stop()
        return teller.status

    def answer(self, status: "Status", text: str = "", **more: Any) -> None:
        """How it ended, for programs and for people."""
        assert status.started_at is not None
        assert status.updated_at is not None
        seconds = (status.updated_at - status.started_at).total_seconds()
        document = {
            "job": status.job,
            "state": status.state,
            "rows": status.rows,
            "seconds": round(seconds, 3),
            "sources": {name: part.rows for name, part in status.sources.items()},
            **more,
        }
        text = text or f"{status.job}: {show_rate(status.rows, seconds)}"
        self.session.answer(document, text)


def run_file(work: Work, file: str, arguments: list[str]) -> int:
    """A user's job, as if Python ran it, in a session in which everything is in place. Its
    streaming queries are watched as those of our jobs are."""
    import contextlib
    import os

    from nexo.pipeline.failures import SPARK_ERRORS
    from nexo.pipeline.status import Teller
    from nexo.pipeline.watch import Watch

    broker = work.broker()
    variables = {"NEXO_URL": "endpoint", "NEXO_TOKEN": "token", "NEXO_TLS_CA": "tlsCa"}
    os.environ.update({name: broker[key] for name, key in variables.items() if key in broker})
    teller = Teller(Path(file).name, work.lake_if_named())
    spark = work.spark_session(file)
    watch = Watch(spark, teller)
    teller.tell("running")
    status = None
    try:
        status = _as_python_does(file, arguments)
    finally:
        with contextlib.suppress(*SPARK_ERRORS):  # the file may have stopped the session itself
            watch.close()
        spark.stop()
        error = "it raised" if status is None else f"exit code {status}"
        teller.tell(*(("finished",) if status == 0 else ("failed", error)))
    if work.session.is_watched:
        sys.stderr.write(f"{file}: {teller.seconds:.1f} s\n")
    return status


def _as_python_does(file: str, arguments: list[str]) -> int:
    """Its exit code. What lies next to the file can be imported."""
    import runpy

    before = sys.argv
    sys.argv = [file, *arguments]
    sys.path.insert(0, str(Path(file).resolve().parent))
    try:
        runpy.run_path(file, run_name="__main__")
        return 0
    except SystemExit as end:
        if isinstance(end.code, str):
            sys.stderr.write(f"{end.code}\n")
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    finally:
        sys.argv = before
        del sys.path[0]


def settings_of(name: str, given: list[str] | None) -> dict[str, str]:
    """What was given as KEY=VALUE, often."""
    settings = {}
    for each in given or ():
        key, sign, value = each.partition("=")
        if not sign or not key.strip():
            raise InvalidArgument(f"{name} {each!r:.80} is no setting", "write KEY=VALUE")
        settings[key.strip()] = value
    return settings
