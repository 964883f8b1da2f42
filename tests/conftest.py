"""What holds for every test: one seed for all that is drawn, printed so that it can be drawn again.

A run prints `hypothesis seed: N` in its header; `make test ARGS="--hypothesis-seed=N"` repeats it.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

# A broker loads it in a thread. Rewritten for pytest as it is loaded, it must be there before:
# Python 3.11 may fail when two threads take a module apart at once.
import nexo.doors.console.app  # noqa: F401

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from tests.postgresql import PostgresqlServer

HERE = Path(__file__).parent
WITH_SPARK = ("demo", "pipeline", "spark")
SPARK_TIMEOUT_S = 240  # a session takes seconds to start, and many more on a busy machine

# A loaded machine must not fail a test for being slow: the time limit of pytest watches for hangs.
settings.register_profile("nexo", deadline=None, print_blob=True)
settings.load_profile("nexo")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    # First, because hypothesis reads the option in this same hook.
    if config.option.hypothesis_seed is None:
        drawn = str(random.SystemRandom().randrange(2**32))
        given = getattr(config, "workerinput", {})  # a worker of xdist is told; it must not draw
        config.option.hypothesis_seed = given.get("hypothesis_seed", drawn)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Called by xdist for each worker: it hands on the command line, but not what we drew."""
    node.workerinput["hypothesis_seed"] = node.config.option.hypothesis_seed


def pytest_report_header(config: pytest.Config) -> str:
    seed = config.option.hypothesis_seed
    return f"hypothesis seed: {seed} (repeat: --hypothesis-seed={seed})"


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgresqlServer]:
    """A PostgreSQL that tests share; each takes a schema or a database of its own."""
    from tests.postgresql import postgresql_server  # this file alone is copied by a test

    with postgresql_server() as server:
        yield server


@pytest.fixture(scope="session", autouse=True)
def untraced() -> Iterator[None]:
    """OpenTelemetry is loaded by the tests of traces; the clients of all others leave it alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("nexo.client.tracing.look", lambda: None)
        yield


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    folders = [HERE / name for name in WITH_SPARK]
    for item in items:
        if item.path.parent in folders and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(SPARK_TIMEOUT_S))
    # The slow ones first. With two workers one does these, in one session of Spark, and the other
    # what is quick, so that neither has a minute's work left when the other is done.
    items.sort(key=lambda item: item.path.parent not in folders)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One session for all tests of a process: it takes seconds to start."""
    from nexo.spark import session
    from tests.spark.fast import FAST

    running = session("tests", "local[2]", FAST)
    yield running
    running.stop()
