"""How the clients are typed, for the type checker alone: nothing here is run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_type

import nexo


def blocking() -> None:
    with nexo.connect("nexo://127.0.0.1", timeout=1.0) as client:
        queue = client.create_queue("q", visibility_timeout=30.0, backoff=nexo.Backoff(initial=1.0))
        assert_type(queue, nexo.Queue)
        assert_type(queue.push({"a": 1}), str)
        assert_type(queue.push_batch([b"x"]), Sequence[str])
        assert_type(queue.pop(wait=1.0), nexo.Message | None)
        assert_type(queue.redrive(), int)
        assert_type(queue.info().settings, nexo.QueueSettings)
        assert_type(queue.redrive(wait=False).progress(), nexo.Progress)
        for message in queue.subscribe():
            with message as same:
                assert_type(same, nexo.Message)
                assert_type(message.body, bytes)
        for messages in queue.subscribe_batches(10):
            assert_type(messages, nexo.Messages[nexo.Message])
            assert_type(queue.ack_batch(messages), list[tuple[str, str]])
        topic = client.create_topic("t", retention_messages=5)
        for event in topic.subscribe():
            assert_type(event, nexo.Event)
        for grouped in topic.subscribe(group="g"):
            grouped.ack()


async def asynchronous() -> None:
    async with nexo.connect_async() as client:
        queue = client.queue("q", create=True)
        assert_type(queue, nexo.AsyncQueue)
        assert_type(await queue.push("x"), str)
        assert_type(await queue.pop(), nexo.AsyncMessage | None)
        assert_type(await queue.redrive(), int)
        async for message in queue.subscribe():
            async with message as same:
                assert_type(same, nexo.AsyncMessage)
        async for messages in queue.subscribe_batches():
            assert_type(messages, nexo.Messages[nexo.AsyncMessage])
        async for event in client.topic("t").subscribe():
            assert_type(event, nexo.Event)
