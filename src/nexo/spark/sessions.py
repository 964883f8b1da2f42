"""A Spark session in which everything is in place: Java, Python, the data source, quiet logs."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager
from functools import partial
from importlib import resources, util
from typing import TYPE_CHECKING, Any

from nexo.spark.java import java_home
from nexo.vocabulary.errors import NexoError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import SparkSession

LOCAL = "local[*]"
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
# For `config`, by those who wait for every query: none tells of its failure in the log too.
FAILURES_ARE_TOLD = "-Dnexo.queries.log=off"


def session(
    name: str = "nexo", master: str | None = None, config: Mapping[str, str] | None = None
) -> SparkSession:
    """A session on this machine, or on the cluster that `master` names (`spark://…`, `yarn`,
    `k8s://…`, or `sc://…` for Spark Connect). `config` goes before what is set here. The session
    that runs already is returned as it is, if there is one."""
    if util.find_spec("pyspark") is None:
        raise NexoError("Spark is not installed", 'pip install "nexo-broker[spark]"')
    from pyspark.sql import SparkSession

    asked = dict(config or {})
    master = master or asked.pop("spark.master", None) or os.environ.get("SPARK_MASTER") or LOCAL
    # The settings of builders before this one would stay: the class keeps one for all.
    builder = SparkSession.Builder().appName(name)
    if master.startswith("sc://"):
        return _with(builder.remote(master), asked).getOrCreate()
    prepare_environment(is_local=master.startswith("local"))
    asked[_JAVA_OPTIONS] = _with_quiet_logs(asked.get(_JAVA_OPTIONS, ""))
    settings = {**_defaults(master), **asked}
    return _with(builder.master(master), settings).getOrCreate()


@contextmanager
def java_in_its_own_group() -> Iterator[None]:
    """For as long as a session is started: a signal to the group of this process, such as Ctrl-C
    or that of a service manager, must not end Java before this process has ended its queries.
    When this process dies, Java follows, because it reads the end of a pipe."""
    from pyspark import java_gateway

    gateway: Any = java_gateway
    before = gateway.Popen
    gateway.Popen = partial(subprocess.Popen, process_group=0)
    try:
        yield
    finally:
        gateway.Popen = before


def java_exit_code(spark: Any, wait_s: float = 0.0) -> int | None:
    """The exit code of the Java that a session runs on, below 0 for a signal; None while it runs,
    or if it is none of ours. It may take a moment to die."""
    gateway = getattr(getattr(spark, "_sc", None), "_gateway", None)
    process: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    if process is None:
        return None
    try:
        return process.wait(wait_s)
    except subprocess.TimeoutExpired:
        return None


def prepare_environment(is_local: bool = True) -> None:
    """What Spark looks for in the environment; what is set there already stays."""
    os.environ["JAVA_HOME"] = java_home()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if is_local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")


def _defaults(master: str) -> dict[str, str]:
    settings = {
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.showConsoleProgress": "false",
    }
    if master.startswith("local"):
        # Two hundred tasks for each shuffle are meant for clusters.
        settings["spark.sql.shuffle.partitions"] = str(os.cpu_count() or 2)
    return settings


def _with_quiet_logs(options: str) -> str:
    if "log4j" in options:
        return options
    file = resources.files("nexo.spark") / "log4j2.properties"
    return f"{options} -Dlog4j2.configurationFile={file}".strip()


def _with(builder: SparkSession.Builder, settings: Mapping[str, str]) -> SparkSession.Builder:
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder
