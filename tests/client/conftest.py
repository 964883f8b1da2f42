"""A broker for each test, both clients, and a relay between them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.client.relay import Relay
from tests.client.running import RunningBroker
from tests.client.twins import Twin

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningBroker]:
    running = RunningBroker(str(tmp_path / "data")).start()
    yield running
    running.stop()


@pytest.fixture(params=["blocking", "asyncio"])
def twin(request: pytest.FixtureRequest) -> Iterator[Twin]:
    either = Twin(request.param)
    yield either
    either.close()


@pytest.fixture
def client(broker: RunningBroker, twin: Twin) -> Any:
    """Either client, connected; whatever it gives is blocking."""
    return twin.connect(broker.url, timeout=20)


@pytest.fixture
def relay(broker: RunningBroker) -> Iterator[Relay]:
    between = Relay(broker.port)
    yield between
    between.close()
