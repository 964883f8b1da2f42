"""One Spark session and one broker process for all tests of a process. Each test has names and a
lake of its own."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

import nexo
from nexo.cli.main import run
from tests.cli.commands import BrokerProcess
from tests.pipeline.place import Place

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    running = BrokerProcess(tmp_path_factory.mktemp("broker")).start()
    yield running
    running.kill()


InSession = Callable[..., tuple[int, str, str]]


@pytest.fixture
def nexo_in_session(
    spark: SparkSession, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> InSession:
    """`nexo pipeline run` in the session of the tests, which it would stop at its end: status,
    output and errors."""

    def run_job(url: str, *arguments: str) -> tuple[int, str, str]:
        with monkeypatch.context() as patched:
            for name, value in (("NEXO_URL", url), ("NEXO_TOKEN", ""), ("NEXO_TLS_CA", "")):
                patched.setenv(name, value)  # what a job sets is as it was afterwards
            patched.setattr(type(spark), "stop", lambda _: None)
            status = run(["pipeline", "run", *arguments])
        said = capsys.readouterr()
        return status, said.out, said.err

    return run_job


@pytest.fixture
def place(broker: BrokerProcess, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    name = re.sub(r"[^A-Za-z0-9]+", "-", request.node.name.removeprefix("test_"))[:50]
    with nexo.connect(broker.url) as client:
        yield Place(broker.url, client, name, tmp_path)
