"""Blocking pops: what wakes them, when they give up, and whose turn it is."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from nexo.vocabulary.errors import InvalidArgument, RateLimited
from nexo.vocabulary.settings import Backoff, QueueSettings
from tests.engine.rig import Rig, ack, bodies, nack, numbered, ranges, texts
from tests.engine.virtual_time import settle

if TYPE_CHECKING:
    from nexo.engine.queue_actor import QueueActor


def now_s() -> float:
    return asyncio.get_running_loop().time()


async def waiting(queue: QueueActor, count: int = 1, wait_ms: int = 60_000) -> asyncio.Task[Any]:
    task = asyncio.create_task(queue.pop(count, wait_ms=wait_ms, one_ack=True))
    await settle()
    assert not task.done()
    return task


async def test_a_pop_does_not_wait_unless_asked(rig: Rig) -> None:
    queue = await (await rig.start()).create_queue("q")
    began = now_s()
    assert texts(await queue.pop()) == []
    assert now_s() == began


async def test_nobody_waits_to_hold_a_message_for_ever(rig: Rig) -> None:
    """It is told at once, and not when something comes: that is the step of somebody else."""
    queue = await (await rig.start()).create_queue("q")
    with pytest.raises(InvalidArgument, match="visibility_ms"):
        await queue.pop(wait_ms=1_000, visibility_ms=2**63 - 1)
    with pytest.raises(InvalidArgument, match="visibility_ms"):
        queue.subscribe(1, lambda _: None, lambda _: None, visibility_ms=2**64 - 1)
    await queue.push(bodies("a"))
    assert texts(await queue.pop()) == ["a"]


async def test_a_push_wakes_a_pop(rig: Rig) -> None:
    queue = await (await rig.start()).create_queue("q")
    pop = await waiting(queue, 10)
    await asyncio.sleep(5)
    began = now_s()
    await queue.push(bodies("a", "b"))
    assert texts(await pop) == ["a", "b"]
    assert now_s() == began


async def test_a_nack_wakes_a_pop(rig: Rig) -> None:
    queue = await (await rig.start()).create_queue("q")
    await queue.push(bodies("a"))
    held = await queue.pop(one_ack=True)
    pop = await waiting(queue)
    await nack(queue, held)
    (message,) = queue.messages(await pop)
    assert (message.body, message.attempts) == (b"a", 2)


async def test_a_giving_back_wakes_a_pop_and_counts_no_attempt(rig: Rig) -> None:
    queue = await (await rig.start()).create_queue("q")
    await queue.push(bodies("a"))
    held = await queue.pop(one_ack=True)
    pop = await waiting(queue)
    for bounds in ranges(held):
        await queue.give_back(held.lease, *bounds)
    (message,) = queue.messages(await pop)
    assert (message.body, message.attempts) == (b"a", 1)


@pytest.mark.parametrize(("one_ack", "after_s"), [(True, 3.0), (False, 2.0)])
async def test_the_end_of_anothers_lease_wakes_a_pop(
    rig: Rig, one_ack: bool, after_s: float
) -> None:
    settings = QueueSettings(visibility_timeout_ms=3_000, retransmit_timeout_ms=2_000)
    queue = await (await rig.start()).create_queue("q", settings)
    await queue.push(bodies("a"))
    began = now_s()
    await queue.pop(one_ack=one_ack)
    pop = await waiting(queue)
    assert texts(await pop) == ["a"]
    assert now_s() - began == pytest.approx(after_s, abs=0.002)


async def test_a_schedule_wakes_a_pop(rig: Rig) -> None:
    queue = await (await rig.start()).create_queue("q")
    began = now_s()
    await queue.push(msgspec.structs.replace(bodies("later", "sooner"), delay_ms=[7_000, 4_000]))
    pops = [await waiting(queue), await waiting(queue)]
    assert texts(await pops[0]) == ["sooner"]
    assert now_s() - began == pytest.approx(4, abs=0.002)
    assert texts(await pops[1]) == ["later"]
    assert now_s() - began == pytest.approx(7, abs=0.002)


async def test_a_backoff_wakes_a_pop_when_it_is_over(rig: Rig) -> None:
    backoff = Backoff(initial_ms=1_000, factor=3.0)
    queue = await (await rig.start()).create_queue("q", QueueSettings(backoff=backoff))
    await queue.push(bodies("a"))
    for wait_s in (1, 3, 9):
        delivery = await queue.pop(wait_ms=60_000, one_ack=True)
        began = now_s()
        for bounds in ranges(delivery):
            await queue.nack(delivery.lease, *bounds)
        pop = await waiting(queue)
        delivery = await pop
        assert now_s() - began == pytest.approx(wait_s, abs=0.002)
        for bounds in ranges(delivery):
            await queue.give_back(delivery.lease, *bounds)


async def test_resuming_wakes_a_pop(rig: Rig) -> None:
    queue = await (await rig.start()).create_queue("q")
    await queue.push(bodies("a"))
    await queue.set_paused(True)
    pop = await waiting(queue)
    await asyncio.sleep(10)
    assert not pop.done()
    await queue.set_paused(False)
    assert texts(await pop) == ["a"]


async def test_a_pop_gives_up_after_its_time(rig: Rig) -> None:
    queue = await (await rig.start()).create_queue("q")
    began = now_s()
    assert texts(await queue.pop(wait_ms=1_500)) == []
    assert now_s() - began == pytest.approx(1.5)
    await queue.push(bodies("a"))
    assert queue.info().ready == 1, "somebody still waited"


async def test_a_pop_cancelled_while_it_waits_takes_nothing(rig: Rig) -> None:
    queue = await (await rig.start()).create_queue("q")
    pop, other = await waiting(queue), await waiting(queue)
    pop.cancel()
    await settle()
    assert queue.room.consumers == 1
    await queue.push(bodies("a"))
    assert texts(await other) == ["a"]


async def test_a_pop_cancelled_just_when_it_got_something_gives_it_back(rig: Rig) -> None:
    queue = await (await rig.start()).create_queue("q")
    pop = await waiting(queue)

    def cancel(_: object) -> None:
        pop.cancel()

    queue.subscribe(1, cancel, cancel)  # served right after the pop, before the pop's task can run
    await queue.push(bodies("a", "b"))
    await settle()
    assert pop.cancelled()
    info = queue.info()
    assert (info.ready, info.in_flight) == (1, 1)
    assert [m.attempts for m in queue.messages(await queue.pop())] == [1]


@pytest.mark.parametrize("due_ms", [999, 1_000, 1_001])
@pytest.mark.parametrize("push_first", [True, False])
async def test_a_message_that_comes_as_the_time_ends_is_not_lost(
    rig: Rig, due_ms: int, push_first: bool
) -> None:
    queue = await (await rig.start()).create_queue("q")
    delayed = msgspec.structs.replace(bodies("a"), delay_ms=due_ms)
    if push_first:
        await queue.push(delayed)
    pop = asyncio.create_task(queue.pop(wait_ms=1_000))
    await settle()
    if not push_first:
        await queue.push(delayed)
    got = texts(await pop)
    await asyncio.sleep(0.002)
    info = queue.info()
    assert (info.ready, info.in_flight) == ((0, 1) if got else (1, 0))


async def test_a_timeout_just_after_the_delivery_does_not_lose_it(rig: Rig) -> None:
    queue = await (await rig.start()).create_queue("q")
    pop = await waiting(queue, wait_ms=1_000)
    rig.runner.is_held = True
    push = queue.push(bodies("a"))
    # Both in one turn of the loop, before the pop's task can run: the commit, then the timeout.
    asyncio.get_running_loop().call_later(0.999_999_95, rig.runner.release)
    await push
    got = texts(await pop)
    info = queue.info()
    assert (got, info.ready, info.in_flight) in [(["a"], 0, 1), ([], 1, 0)]


async def test_waiting_pops_are_served_in_turn(rig: Rig) -> None:
    queue = await (await rig.start()).create_queue("q")
    pops = [await waiting(queue) for _ in range(20)]
    await queue.push(numbered(12))
    await settle()
    assert [pop.done() for pop in pops] == [True] * 12 + [False] * 8
    await queue.push(numbered(8, 12))
    assert [texts(await pop) for pop in pops] == [[str(number)] for number in range(20)]


async def test_waiting_pops_share_what_comes_by_what_they_ask_for(rig: Rig) -> None:
    queue = await (await rig.start()).create_queue("q")
    large, small = await waiting(queue, 90), await waiting(queue, 10)
    await queue.push(numbered(50))
    assert [len(texts(await pop)) for pop in (large, small)] == [45, 5]


async def test_a_pop_wakes_a_pop_that_needs_what_is_evicted(rig: Rig) -> None:
    engine = await rig.start()
    queue = await engine.create_queue("q")
    await queue.push(bodies("a"))
    engine = await rig.restart()
    queue = engine.queue("q")
    first = asyncio.create_task(queue.pop(wait_ms=1_000, one_ack=True))
    second = asyncio.create_task(queue.pop(wait_ms=1_000, one_ack=True))
    assert sorted([texts(await first), texts(await second)]) == [[], ["a"]]


async def test_a_waiting_pop_follows_the_order_of_priorities(rig: Rig) -> None:
    queue = await (await rig.start()).create_queue("q")
    pop = await waiting(queue, 10)
    await queue.push(msgspec.structs.replace(bodies("low", "high", "mid"), priority=b"\0\x09\x05"))
    assert texts(await pop) == ["high", "mid", "low"]


async def test_a_fifo_group_goes_on_when_the_ack_is_on_disk(rig: Rig) -> None:
    queue = await (await rig.start()).create_queue("q", QueueSettings(fifo=True))
    await queue.push(msgspec.structs.replace(bodies("a", "b", "x"), groups=["g", "g", "h"]))
    held = await queue.pop(one_ack=True)
    assert texts(held) == ["a"]
    assert texts(await queue.pop(one_ack=True)) == ["x"]
    pop = await waiting(queue)
    rig.runner.is_held = True
    acked = asyncio.create_task(ack(queue, held))
    await asyncio.sleep(1)
    assert not pop.done(), "a crash now would deliver `a` after `b`"
    rig.runner.release()
    await acked
    assert texts(await pop) == ["b"]


async def test_too_many_waiting_consumers_are_refused(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nexo.engine.waiting_room.WAITERS_MAX", 3)
    queue = await (await rig.start()).create_queue("q")
    pops = [await waiting(queue) for _ in range(3)]
    with pytest.raises(RateLimited, match="limit of 3 waiting consumers"):
        await queue.pop(wait_ms=1_000)
    pops[0].cancel()
    await settle()
    pops.append(await waiting(queue))
    await queue.push(numbered(3))
    assert [texts(await pop) for pop in pops[1:]] == [["0"], ["1"], ["2"]]


@pytest.mark.parametrize("count", [0, -1, 10_001])
async def test_a_senseless_count_is_refused(rig: Rig, count: int) -> None:
    queue = await (await rig.start()).create_queue("q")
    with pytest.raises(InvalidArgument, match="1 to 10000"):
        await queue.pop(count, wait_ms=1_000)
