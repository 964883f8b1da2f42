"""A broker for all tests of a file, and the command that talks to it."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.cli.commands import BrokerProcess, Nexo

_numbers = count(1)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    running = BrokerProcess(tmp_path_factory.mktemp("broker")).start()
    yield running
    running.kill()


@pytest.fixture
def nexo(broker: BrokerProcess, tmp_path: Path) -> Nexo:
    return Nexo(tmp_path, broker.url)


@pytest.fixture
def alone(tmp_path: Path) -> Nexo:
    """The command where no broker is."""
    return Nexo(tmp_path, "nexo://127.0.0.1:1")


@pytest.fixture
def queue() -> str:
    """A name that no other test uses."""
    return f"queue-{next(_numbers)}"
