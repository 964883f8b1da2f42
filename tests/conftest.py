"""What holds for every test: one seed for all that is drawn, printed so that it can be drawn again.

A run prints `hypothesis seed: N` in its header; `make test ARGS="--hypothesis-seed=N"` repeats it.
"""

from __future__ import annotations

import gc
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
# What each worker begins with. One does all of Spark, in one session; what is quick comes last,
# for whoever is done, so that none has a minute's work left when the others have ended.
BEGIN_WITH = (
    WITH_SPARK,
    ("docs", "cluster", "e2e", "packages", "examples"),
    ("simulation", "property", "tidy", "console"),
)
SPARK_TIMEOUT_S = 240  # a session takes seconds to start, and many more on a busy machine
NODES_TIMEOUT_S = 180  # so do PostgreSQL and nodes; and what they wait for may be a failover
TIMEOUTS_S = {**dict.fromkeys(WITH_SPARK, SPARK_TIMEOUT_S), "cluster": NODES_TIMEOUT_S}

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


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if _folder(item) in TIMEOUTS_S and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TIMEOUTS_S[_folder(item)]))
    items[:] = _in_shares(items, getattr(config, "workerinput", {}).get("workercount", 1))


def _folder(item: pytest.Item) -> str:
    return item.path.relative_to(HERE).parts[0] if item.path.is_relative_to(HERE) else ""


def _in_shares(items: list[pytest.Item], workers: int) -> list[pytest.Item]:
    """The tests in the order in which xdist deals them out: an equal run of them to each worker,
    which takes of another's last ones when it is done."""
    slow: list[list[pytest.Item]] = [[] for _ in range(workers)]
    quick: list[pytest.Item] = []
    numbers = {name: number for number, names in enumerate(BEGIN_WITH) for name in names}
    for item in items:
        number = numbers.get(_folder(item))
        (quick if number is None else slow[number % workers]).append(item)
    ordered: list[pytest.Item] = []
    for number, first in enumerate(slow):
        share = (len(items) - len(ordered)) // (workers - number)
        more = max(0, share - len(first))
        ordered += first + quick[:more]
        del quick[:more]
    return ordered + quick


def pytest_collection_finish() -> None:
    """Six thousand tests are 600,000 objects. A search for garbage need not look at them: it takes
    0.4 s each time, and the seeded worlds and the counts of memory search hundreds of times."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One session for all tests of a process: it takes seconds to start."""
    from nexo.spark import session
    from tests.spark.fast import FAST

    running = session("tests", "local[2]", FAST)
    yield running
    running.stop()
