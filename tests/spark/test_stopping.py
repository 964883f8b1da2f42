"""A job that is told to stop ends calmly, and Java that is gone is called by its name."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]
from pyspark import java_gateway
from pyspark.errors import PySparkException

from nexo.cli.main import run
from nexo.cli.pipeline_work import Work, _failure
from nexo.cli.session import Ending
from nexo.pipeline.lake import Lake
from nexo.pipeline.status import read_statuses
from nexo.spark.sessions import java_exit_code, java_in_its_own_group
from tests.client.eventually import eventually
from tests.pipeline.process import LIMIT_S, Job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.spark.place import Place

FILE = """
import sys
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
rows = spark.readStream.format("nexo").option("queue", sys.argv[1]).load()
writing = rows.writeStream.format("noop").option("checkpointLocation", sys.argv[2])
writing.trigger(processingTime="100 milliseconds").start().awaitTermination()
print("went on to its end")
"""


def session_on(*command: str) -> Any:
    """What a session looks like whose Java is this program."""
    java = subprocess.Popen(command)
    return SimpleNamespace(_sc=SimpleNamespace(_gateway=SimpleNamespace(proc=java)))


def test_a_signal_to_the_whole_group_stops_a_file_calmly(place: Place) -> None:
    """As Ctrl-C and many service managers send it: Java must outlive the queries."""
    place.queue.push_batch(["a", "b"])
    file = place.directory / "job.py"
    file.write_text(FILE)
    lake = Lake(str(place.directory / "lake"))
    job = Job(
        place.directory,
        place.url,
        *(str(file), "--lake", lake.uri, "--"),
        *(place.queue.name, str(place.directory / "checkpoint")),
    )
    eventually(lambda: place.queue.info().acked == 2, LIMIT_S)
    os.killpg(job.process.pid, signal.SIGTERM)
    assert job.end() == 0, job.log()
    assert "went on to its end" in job.log()
    assert [each.state for each in read_statuses(lake)] == ["stopped"], job.log()


def test_java_has_a_group_of_its_own() -> None:
    gateway: Any = java_gateway
    with java_in_its_own_group():
        java = gateway.Popen(["sleep", "60"])
    try:
        assert os.getpgid(java.pid) == java.pid
        assert gateway.Popen is subprocess.Popen
    finally:
        java.kill()
        java.wait()


@pytest.mark.parametrize("error", [ConnectionRefusedError(), Py4JNetworkError("empty answer")])
def test_java_that_is_gone(error: Exception) -> None:
    killed = session_on("sh", "-c", "kill -9 $$")
    failure = _failure(killed, error, Ending())
    assert failure is not None
    assert "the Java process of Spark was killed by signal 9" in str(failure)
    ended = session_on("sh", "-c", "exit 3")
    assert "ended with exit code 3" in str(_failure(ended, error, Ending()))


def test_a_stop_that_was_asked_for_is_no_failure() -> None:
    near = Ending()
    near.is_near = True
    gone = session_on("true")
    assert _failure(gone, ConnectionRefusedError(), near) is None


def test_while_java_runs_an_error_is_told_as_it_is() -> None:
    running = session_on("sleep", "60")
    try:
        failure = _failure(running, PySparkException("no such column"), Ending())
        assert "no such column" in str(failure)
        assert java_exit_code(running) is None
        assert java_exit_code(None) is None, "a session of Spark Connect has no Java of ours"
    finally:
        running._sc._gateway.proc.kill()
        running._sc._gateway.proc.wait()


@pytest.mark.parametrize(
    ("arguments", "missing"),
    [
        (["replay", "--source", "s", "--to-queue", "nowhere"], "'nowhere'"),
        (["replay", "--source", "s", "--to-topic", "nowhere"], "'nowhere'"),
        (["redrive", "--queue", "nowhere"], "'nowhere'"),
    ],
)
def test_a_queue_that_is_not_there_is_told_before_spark_starts(
    place: Place,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    missing: str,
) -> None:
    def started(work: Work, name: str) -> Any:
        pytest.fail("Spark was started")

    monkeypatch.setattr(Work, "spark_session", started)
    flags = ["--url", place.url, "--lake", str(place.directory)]
    assert run(["pipeline", "run", *arguments, *flags]) == 1
    assert missing in capsys.readouterr().err


TOLD_TO_STOP = "import signal\nsignal.raise_signal(signal.SIGTERM)\n"


@pytest.mark.parametrize(
    ("file", "code"),
    [
        (TOLD_TO_STOP + "import time\ntime.sleep(60)", 0),
        (TOLD_TO_STOP + "import threading\nthreading.Event().wait(60)", 0),
        (TOLD_TO_STOP, 0),
        (TOLD_TO_STOP + "raise SystemExit(3)", 3),
    ],
)
def test_a_file_without_queries_is_interrupted(
    spark: SparkSession, place: Place, monkeypatch: pytest.MonkeyPatch, file: str, code: int
) -> None:
    """But not in what is done after it, and its own exit code stays."""
    monkeypatch.setattr(Work, "spark_session", lambda work, name: spark)
    monkeypatch.setattr("nexo.cli.pipeline_work._stop", lambda _: time.sleep(0.2))
    monkeypatch.setenv("NEXO_URL", "")
    job = place.directory / "job.py"
    job.write_text(file)
    lake = str(place.directory / "lake")
    began = time.monotonic()
    assert run(["pipeline", "run", str(job), "--url", place.url, "--lake", lake]) == code
    assert time.monotonic() - began < 30


def test_a_mistake_in_a_file_is_one_line(
    spark: SparkSession,
    place: Place,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Work, "spark_session", lambda work, name: spark)
    monkeypatch.setattr("nexo.cli.pipeline_work._stop", lambda _: None)
    for variable in ("NEXO_URL", "NEXO_BROKER_TIMEOUT"):
        monkeypatch.setenv(variable, "")  # what the command sets is gone after the test
    file = place.directory / "job.py"
    file.write_text(
        "from pyspark.sql import SparkSession\n"
        "reading = SparkSession.builder.getOrCreate().read.format('nexo')\n"
        "reading.option('subscribe', 'news').load()\n"
    )
    flags = ["--url", place.url, "--lake", str(place.directory), "--broker-timeout", "5s"]
    assert run(["pipeline", "run", str(file), *flags]) == 2
    assert os.environ["NEXO_BROKER_TIMEOUT"] == "5.0s"
    told = capsys.readouterr().err
    assert "no option 'subscribe': use topic" in told
    assert len(told.splitlines()) == 1, told


def test_the_unit_tells_the_command_alone() -> None:
    unit = Path(__file__).parents[2] / "ops/systemd/nexo-pipeline@.service"
    lines = [line for line in unit.read_text().splitlines() if "=" in line and line[0] != "#"]
    settings = dict(line.split("=", 1) for line in lines)
    assert settings["KillMode"] == "mixed"
    assert int(settings["TimeoutStopSec"]) > 30, "a micro-batch may take that long"
