"""The database fails and comes back: the nodes go on by themselves."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import nexo
from tests.cluster.nodes import running
from tests.postgresql import postgresql_server

if TYPE_CHECKING:
    from pathlib import Path

QUEUES = [f"queue{each}" for each in range(6)]


def test_nodes_go_on_when_the_database_comes_back(tmp_path: Path) -> None:
    with (
        postgresql_server(durable=True) as server,
        running(tmp_path, server.url, "a", "b") as nodes,
    ):
        with nexo.connect(nodes["a"].url, timeout=50) as client:
            for name in QUEUES:
                client.create_queue(name).push(b"before")
        server.kill()
        time.sleep(1)
        server.start()
        with nexo.connect(nodes["b"].url, timeout=50) as client:
            for name in QUEUES:
                _once_back(client, name)
                found = client.queue(name).pop_batch(10)
                assert [message.body for message in found] == [b"before", b"after"]
                assert client.queue(name).ack_batch(found) == []
        nodes.wait_until(lambda found: {node.state for node in found.nodes} == {"up"})


def _once_back(client: nexo.Client, name: str) -> None:
    """While the database is away, a push may be refused with an error that says to try again."""
    until = time.monotonic() + 40
    while True:
        try:
            client.queue(name).push(b"after")
        except nexo.NexoError as error:
            if not error.retryable or time.monotonic() > until:
                raise
            time.sleep(0.2)
        else:
            return
