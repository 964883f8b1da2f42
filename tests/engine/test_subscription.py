"""Subscriptions: they stay, take what they have room for, and give back when they leave."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING

import pytest

from nexo.vocabulary.errors import ReadOnly
from nexo.vocabulary.settings import QueueSettings
from tests.engine.rig import Rig, ack, bodies, numbered, ranges, texts
from tests.engine.virtual_time import settle

if TYPE_CHECKING:
    from nexo.engine.queue_actor import QueueActor
    from nexo.machine.pop import Delivery
    from nexo.vocabulary.errors import NexoError


class Consumer:
    """Keeps what it is delivered."""

    def __init__(self, queue: QueueActor, prefetch: int, name: str = "") -> None:
        self.queue = queue
        self.deliveries: list[Delivery] = []
        self.errors: list[NexoError] = []
        self.waiter = queue.subscribe(
            prefetch, self._take, self.errors.append, consumer=name, one_ack=True
        )

    def _take(self, delivery: Delivery) -> None:
        self.deliveries.append(delivery)

    @property
    def texts(self) -> list[str]:
        return [text for delivery in self.deliveries for text in texts(delivery)]

    @property
    def count(self) -> int:
        return sum(delivery.count for delivery in self.deliveries)

    async def work(self) -> int:
        """Ack everything and make as much room."""
        deliveries, self.deliveries = self.deliveries, []
        done = sum(delivery.count for delivery in deliveries)
        await asyncio.gather(*[ack(self.queue, delivery) for delivery in deliveries])
        if done:
            self.queue.grant(self.waiter, done)
        return done


async def test_a_subscription_stays(rig: Rig) -> None:
    queue = await (await rig.start()).create_queue("q")
    consumer = Consumer(queue, 10)
    for number in range(5):
        await queue.push(numbered(1, number))
        await asyncio.sleep(25)
        await consumer.work()
    assert queue.info().acked == 5
    assert queue.room.consumers == 1


async def test_it_gets_what_was_there_before(rig: Rig) -> None:
    queue = await (await rig.start()).create_queue("q")
    await queue.push(bodies("a", "b"))
    consumer = Consumer(queue, 10)
    await settle()
    assert consumer.texts == ["a", "b"]


async def test_prefetch_is_respected_and_granting_gives_more(rig: Rig) -> None:
    queue = await (await rig.start()).create_queue("q")
    consumer = Consumer(queue, 3)
    await queue.push(numbered(10))
    await settle()
    assert consumer.texts == ["0", "1", "2"]
    assert queue.info().in_flight == 3
    await ack(queue, consumer.deliveries[0])
    await settle()
    assert consumer.count == 3, "an ack alone is no room: the consumer says when it has some"
    queue.grant(consumer.waiter, 2)
    assert consumer.texts == ["0", "1", "2", "3", "4"]
    queue.grant(consumer.waiter, 100)
    assert consumer.count == 10
    await queue.push(numbered(200, 10))
    assert consumer.count == 105


async def test_one_without_room_stands_in_nobodys_way(rig: Rig) -> None:
    queue = await (await rig.start()).create_queue("q")
    full, other = Consumer(queue, 1), Consumer(queue, 100)
    await queue.push(numbered(1))
    await queue.push(numbered(50, 1))
    await settle()
    assert full.count == 1
    assert other.count == 50


async def test_a_slow_one_gets_less_and_nobody_starves(rig: Rig) -> None:
    queue = await (await rig.start()).create_queue("q")
    random = Random(7)
    fast = [Consumer(queue, 100) for _ in range(3)]
    slow = [Consumer(queue, 100) for _ in range(3)]
    done = dict.fromkeys(fast + slow, 0)
    for turn in range(400):
        await queue.push(numbered(random.randrange(100, 400)))
        for consumer in fast if turn % 20 else fast + slow:
            done[consumer] += await consumer.work()
    for consumer in slow:
        assert done[consumer] > 0
    least, most = min(done[each] for each in fast), max(done[each] for each in slow)
    assert least > 2 * most, f"fast ones did {least} or more, slow ones up to {most}"
    shares = [done[each] for each in fast]
    assert max(shares) < 1.2 * min(shares), f"equals got {shares}"


async def test_single_messages_go_round(rig: Rig) -> None:
    queue = await (await rig.start()).create_queue("q")
    consumers = [Consumer(queue, 50) for _ in range(5)]
    for number in range(100):
        await queue.push(numbered(1, number))
    assert [consumer.count for consumer in consumers] == [20] * 5


async def test_pops_and_subscriptions_take_turns(rig: Rig) -> None:
    queue = await (await rig.start()).create_queue("q")
    consumer = Consumer(queue, 1_000)
    pops = [asyncio.create_task(queue.pop(wait_ms=60_000)) for _ in range(5)]
    await settle()
    for number in range(20):
        await queue.push(numbered(1, number))
    assert all([texts(await pop) for pop in pops])
    assert consumer.count == 15


async def test_leaving_gives_back_at_once_and_counts_no_attempt(rig: Rig) -> None:
    queue = await (await rig.start()).create_queue("q", QueueSettings(max_attempts=1))
    leaving = Consumer(queue, 10)
    await queue.push(numbered(10))
    await settle()
    first, *_ = leaving.deliveries
    low, _ = next(iter(ranges(first)))
    await queue.ack(first.lease, low, low + 1)
    other = Consumer(queue, 100)
    queue.unsubscribe(leaving.waiter)
    assert other.texts == [str(number) for number in range(1, 10)]
    attempts = [m.attempts for each in other.deliveries for m in queue.messages(each)]
    assert attempts == [1] * 9
    assert queue.room.consumers == 1


async def test_leaving_twice_or_with_nothing_changes_nothing(rig: Rig) -> None:
    queue = await (await rig.start()).create_queue("q")
    consumer = Consumer(queue, 10)
    queue.unsubscribe(consumer.waiter)
    queue.unsubscribe(consumer.waiter)
    await queue.push(bodies("a"))
    assert consumer.count == 0
    assert queue.info().ready == 1


async def test_what_was_lost_by_timeout_is_not_given_back_again(rig: Rig) -> None:
    settings = QueueSettings(visibility_timeout_ms=1_000)
    queue = await (await rig.start()).create_queue("q", settings)
    slow = Consumer(queue, 1)
    await queue.push(bodies("a"))
    await asyncio.sleep(1.5)
    other = await queue.pop(one_ack=True)
    assert texts(other) == ["a"]
    queue.unsubscribe(slow.waiter)
    assert queue.info().in_flight == 1, "the other one's delivery was taken away"


async def test_many_deliveries_of_one_subscription_are_all_given_back(rig: Rig) -> None:
    queue = await (await rig.start()).create_queue("q")
    consumer = Consumer(queue, 300)
    for number in range(300):
        await queue.push(numbered(1, number))
    assert len(consumer.deliveries) == 300
    for delivery in consumer.deliveries[:100]:
        await ack(queue, delivery)
    queue.unsubscribe(consumer.waiter)
    assert queue.info().ready == 200
    assert texts(await queue.pop(1000)) == [str(number) for number in range(100, 300)]


async def test_it_survives_the_disks_failure(rig: Rig) -> None:
    queue = await (await rig.start()).create_queue("q")
    consumer = Consumer(queue, 100)
    await queue.push(bodies("a"))
    failing = [ReadOnly("no more"), None, None]
    rig.journal.refuse_commit = lambda _: failing.pop(0) if failing else None
    with pytest.raises(ReadOnly):
        await queue.push(bodies("refused"))
    await asyncio.sleep(10)
    await queue.push(bodies("b"))
    await settle()
    assert "b" in consumer.texts
    assert "refused" not in consumer.texts
    assert consumer.errors == []
    queue.unsubscribe(consumer.waiter)
    assert queue.info().in_flight == 0
