"""One broker for all of these tests; each test has names of its own."""

from __future__ import annotations

import logging
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


@pytest.fixture(scope="module", autouse=True)
def logs_as_before() -> Iterator[None]:
    """A worker of Celery in this process sets up logging for itself alone."""
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    yield
    root.setLevel(level)
    root.handlers[:] = handlers


@pytest.fixture
def client(broker: Broker) -> Iterator[nexo.Client]:
    with broker.client() as connected:
        yield connected


@pytest.fixture
def name() -> str:
    """For a queue or a topic that no other test has."""
    return f"t-{uuid.uuid4().hex[:12]}"
