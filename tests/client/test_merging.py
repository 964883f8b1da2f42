"""What is asked at the same time travels together, and each caller still gets its own answer."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

import nexo
from nexo.wire.frame import Kind


async def _merged_tasks(url: str, relay: Any) -> None:
    async with nexo.connect_async(url, timeout=20) as client:
        queue = client.queue("q", create=True)
        await queue.info()
        before = relay.requests[Kind.PUSH]
        ids = await asyncio.gather(*[queue.push(str(number)) for number in range(500)])
        assert relay.requests[Kind.PUSH] - before == 1
        messages = await queue.pop_batch(500)
        assert [message.id for message in messages] == ids
        assert [message.text for message in messages] == [str(number) for number in range(500)]
        before = relay.requests[Kind.ACK]
        await asyncio.gather(*[message.ack() for message in messages])
        assert relay.requests[Kind.ACK] - before == 1
        assert (await queue.info()).depth == 0


def test_tasks_of_one_turn_of_the_loop(relay: Any) -> None:
    asyncio.run(_merged_tasks(relay.url, relay))


def test_threads(relay: Any) -> None:
    with nexo.connect(relay.url, timeout=20) as client:
        queue = client.queue("q", create=True)
        queue.info()
        ids: list[str] = []
        start = threading.Barrier(16)

        def push(worker: int) -> None:
            start.wait()
            for number in range(50):
                ids.append(queue.push(f"{worker}-{number}"))  # noqa: PERF401 - one by one

        threads = [threading.Thread(target=push, args=(each,)) for each in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(50)
        assert len(set(ids)) == 800
        assert relay.requests[Kind.PUSH] < 500
        assert queue.info().depth == 800


async def _one_by_one(url: str) -> None:
    async with nexo.connect_async(url, timeout=20) as client:
        queue = await client.create_queue("q", max_message_bytes=10)
        results = await asyncio.gather(
            queue.push("ok 1"),
            queue.push("far too large a body"),
            queue.push("ok 2", priority=3),
            queue.push("ok 3", delay=0.0),
            queue.push("ok 4", delay=30.0, attributes={"a": "b"}),
            queue.push("ok 5", group_id="g" * 200),
            return_exceptions=True,
        )
        assert isinstance(results[1], nexo.MessageTooLarge)
        assert isinstance(results[5], nexo.InvalidArgument)
        good = [str(results[index]) for index in (0, 2, 3, 4)]
        seen = {message.id: message.text for message in await queue.peek(100)}
        assert [seen[each] for each in good] == ["ok 1", "ok 2", "ok 3", "ok 4"]
        assert len(seen) == 4


def test_each_gets_its_own_answer(broker: Any) -> None:
    asyncio.run(_one_by_one(broker.url))


async def _mixed_acks(url: str) -> None:
    async with nexo.connect_async(url, timeout=20) as client:
        queue = client.queue("q", create=True)
        await queue.push_batch(["x"] * 10)
        messages = list(await queue.pop_batch(10))
        await messages[4].ack()
        results = await asyncio.gather(
            *[message.ack() for message in messages], return_exceptions=True
        )
        refused = [index for index, each in enumerate(results) if each is not None]
        assert refused == [4]
        assert isinstance(results[4], nexo.StaleReceipt)


def test_acks_of_one_frame_have_their_own_fates(broker: Any) -> None:
    asyncio.run(_mixed_acks(broker.url))


async def _never_too_many(url: str, relay: Any) -> None:
    """The broker remembers 64 pushes of a producer: no more are ever unconfirmed."""
    flying = highest = 0

    def request(frame: Any) -> str:
        nonlocal flying, highest
        if frame.kind is Kind.PUSH:
            flying += 1
            highest = max(highest, flying)
        return "pass"

    def answer(frame: Any) -> str:
        nonlocal flying
        if frame.kind is Kind.OK and flying:
            flying -= 1
        return "pass"

    relay.on_request, relay.on_answer = request, answer
    async with nexo.connect_async(url, timeout=30) as client:
        queue = client.queue("q", create=True)
        await queue.info()
        flying = 0
        await asyncio.gather(*[queue.push_batch(["x"] * 3) for _ in range(300)])
        assert highest <= 64
        assert (await queue.info()).depth == 900


def test_never_more_unconfirmed_than_the_broker_remembers(relay: Any) -> None:
    asyncio.run(_never_too_many(relay.url, relay))


async def _abandoned(url: str) -> None:
    async with nexo.connect_async(url, timeout=20) as client:
        queue = client.queue("q", create=True)
        await queue.info()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(queue.pop(wait=20), 0.1)
        await queue.push("x")  # goes to the pop that nobody waits for, and comes back at once
        message = await queue.pop(wait=5)
        assert message is not None
        assert message.attempts == 1


def test_a_cancelled_pop_gives_back(broker: Any) -> None:
    asyncio.run(_abandoned(broker.url))


@pytest.mark.parametrize("wait", [0.0, 20.0])
def test_a_pop_cancelled_as_its_answer_comes_gives_back(broker: Any, wait: float) -> None:
    asyncio.run(_cancelled_in_the_turn_of_the_answer(broker.url, wait))


async def _cancelled_in_the_turn_of_the_answer(url: str, wait: float) -> None:
    async with nexo.connect_async(url, timeout=20) as client:
        queue = await client.create_queue("q", visibility_timeout=600.0, retransmit_timeout=600.0)
        await queue.push("x")
        connection: Any = client._connection
        received = connection.received
        popping = asyncio.create_task(queue.pop(wait))

        def receive(*arguments: Any) -> None:
            received(*arguments)
            popping.cancel()

        connection.received = receive
        with pytest.raises(asyncio.CancelledError):
            await popping
        connection.received = received
        message = await queue.pop(wait=10)
        assert message is not None
        assert message.attempts == 1


def test_an_interrupted_pop_gives_back(broker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with nexo.connect(broker.url, timeout=20) as client:
        queue = client.create_queue("q", visibility_timeout=600.0, retransmit_timeout=600.0)
        queue.push("x")
        connection = client._connection
        wait = connection.wait

        def interrupted(*arguments: Any) -> None:
            wait(*arguments)
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(connection, "wait", interrupted)
            with pytest.raises(KeyboardInterrupt):
                queue.pop()
        message = queue.pop(wait=10)
        assert message is not None
        assert message.attempts == 1
