"""One Spark session and one broker process for all tests of a process."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import nexo
from examples.gps import names
from nexo.spark import session
from tests.cli.commands import BrokerProcess
from tests.spark.fast import FAST

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from nexo import Client

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


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """Of each test its own: the fleet's queues have fixed names."""
    running = BrokerProcess(tmp_path).start()
    yield running
    running.kill()


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[Client]:
    with nexo.connect(broker.url) as connected:
        names.create(connected)
        yield connected
