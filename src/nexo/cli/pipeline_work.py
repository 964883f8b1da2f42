"""What every job of the pipeline takes on the command line, and how it is run and watched."""

import contextlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nexo.cli.parameters import add_parameters, flag, parse_duration
from nexo.cli.progress import progress_bar, show_rate
from nexo.cli.session import DEFAULT_URL, Ending, Json, Session, TlsCa, Token, Url
from nexo.vocabulary.errors import InvalidArgument, NexoError

if TYPE_CHECKING:
    from nexo.pipeline.job import JobRun
    from nexo.pipeline.lake import Lake
    from nexo.pipeline.status import Status, Teller

_PANEL = "Spark and the lake"
DEFAULT_LAKE = "nexo-lake"
JAVA_DIES_S = 5.0  # how long Java may take to be gone after its connections broke

LakeFlag = Annotated[
    str,
    typer.Option(
        "--lake",
        metavar="LAKE",
        envvar="NEXO_LAKE",
        help="Location of the lake: a folder, s3://…, gs://… or abfss://…",
        rich_help_panel=_PANEL,
    ),
]
StorageOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--storage-option",
        metavar="NAME=VALUE",
        help="Object store option, such as credentials; repeatable. Default: from the environment.",
        rich_help_panel=_PANEL,
    ),
]
_Checkpoint = Annotated[
    str | None,
    typer.Option(
        "--checkpoint",
        metavar="DIR",
        help="Spark checkpoint folder. Default: inside the lake, if the lake is a folder.",
        rich_help_panel=_PANEL,
    ),
]
_Master = Annotated[
    str | None,
    typer.Option(
        "--master",
        metavar="URL",
        help="Spark master: spark://host:7077, yarn, k8s://… Default: this machine.",
        rich_help_panel=_PANEL,
    ),
]
_Conf = Annotated[
    list[str] | None,
    typer.Option(
        "--conf",
        metavar="KEY=VALUE",
        help="Spark configuration setting; repeatable.",
        rich_help_panel=_PANEL,
    ),
]


_BrokerTimeout = Annotated[
    float | None,
    typer.Option(
        "--broker-timeout",
        metavar="DURATION",
        parser=parse_duration,
        help="How long to wait while the broker is unreachable. Default: 10m for streams, else 1m.",
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
        flag("broker_timeout", _BrokerTimeout),
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
        broker_timeout: float | None = None,
        **session: Any,
    ) -> None:
        self.session = Session(**session)
        self.checkpoint = checkpoint
        self._lake = lake
        self._storage_options = settings_of("--storage-option", storage_option)
        self._master = master
        self._conf = settings_of("--conf", conf)
        self._broker_timeout_s = broker_timeout

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
            "timeout": f"{self._broker_timeout_s}s" if self._broker_timeout_s else None,
        }
        return {name: value for name, value in given.items() if value}

    def spark_session(self, name: str) -> Any:
        from nexo.spark import session
        from nexo.spark.sessions import FAILURES_ARE_TOLD, java_in_its_own_group

        conf = dict(self._conf)
        options = "spark.driver.extraJavaOptions"
        conf[options] = f"{conf.get(options, '')} {FAILURES_ARE_TOLD}".strip()
        with java_in_its_own_group():
            return session(f"nexo {name}", self._master, conf)

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
        from nexo.pipeline.failures import SPARK_ERRORS
        from nexo.pipeline.job import JobRun
        from nexo.pipeline.status import Teller

        if asks_broker:
            self.session.require_broker()
        if lake is not None:
            from nexo.pipeline.delta import check_lake

            check_lake(lake)  # before anything is written into it
        with progress_bar(self.session, job) as bar:
            bar.show(0, "Starting Spark" if needs_spark else "")

            def show(told: "Status") -> None:
                lag = "" if told.lag is None else f"{told.lag:,} behind"
                bar.show(told.rows, f"{told.rows_per_second:,.0f} rows/s  {lag}")

            teller = Teller(job, lake, show)
            spark: Any = None
            with Ending() as ending:
                try:
                    spark = self.spark_session(job) if needs_spark else None
                    broker = self.broker()
                    work(JobRun(spark, broker, teller, should_stop=lambda: ending.is_near))
                    teller.tell("stopped" if ending.is_near else "finished")
                except (NexoError, *SPARK_ERRORS) as error:
                    failure = _failure(spark, error, ending)
                    if failure is None:
                        teller.tell("stopped")
                    else:
                        teller.tell("failed", str(failure))
                        raise failure from None
                finally:
                    _stop(spark)
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
        text = text or f"{status.job}: {show_rate(status.rows, seconds, 'row')}"
        self.session.answer(document, text)


def _failure(spark: Any, error: Exception, ending: Ending) -> NexoError | None:
    """What a failure was about; None if it comes from a stop that was asked for: a service manager
    may have told Java too."""
    from nexo.pipeline.failures import BROKEN_CONNECTION, explained, java_ended
    from nexo.spark.sessions import java_exit_code

    is_broken = isinstance(error, BROKEN_CONNECTION) or ending.is_near
    code = java_exit_code(spark, JAVA_DIES_S if is_broken else 0.0)
    if code is None:
        return explained(error)
    return None if ending.is_near else java_ended(code)


def _stop(spark: Any) -> None:
    """Also if its Java is gone."""
    from nexo.pipeline.failures import SPARK_ERRORS

    with contextlib.suppress(*SPARK_ERRORS):
        if spark is not None:
            spark.stop()


def run_file(work: Work, file: str, arguments: list[str]) -> int:
    """A user's job, as if Python ran it, in a session in which everything is in place. Its
    streaming queries are watched as those of our jobs are; a signal stops them calmly, and the
    file goes on to its end."""
    from nexo.pipeline.failures import BROKEN_CONNECTION, SPARK_ERRORS, is_ours
    from nexo.pipeline.status import Teller
    from nexo.pipeline.watch import Watch

    broker = work.broker()
    variables = {
        "NEXO_URL": "endpoint",
        "NEXO_TOKEN": "token",
        "NEXO_TLS_CA": "tlsCa",
        "NEXO_BROKER_TIMEOUT": "timeout",
    }
    os.environ.update({name: broker[key] for name, key in variables.items() if key in broker})
    teller = Teller(Path(file).name, work.lake_if_named())
    spark = work.spark_session(file)
    watch = Watch(spark, teller)
    teller.tell("running")
    status: int | None = None
    with Ending(watch.stop_soon) as ending:
        try:
            try:
                status = _as_python_does(file, arguments)
            finally:
                watch.work_ended()
        except KeyboardInterrupt:
            if not ending.is_near:
                raise
            status = status or 0
        except SPARK_ERRORS as error:
            is_broken = isinstance(error, BROKEN_CONNECTION)
            if not is_ours(error) and not is_broken and not ending.is_near:
                raise  # with its traceback: it is a program of the user's
            failure = _failure(spark, error, ending)
            if failure is not None:
                teller.tell("failed", str(failure))
                raise failure from None
            status = 0
        finally:
            with contextlib.suppress(*SPARK_ERRORS):  # the file may have stopped the session itself
                watch.close()
            _stop(spark)
            _tell_end(teller, status, ending)
    if work.session.is_watched:
        sys.stderr.write(f"{file}: {teller.seconds:.1f} s\n")
    return status


def _tell_end(teller: "Teller", status: int | None, ending: Ending) -> None:
    if status == 0:
        teller.tell("stopped" if ending.is_near else "finished")
    else:
        error = teller.status.error or ("it raised" if status is None else f"exit code {status}")
        teller.tell("failed", error)


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
            raise InvalidArgument(
                f"{name} {each!r:.80} is not KEY=VALUE", f"write {name} key=value"
            )
        settings[key.strip()] = value
    return settings
