"""Many: subscribers, consumers, bytes."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from typing import TYPE_CHECKING, Any

import nexo

if TYPE_CHECKING:
    from collections.abc import Callable

MIB = 1024 * 1024


async def _until(is_so: Callable[[nexo.QueueInfo], bool], queue: nexo.AsyncQueue) -> None:
    for _ in range(1_000):
        if is_so(await queue.info()):
            return
        await asyncio.sleep(0.05)
    raise AssertionError("never so")


async def _five_hundred(url: str) -> None:
    clients = [nexo.connect_async(url, timeout=50) for _ in range(50)]
    await asyncio.gather(*[client.__aenter__() for client in clients])
    seen: Counter[str] = Counter()
    busy: Counter[int] = Counter()

    async def consume(number: int, queue: nexo.AsyncQueue) -> None:
        async for message in queue.subscribe(prefetch=1):
            async with message:
                seen[message.text] += 1
                busy[number] += 1

    producer = clients[0].queue("q", create=True)
    await producer.info()
    tasks = [
        asyncio.create_task(consume(number, clients[number % 50].queue("q")))
        for number in range(500)
    ]
    await _until(lambda info: info.consumers == 500, producer)
    for start in range(0, 3_000, 500):
        await producer.push_batch([str(number) for number in range(start, start + 500)])
    await _until(lambda info: info.depth == 0, producer)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.gather(*[client.close() for client in clients])
    assert seen == Counter(str(number) for number in range(3_000))
    assert len(busy) == 500  # nobody starved


def test_five_hundred_subscribers(broker: Any) -> None:
    asyncio.run(_five_hundred(broker.url))


async def _competing(url: str, total: int) -> None:
    clients = [nexo.connect_async(url, timeout=50) for _ in range(8)]
    await asyncio.gather(*[client.__aenter__() for client in clients])
    queue = clients[0].queue("q", create=True)
    await queue.info()
    seen: list[bytes] = []
    done = asyncio.Event()

    async def consume(client: nexo.AsyncClient) -> None:
        mine = client.queue("q")
        async for messages in mine.subscribe_batches(500):
            seen.extend(messages.bodies())
            assert await mine.ack_batch(messages) == []
            if len(seen) >= total:
                done.set()

    tasks = [asyncio.create_task(consume(client)) for client in clients]
    for start in range(0, total, 1_000):
        await queue.push_batch([b"%d" % number for number in range(start, start + 1_000)])
    await done.wait()
    await _until(lambda info: info.depth == 0, queue)  # the others still ack what they have seen
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.gather(*[client.close() for client in clients])
    assert len(seen) == total
    assert set(seen) == {b"%d" % number for number in range(total)}


def test_a_hundred_thousand_through_eight_consumers(broker: Any) -> None:
    asyncio.run(_competing(broker.url, 100_000))


def test_large_messages(client: Any) -> None:
    queue = client.queue("q", create=True)
    bodies = [os.urandom(MIB) for _ in range(6)]
    for body in bodies[:3]:
        queue.push(body)
    queue.push_batch(bodies[3:])
    messages = queue.pop_batch(10)
    assert messages.bodies() == bodies
    assert queue.ack_batch(messages) == []


def test_the_largest_batch(client: Any) -> None:
    queue = client.queue("q", create=True)
    body = os.urandom(MIB)
    ids = queue.push_batch([body] * 60)
    assert len(set(ids)) == 60
    taken = 0
    while taken < 60:
        messages = queue.pop_batch(60)
        assert messages[0].body == body
        assert queue.ack_batch(messages) == []
        taken += len(messages)
