"""Many receipts at once: each range for itself, and what was refused is told."""

from __future__ import annotations

import asyncio

from nexo.vocabulary.settings import QueueSettings
from tests.engine.rig import Rig, numbered, peeked
from tests.engine.virtual_time import settle


async def test_what_can_be_acked_is_and_the_rest_is_told(rig: Rig) -> None:
    queue = await (await rig.start()).create_queue("q")
    await queue.push(numbered(10))
    one, two = await queue.pop(4, one_ack=True), await queue.pop(4)
    await queue.ack(one.lease, 1, 2)
    refused = await queue.ack_ranges(
        [(one.lease, 0, 4), (two.lease, 4, 8), (one.lease + 99, 8, 9), (one.lease, 0, 1)]
    )
    assert refused == [
        (one.lease, 1, 2, "stale_receipt"),
        (two.lease, 4, 8, "wrong_state"),
        (one.lease + 99, 8, 9, "stale_receipt"),
        (one.lease, 0, 1, "stale_receipt"),
    ]
    assert await peeked(queue) == ["4", "5", "6", "7", "8", "9"]
    assert queue.received_ranges([(two.lease, 4, 8), (two.lease, 9, 10)]) == [
        (two.lease, 9, 10, "stale_receipt")
    ]
    assert await queue.ack_ranges([(two.lease, 4, 6), (two.lease, 6, 8)]) == []
    queue = (await rig.restart()).queue("q")
    assert await peeked(queue) == ["8", "9"]


async def test_acks_are_told_when_they_are_on_disk(rig: Rig) -> None:
    queue = await (await rig.start()).create_queue("q")
    await queue.push(numbered(2))
    delivery = await queue.pop(2, one_ack=True)
    rig.runner.is_held = True
    acked = queue.ack_ranges([(delivery.lease, 0, 2)])
    await asyncio.sleep(1)
    assert not acked.done()
    rig.runner.release()
    assert await acked == []


async def test_nacks_and_giving_back_wake_those_who_wait(rig: Rig) -> None:
    engine = await rig.start()
    queue = await engine.create_queue("q", QueueSettings(max_attempts=1))
    await queue.push(numbered(3))
    delivery = await queue.pop(3, one_ack=True)
    pop = asyncio.create_task(queue.pop(wait_ms=60_000, one_ack=True))
    await settle()
    assert await queue.nack_ranges([(delivery.lease, 0, 1)], None, "bad") == []
    assert await queue.extend_ranges([(delivery.lease, 1, 2)], 90_000) == []
    assert await queue.give_back_ranges([(delivery.lease, 2, 3)]) == []
    (message,) = queue.messages(await pop)
    assert (message.body, message.attempts) == (b"2", 1)
    assert await peeked(engine.queue("q_dlq")) == ["0"]
    held = [each.visible_ms - queue.now_ms() for each in await queue.peek()]
    assert held == [90_000, 30_000]
