"""One Spark session and one broker process for all tests of a process. Each test has names and a
lake of its own."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import nexo
from nexo.spark import session
from tests.cli.commands import BrokerProcess
from tests.pipeline.place import Place
from tests.spark.fast import FAST

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


HERE = Path(__file__).parent
TIMEOUT_S = 240  # a session takes seconds to start, and many more on a busy machine


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == HERE and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TIMEOUT_S))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    running = session("tests", "local[2]", FAST)
    yield running
    running.stop()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    running = BrokerProcess(tmp_path_factory.mktemp("broker")).start()
    yield running
    running.kill()


@pytest.fixture
def place(broker: BrokerProcess, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    name = re.sub(r"[^A-Za-z0-9]+", "-", request.node.name.removeprefix("test_"))[:50]
    with nexo.connect(broker.url) as client:
        yield Place(broker.url, client, name, tmp_path)
