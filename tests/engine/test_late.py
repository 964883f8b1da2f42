"""Late words and exact time: what SQS clients rely on, through the engine and a restart."""

from __future__ import annotations

import msgspec
import pytest

from nexo.vocabulary.errors import QueueNotFound, StaleReceipt
from nexo.vocabulary.settings import QueueSettings
from tests.engine.rig import Rig, bodies, numbered, peeked, texts
from tests.engine.virtual_time import settle

FIFO = QueueSettings(fifo=True, max_attempts=None)


async def test_late_delete_is_durable(rig: Rig) -> None:
    queue = await (await rig.start()).create_queue("q", QueueSettings(max_attempts=None))
    await queue.push(numbered(3))
    first = await queue.pop(3, one_ack=True, visibility_ms=0)
    again = await queue.pop(2, one_ack=True)
    assert again.lease != first.lease
    for seq in (1, 2):  # one with another consumer, one in line
        discarded = queue.discard(seq)
        assert discarded is not None
        await discarded
    assert queue.discard(2) is None
    queue = (await rig.crash()).queue("q")
    assert await peeked(queue) == ["0"]


async def test_pop_finds_what_has_just_come_due(rig: Rig) -> None:
    """Also if the timer has not got to it: nothing runs between these two pops."""
    queue = await (await rig.start()).create_queue("q", QueueSettings(max_attempts=None))
    await queue.push(numbered(1))
    assert texts(await queue.pop(1, one_ack=True, visibility_ms=0)) == ["0"]
    assert texts(await queue.pop(1, one_ack=True, visibility_ms=0)) == ["0"]


async def test_pop_waits_for_groups_that_came_back(rig: Rig) -> None:
    queue = await (await rig.start()).create_queue("q", FIFO)
    batch = msgspec.structs.replace(bodies("a1", "b1"), groups=["a", "b"])
    await queue.push(batch)
    assert texts(await queue.pop(1, one_ack=True, visibility_ms=0)) == ["a1"]
    assert texts(await queue.pop(10, one_ack=True)) == ["b1", "a1"]


async def test_repeated_attempt(rig: Rig) -> None:
    queue = await (await rig.start()).create_queue("q", FIFO)
    await queue.push(numbered(2))
    delivery = await queue.pop(2, one_ack=True, visibility_ms=1_000)
    queue.receive_attempts.remember("one", delivery)
    assert queue.receive_attempts.again("two", None) is None
    assert queue.receive_attempts.again("one", 5_000) is delivery
    await queue.ack(delivery.lease, 0, 1)
    with pytest.raises(StaleReceipt):
        queue.receive_attempts.again("one", 5_000)


async def test_redrive_to_a_queue_that_goes_fails(rig: Rig) -> None:
    engine = await rig.start()
    source, target = await engine.create_queue("source"), await engine.create_queue("target")
    await source.push(numbered(5))
    number = await engine.tasks.begin("source", "target", 1.0)
    ((found, task),) = engine.tasks.of(source)
    assert (found, task.status, task.to) == (number, "RUNNING", "target")
    assert engine.tasks.of(target) == []
    await settle()
    await engine.delete_queue("target")
    with pytest.raises(QueueNotFound):
        await task.finished
    assert task.status == "FAILED"
    assert isinstance(task.failure, QueueNotFound)
    assert source.queue.ready == 5 - task.progress().moved, "what could not go is in line again"
