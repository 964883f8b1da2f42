"""Time: what is due happens at its millisecond, and the timer is set for what comes next."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
import pytest

from nexo.vocabulary.settings import QueueSettings
from tests.engine.rig import Rig, ack, bodies, numbered, ranges, texts
from tests.engine.virtual_time import START_MS, settle

if TYPE_CHECKING:
    from nexo.engine.queue_actor import QueueActor

SLACK_MS = 1  # the clock has milliseconds


def elapsed_ms(queue: QueueActor) -> int:
    return queue.now_ms() - START_MS


async def ready_at(queue: QueueActor, limit_ms: int = 50_000) -> int:
    """When a message is in line, to the millisecond; nobody pops, so only the timer can do it."""
    for _ in range(limit_ms):
        if queue.info().ready:
            return elapsed_ms(queue)
        await asyncio.sleep(0.001)
    raise AssertionError(f"nothing in line after {limit_ms} ms: {queue.info()}")


@pytest.mark.parametrize("one_ack", [True, False])
async def test_a_lease_ends_on_time(rig: Rig, one_ack: bool) -> None:
    settings = QueueSettings(visibility_timeout_ms=345, retransmit_timeout_ms=123)
    queue = await (await rig.start()).create_queue("q", settings)
    await queue.push(bodies("a"))
    began = elapsed_ms(queue)
    await queue.pop(one_ack=one_ack)
    wanted = 345 if one_ack else 123
    assert 0 <= await ready_at(queue) - began - wanted <= SLACK_MS


async def test_the_reception_ack_begins_the_visibility_timeout(rig: Rig) -> None:
    settings = QueueSettings(visibility_timeout_ms=500, retransmit_timeout_ms=100)
    queue = await (await rig.start()).create_queue("q", settings)
    await queue.push(bodies("a"))
    delivery = await queue.pop()
    await asyncio.sleep(0.09)
    began = elapsed_ms(queue)
    for bounds in ranges(delivery):
        queue.received(delivery.lease, *bounds)
    assert 0 <= await ready_at(queue) - began - 500 <= SLACK_MS


async def test_a_visibility_timeout_shorter_than_the_retransmit_timeout(rig: Rig) -> None:
    settings = QueueSettings(visibility_timeout_ms=20, retransmit_timeout_ms=10_000)
    queue = await (await rig.start()).create_queue("q", settings)
    await queue.push(bodies("a", "b"))
    one, many = await queue.pop(), await queue.pop()
    began = elapsed_ms(queue)
    queue.received(one.lease, 0, 1)
    assert 0 <= await ready_at(queue) - began - 20 <= SLACK_MS
    await queue.pop(visibility_ms=60_000)
    began = elapsed_ms(queue)
    assert queue.received_ranges([(many.lease, 1, 2)]) == []
    assert 0 <= await ready_at(queue) - began - 20 <= SLACK_MS


async def test_a_pops_own_visibility_holds_after_the_reception_ack(rig: Rig) -> None:
    settings = QueueSettings(visibility_timeout_ms=5_000, retransmit_timeout_ms=100)
    queue = await (await rig.start()).create_queue("q", settings)
    await queue.push(bodies("a"))
    delivery = await queue.pop(visibility_ms=700)
    for bounds in ranges(delivery):
        queue.received(delivery.lease, *bounds)
    began = elapsed_ms(queue)
    assert 0 <= await ready_at(queue) - began - 700 <= SLACK_MS


async def test_extending_moves_the_end_both_ways(rig: Rig) -> None:
    queue = await (await rig.start()).create_queue("q", QueueSettings(visibility_timeout_ms=1_000))
    await queue.push(bodies("long", "short"))
    delivery = await queue.pop(2, one_ack=True)
    began = elapsed_ms(queue)
    await queue.extend(delivery.lease, 0, 1, 3_000)
    await queue.extend(delivery.lease, 1, 2, 50)
    assert 0 <= await ready_at(queue) - began - 50 <= SLACK_MS
    assert texts(await queue.pop(one_ack=True, visibility_ms=60_000)) == ["short"]
    assert 0 <= await ready_at(queue) - began - 3_000 <= SLACK_MS


async def test_every_message_of_a_lease_has_its_own_end(rig: Rig) -> None:
    queue = await (await rig.start()).create_queue("q", QueueSettings(visibility_timeout_ms=1_000))
    await queue.push(numbered(10))
    delivery = await queue.pop(10, one_ack=True)
    began = elapsed_ms(queue)
    for seq in range(10):
        await queue.extend(delivery.lease, seq, seq + 1, 1_000 - 100 * seq)
    ends = {}
    for _ in range(10):
        at = await ready_at(queue)
        (message,) = queue.messages(await queue.pop(one_ack=True, visibility_ms=60_000))
        ends[message.seq] = at - began
    for seq in range(10):
        assert 0 <= ends[seq] - (1_000 - 100 * seq) <= SLACK_MS, ends


async def test_schedules_come_one_after_the_other(rig: Rig) -> None:
    queue = await (await rig.start()).create_queue("q")
    delays = [900, 100, 500, 100, 20_000, 0]
    batch = msgspec.structs.replace(numbered(len(delays)), delay_ms=delays)
    await queue.push(batch)
    began, seen = elapsed_ms(queue), []
    for _ in delays:
        at = await ready_at(queue)
        seen.append((at - began, texts(await queue.pop(one_ack=True, visibility_ms=10**8))[0]))
    assert seen == [(0, "5"), (100, "1"), (100, "3"), (500, "2"), (900, "0"), (20_000, "4")]


async def test_an_earlier_schedule_overtakes_the_timer(rig: Rig) -> None:
    queue = await (await rig.start()).create_queue("q")
    await queue.push(msgspec.structs.replace(bodies("late"), delay_ms=60_000))
    await queue.push(msgspec.structs.replace(bodies("soon"), delay_ms=250))
    began = elapsed_ms(queue)
    assert 0 <= await ready_at(queue) - began - 250 <= SLACK_MS
    assert texts(await queue.pop()) == ["soon"]


async def test_a_restart_sets_the_timers_again(rig: Rig) -> None:
    queue = await (await rig.start()).create_queue("q", QueueSettings(visibility_timeout_ms=5_000))
    await queue.push(bodies("leased"))
    await queue.push(msgspec.structs.replace(bodies("scheduled"), delay_ms=2_000))
    await queue.pop(one_ack=True)
    began = elapsed_ms(queue)
    await asyncio.sleep(1)
    queue = (await rig.restart()).queue("q")
    assert 0 <= await ready_at(queue) - began - 2_000 <= SLACK_MS
    assert texts(await queue.pop(one_ack=True, visibility_ms=60_000)) == ["scheduled"]
    assert 0 <= await ready_at(queue) - began - 5_000 <= SLACK_MS
    assert texts(await queue.pop()) == ["leased"]


async def test_what_became_due_while_the_broker_was_away_is_due_at_once(rig: Rig) -> None:
    queue = await (await rig.start()).create_queue("q", QueueSettings(visibility_timeout_ms=5_000))
    await queue.push(bodies("leased"))
    await queue.push(msgspec.structs.replace(bodies("scheduled"), delay_ms=2_000))
    await queue.pop(one_ack=True)
    await rig.stop()
    await asyncio.sleep(3600)
    queue = (await rig.start()).queue("q")
    await settle()
    assert texts(await queue.pop(5)) == ["leased", "scheduled"]


async def test_retention_removes_what_waited_too_long(rig: Rig) -> None:
    queue = await (await rig.start()).create_queue("q", QueueSettings(retention_ms=10_000))
    for number in range(5):
        await queue.push(numbered(1, number))
        await asyncio.sleep(1)
    assert queue.info().ready == 5
    await asyncio.sleep(5 - 0.002)
    gone = []
    for _ in range(5):
        gone.append(queue.info().expired)
        await asyncio.sleep(1)
    await asyncio.sleep(0.01)
    assert gone == [0, 1, 2, 3, 4]
    assert queue.info().depth == 0
    assert queue.info().expired == 5
    await asyncio.sleep(1)
    assert not rig.disk.rows, "what has expired still takes room"


async def test_retention_leaves_what_is_in_flight_until_it_comes_back(rig: Rig) -> None:
    settings = QueueSettings(retention_ms=10_000, visibility_timeout_ms=30_000)
    queue = await (await rig.start()).create_queue("q", settings)
    await queue.push(bodies("acked", "late"))
    delivery = await queue.pop(2, one_ack=True)
    await asyncio.sleep(20)
    await queue.ack(delivery.lease, 0, 1)
    assert queue.info().depth == 1
    await asyncio.sleep(10.01)
    assert queue.info().depth == 0


async def test_peak_shaving(rig: Rig) -> None:
    """200 in at once, 100 a second out: a burst of a tenth, then one each 10 ms."""
    queue = await (await rig.start()).create_queue("q", QueueSettings(max_receive_rate=100.0))
    arrivals: list[tuple[int, int]] = []

    async def consume() -> None:
        while sum(count for _, count in arrivals) < 200:
            delivery = await queue.pop(200, wait_ms=100, one_ack=True)
            if delivery.parts:
                arrivals.append((elapsed_ms(queue), delivery.count))
            await ack(queue, delivery)

    began = elapsed_ms(queue)
    await queue.push(numbered(200))
    await asyncio.gather(consume(), consume(), consume())
    assert sum(count for _, count in arrivals) == 200
    lasted = arrivals[-1][0] - began
    assert 1_900 - 20 <= lasted <= 1_900 + 20, f"200 at 100/s with a burst of 10 took {lasted} ms"
    for at, _ in arrivals:
        window = sum(count for when, count in arrivals if at <= when < at + 1_000)
        assert window <= 100 + 10, f"{window} in the second from {at - began} ms"


async def test_peak_shaving_for_a_subscription(rig: Rig) -> None:
    queue = await (await rig.start()).create_queue("q", QueueSettings(max_receive_rate=50.0))
    times: list[int] = []
    queue.subscribe(
        1_000, lambda got: times.extend([elapsed_ms(queue)] * got.count), lambda _: None
    )
    began = elapsed_ms(queue)
    await queue.push(numbered(105))
    await asyncio.sleep(2.1)
    assert len(times) == 105
    assert times[:5] == [began] * 5
    assert 1_990 <= times[-1] - began <= 2_010


async def test_a_rate_below_one_a_second(rig: Rig) -> None:
    queue = await (await rig.start()).create_queue("q", QueueSettings(max_receive_rate=0.1))
    await queue.push(bodies("a", "b"))
    began = elapsed_ms(queue)
    assert texts(await queue.pop(2, wait_ms=60_000, one_ack=True)) == ["a"]
    assert texts(await queue.pop(2)) == []
    assert texts(await queue.pop(2, wait_ms=60_000)) == ["b"]
    assert 10_000 <= elapsed_ms(queue) - began <= 10_002


async def test_a_deduplication_window_ends_on_time(rig: Rig) -> None:
    settings = QueueSettings(deduplication="content", deduplication_window_ms=1_000)
    queue = await (await rig.start()).create_queue("q", settings)
    assert (await queue.push(bodies("a"))).ranges == [0, 1]
    await asyncio.sleep(0.999)
    assert (await queue.push(bodies("a"))).ranges == [0, 1]
    await asyncio.sleep(0.001)
    assert (await queue.push(bodies("a"))).ranges == [1, 2]


async def test_an_idle_queue_costs_no_timer(rig: Rig) -> None:
    engine = await rig.start()
    queue = await engine.create_queue("q")
    await queue.push(bodies("a"))
    await ack(queue, await queue.pop(one_ack=True))
    await asyncio.sleep(3600)
    before = len(rig.journal.commits)
    await asyncio.sleep(24 * 3600)
    assert len(rig.journal.commits) == before
