"""One broker for all of these tests; each test has names of its own."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

from nexo.testing import broker as broker_in_process

if TYPE_CHECKING:
    from collections.abc import Iterator

    import nexo
    from nexo.testing import Broker


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    with broker_in_process() as running:
        yield running


@pytest.fixture
def client(broker: Broker) -> Iterator[nexo.Client]:
    with broker.client() as connected:
        yield connected


@pytest.fixture
def name() -> str:
    """For a queue or a topic that no other test has."""
    return f"t-{uuid.uuid4().hex[:12]}"
