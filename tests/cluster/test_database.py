"""The database fails and comes back: the nodes go on by themselves."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest

import nexo
from tests.cluster.nodes import running
from tests.postgresql import postgresql_server

if TYPE_CHECKING:
    from pathlib import Path

AWAY_S = 7.0  # longer than a lease
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


async def consume(queue: nexo.AsyncQueue, got: asyncio.Queue[str]) -> None:
    async for message in queue.subscribe(prefetch=1):
        async with message:
            pass
        got.put_nowait(message.text)  # its ack is confirmed


@pytest.mark.timeout(120)
def test_consumers_go_on_after_an_outage(tmp_path: Path) -> None:
    """Also those that came while the shard was not ready, on a connection that has stood since."""

    async def work(url: str) -> None:
        async with nexo.connect_async(url, timeout=60) as client:
            queue = await client.create_queue("q")
            early: asyncio.Queue[str] = asyncio.Queue()
            late: asyncio.Queue[str] = asyncio.Queue()
            tasks = [asyncio.create_task(consume(queue, early))]
            await queue.push("before")
            assert await asyncio.wait_for(early.get(), 20) == "before"
            await asyncio.to_thread(server.stop)
            pushed = asyncio.create_task(queue.push("during"))  # the shard finds out
            await asyncio.sleep(AWAY_S)
            tasks.append(asyncio.create_task(consume(client.queue("q"), late)))
            await asyncio.sleep(1)
            await asyncio.to_thread(server.start)
            await pushed
            await queue.push_batch([str(number) for number in range(20)])
            async with asyncio.timeout(40):
                while early.qsize() + late.qsize() < 21 or not (early.qsize() and late.qsize()):
                    await asyncio.sleep(0.05)
                    for task in tasks:
                        assert not task.done() or task.result()  # that it is over tells why
                    if not await queue.peek(1):  # all of it, and one of them got nothing yet
                        await queue.push_batch(["more", "and more"])
            for task in tasks:
                task.cancel()

    with (
        postgresql_server() as server,
        server.database("outage") as url,
        running(tmp_path, url, "a") as nodes,
    ):
        asyncio.run(work(nodes["a"].url))
