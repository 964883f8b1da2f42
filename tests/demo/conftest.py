"""A broker process for each test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import nexo
from examples.gps import names
from tests.cli.commands import BrokerProcess

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from nexo import Client


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
