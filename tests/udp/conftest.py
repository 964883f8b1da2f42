"""A broker for each test, and clients with addresses of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import nexo
from tests.client.running import RunningBroker
from tests.udp.peer import Peer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningBroker]:
    running = RunningBroker(str(tmp_path / "data")).start()
    yield running
    running.stop()


@pytest.fixture
def new_peer(broker: RunningBroker) -> Iterator[Callable[[], Peer]]:
    peers: list[Peer] = []

    def make() -> Peer:
        peers.append(Peer(broker.udp_port))
        return peers[-1]

    yield make
    for peer in peers:
        peer.close()


@pytest.fixture
def peer(new_peer: Callable[[], Peer]) -> Peer:
    return new_peer()


@pytest.fixture
def native(broker: RunningBroker) -> Iterator[Any]:
    """The native client of the same broker."""
    with nexo.connect(broker.url, timeout=20) as client:
        yield client
