"""The engine of a shard: while its node has no lease it gives out nothing, and it keeps to its
names."""

from __future__ import annotations

import asyncio

import pytest

from nexo.vocabulary.errors import InvalidArgument, NotReady
from nexo.vocabulary.settings import QueueSettings
from tests.engine.rig import Rig, bodies
from tests.engine.test_subscription import Consumer


class Lease:
    """As the node of a cluster tells it."""

    def __init__(self, rig: Rig) -> None:
        self.is_held = True
        rig.is_held = lambda: self.is_held


async def test_no_pop_without_a_lease(rig: Rig) -> None:
    lease = Lease(rig)
    queue = await (await rig.start()).create_queue("q")
    await queue.push(bodies("a", "b"))
    lease.is_held = False
    with pytest.raises(NotReady, match="lease"):
        await queue.pop()
    with pytest.raises(NotReady):
        queue.receive_at_once(1)
    assert queue.pop_at_once(1, 1_000, "", None, False) is None
    assert queue.queue.in_flight == 0
    lease.is_held = True
    assert (await queue.pop()).count == 1


async def test_who_waits_gets_nothing_that_becomes_due(rig: Rig) -> None:
    lease = Lease(rig)
    engine = await rig.start()
    queue = await engine.create_queue("q", QueueSettings(delay_ms=1_000))
    consumer = Consumer(queue, 10)
    await queue.push(bodies("a", "b"))
    lease.is_held = False
    await asyncio.sleep(5)  # the timer of the queue comes by
    assert consumer.deliveries == []
    lease.is_held = True
    engine.resume()
    await asyncio.sleep(0.01)
    assert consumer.texts == ["a", "b"]


async def test_a_long_poll_gets_nothing_that_becomes_due(rig: Rig) -> None:
    lease = Lease(rig)
    engine = await rig.start()
    queue = await engine.create_queue("q", QueueSettings(delay_ms=1_000))
    popping = asyncio.create_task(queue.pop(wait_ms=60_000))
    await queue.push(bodies("a"))
    lease.is_held = False
    await asyncio.sleep(5)
    assert not popping.done()
    lease.is_held = True
    engine.resume()
    assert (await popping).count == 1


async def test_no_topic_is_read_without_a_lease(rig: Rig) -> None:
    lease = Lease(rig)
    topic = await (await rig.start()).create_topic("t")
    await topic.publish(bodies("a"))
    lease.is_held = False
    with pytest.raises(NotReady, match="lease"):
        await topic.read(0)
    lease.is_held = True
    assert (await topic.read(0)).next == 1


async def test_it_loads_what_it_held(rig: Rig) -> None:
    Lease(rig)
    engine = await rig.start()
    await (await engine.create_queue("q")).push(bodies("a", "b"))
    await engine.create_topic("t")
    engine = await rig.restart()
    assert engine.queue("q").info().depth == 2
    assert list(engine.topics) == ["t"]


async def test_names_of_other_shards_are_refused(rig: Rig) -> None:
    def check(name: str) -> None:
        if not name.startswith("here"):
            raise InvalidArgument(f"{name} lives elsewhere")

    rig.check_place = check
    engine = await rig.start()
    await engine.create_queue("here")
    await engine.create_topic("here.t")
    for refused in (
        engine.create_queue("there"),
        engine.create_topic("there"),
        engine.bind("there", "here"),
        engine.redrive("there", "here"),
        engine.delete_queue("there"),
    ):
        with pytest.raises(InvalidArgument, match="lives elsewhere"):
            await refused
    assert list(engine.queues) == ["here"]
