"""One Spark session and one broker for all tests of a process: a session takes seconds to start.
Each test has queues and folders of its own."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from nexo.testing import broker as testing_broker
from tests.spark.place import Place

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from nexo import Client
    from nexo.testing import Broker


_KILLS = re.compile(r"test_kill\.py::test_(\w+)\[(?:(\w+)-)?\d+\]$")  # those of the soak


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What the soak came to: what was killed where, and how often all was there exactly once."""
    runs: dict[str, list[pytest.TestReport]] = {}
    for outcome in ("passed", "failed", "error"):
        for report in terminalreporter.stats.get(outcome, ()):
            if found := _KILLS.search(report.nodeid):
                what = " ".join(found.group(1, 2)) if found[2] else found[1]
                runs.setdefault(what.replace("_", " "), []).append(report)
    if runs:
        terminalreporter.section("kills of Spark's drivers and of brokers")
    for what, reports in sorted(runs.items()):
        good, taken_s = sum(each.passed for each in reports), sum(each.duration for each in reports)
        told = f"{what}: {good} of {len(reports)} exactly once, {taken_s:.0f} s"
        terminalreporter.write_line(told)


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    with testing_broker() as running:
        yield running


@pytest.fixture(scope="session")
def client(broker: Broker) -> Iterator[Client]:
    with broker.client() as connected:
        yield connected


@pytest.fixture
def place(broker: Broker, client: Client, request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """What a test has to itself. A queue is not made before it is asked for."""
    name = re.sub(r"[^A-Za-z0-9]+", "-", request.node.name.removeprefix("test_"))[:50]
    return Place(broker.url, client, name, tmp_path)
