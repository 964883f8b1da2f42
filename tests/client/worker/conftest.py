"""A broker, a client, and workers that are stopped whatever happens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import nexo
from tests.client.worker.running import Running

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.client.running import RunningBroker


@pytest.fixture
def client(broker: RunningBroker) -> Iterator[nexo.Client]:
    with nexo.connect(broker.url, timeout=20) as connected:
        yield connected


@pytest.fixture
def work(client: nexo.Client) -> Iterator[Callable[..., Running]]:
    """Start a worker on a queue, in a thread."""
    started: list[Running] = []

    def start(queue: str | list[str], handler: Any, **options: Any) -> Running:
        running = Running(nexo.Worker(client, queue, handler, **options))
        started.append(running)
        return running

    yield start
    for running in started:
        running.stop()
