"""Snapshots of a queue, and claimed batches in slices: what Spark reads without a copy."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from nexo.engine import views
from nexo.engine.views import Wanted
from nexo.vocabulary.errors import InvalidArgument, LeaseLost
from nexo.vocabulary.limits import VIEW_IDLE_MS, VIEW_READ_IDLE_MS
from nexo.vocabulary.states import State
from tests.engine.rig import Rig, bodies_of, number_of, numbered

if TYPE_CHECKING:
    from nexo.engine.queue_actor import QueueActor
    from nexo.machine.pop import Part

COUNT = 100


async def filled(rig: Rig) -> QueueActor:
    queue = await (await rig.start()).create_queue("q")
    await queue.push(numbered(COUNT))
    return queue


def numbers(parts: list[Part]) -> list[int]:
    return [number_of(text) for part in parts for text in bodies_of(part)]


async def read_all(queue: QueueActor, name: str, count: int, bytes_max: int) -> list[int]:
    """A snapshot from its beginning to its end, in steps."""
    found: list[int] = []
    at = 0
    while True:
        got = await queue.views.read(name, at, count, bytes_max)
        assert got.missing == 0
        if got.next == at:
            return found
        assert sum(part.count for part in got.parts) <= count
        assert len(got.states) == len(got.parts)
        found += numbers(got.parts)
        at = got.next


@pytest.mark.parametrize(("count", "bytes_max"), [(1_000, 10**6), (7, 10**6), (1_000, 30), (3, 1)])
async def test_a_snapshot_is_read_in_steps(rig: Rig, count: int, bytes_max: int) -> None:
    queue = await filled(rig)
    taken = queue.views.open(Wanted())
    assert (taken.count, taken.incarnation) == (COUNT, queue.queue.incarnation)
    assert await read_all(queue, taken.snapshot, count, bytes_max) == list(range(COUNT))


async def test_it_shows_the_moment_it_was_taken(rig: Rig) -> None:
    queue = await filled(rig)
    delivery = await queue.pop(10, one_ack=True)
    taken = queue.views.open(Wanted())
    await queue.ack(delivery.lease, 0, 10)
    await queue.pop(20, one_ack=True)
    await queue.purge()
    await queue.push(numbered(5))
    got = await queue.views.read(taken.snapshot, 0, 1_000, 10**6)
    assert numbers(got.parts) == list(range(COUNT))
    states = {state: part.count for part, state in zip(got.parts, got.states, strict=True)}
    assert states == {State.RECEIVED: 10, State.READY: 90}
    assert [part.history.attempts for part in got.parts] == [1, 0]
    assert queue.views.open(Wanted()).count == 5


async def test_runs_that_are_not_wanted_are_left_out(rig: Rig) -> None:
    queue = await filled(rig)
    await queue.push_one(b"urgent", 9)
    await queue.pop(11, one_ack=True)
    views_of = queue.views
    assert views_of.open(Wanted(priority=(1, 255))).count == 1
    assert views_of.open(Wanted(attempts=(1, 5))).count == 11
    assert views_of.open(Wanted(priority=(0, 0), attempts=(0, 0))).count == 90
    now_ms = queue.now_ms()
    assert views_of.open(Wanted(created_ms=(now_ms + 1, now_ms + 9))).count == 0
    assert views_of.open(Wanted(created_ms=(0, now_ms))).count == 101


async def test_what_is_on_disk_alone_is_read_back(rig: Rig) -> None:
    queue = await filled(rig)
    queue = (await rig.restart()).queue("q")
    taken = queue.views.open(Wanted())
    assert await read_all(queue, taken.snapshot, 40, 10**6) == list(range(COUNT))


async def test_what_is_gone_from_the_disk_is_counted(rig: Rig) -> None:
    queue = await filled(rig)
    queue = (await rig.restart()).queue("q")
    taken = queue.views.open(Wanted())
    await queue.purge()
    got = await queue.views.read(taken.snapshot, 0, 1_000, 10**6)
    assert (got.parts, got.next, got.missing) == ([], COUNT, COUNT)


async def test_it_ends(rig: Rig) -> None:
    queue = await filled(rig)
    desk = queue.views
    read, unread, closed = (desk.open(Wanted()).snapshot for _ in range(3))
    desk.close(closed)
    desk.close(closed)
    await desk.read(read, 0, 1_000, 10**6)
    await asyncio.sleep(VIEW_READ_IDLE_MS / 1000 + 1)
    for name in (read, closed, "another"):
        with pytest.raises(LeaseLost, match="no longer exists"):
            await desk.read(name, 0, 1, 1)
    await desk.read(unread, 0, 1, 1)
    with pytest.raises(InvalidArgument):
        await desk.read(unread, -1, 1, 1)
    await asyncio.sleep(VIEW_IDLE_MS / 1000 + 1)
    with pytest.raises(LeaseLost):
        await desk.read(unread, 0, 1, 1)


async def test_all_of_a_scan_share_a_view(rig: Rig) -> None:
    queue = await filled(rig)
    taken = queue.views.open(Wanted(), "query/1")
    await queue.push(numbered(5))
    assert queue.views.open(Wanted(), "query/1") == taken
    assert queue.views.open(Wanted(), "query/2").count == COUNT + 5
    assert queue.views.open(Wanted()).count == COUNT + 5


async def test_a_scan_gets_no_second_view(rig: Rig) -> None:
    """Some of it has read the first one, and all of it must be of one moment."""
    queue = await filled(rig)
    taken = queue.views.open(Wanted(), "query/1")
    await asyncio.sleep(VIEW_IDLE_MS / 1000 - 1)
    assert queue.views.open(Wanted(), "query/1") == taken, "it is kept for an hour"
    await asyncio.sleep(VIEW_IDLE_MS / 1000 + 1)
    with pytest.raises(LeaseLost, match="no longer exists"):
        queue.views.open(Wanted(), "query/1")
    assert queue.views.open(Wanted(), "query/2").count == COUNT


async def test_a_scan_that_goes_on_after_a_restart_is_over(rig: Rig) -> None:
    """Other tasks of it, which know nothing, may have opened a view of the new boot already."""
    queue = await filled(rig)
    taken = queue.views.open(Wanted(), "query/1")
    queue = (await rig.restart()).queue("q")
    fresh = queue.views.open(Wanted(), "query/1")
    assert fresh.snapshot != taken.snapshot
    with pytest.raises(LeaseLost):
        await queue.views.read(taken.snapshot, 0, 10, 10**6, "query/1")
    for _ in range(2):
        with pytest.raises(LeaseLost):
            queue.views.open(Wanted(), "query/1")
    with pytest.raises(LeaseLost):
        await queue.views.read(fresh.snapshot, 0, 10, 10**6, "query/1")


async def test_scans_that_are_over_are_forgotten_in_the_end(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views, "VIEW_SCANS_ENDED", 3)
    queue = await filled(rig)
    for number in range(5):
        queue.views.close(queue.views.open(Wanted(), f"query/{number}").snapshot)
    assert queue.views.open(Wanted(), "query/1").count == COUNT
    with pytest.raises(LeaseLost):
        queue.views.open(Wanted(), "query/2")


async def test_a_claim_waits_for_something(rig: Rig) -> None:
    queue = await (await rig.start()).create_queue("q")
    epoch = await queue.claims.open("c")
    began = queue.now_ms()
    assert (await queue.claims.claim("c", epoch, 0, 10, 10_000, wait_ms=500)).number == 0
    assert queue.now_ms() - began == 500
    waiting = asyncio.create_task(queue.claims.claim("c", epoch, 0, 10, 10_000, wait_ms=5_000))
    await asyncio.sleep(0.1)
    await queue.push(numbered(3))
    got = await waiting
    assert (got.number, got.count) == (1, 3)
    assert queue.now_ms() - began == 600, "at once"
    assert not queue.claims.waiting


async def test_a_claimed_batch_in_slices(rig: Rig) -> None:
    queue = await filled(rig)
    epoch = await queue.claims.open("c")
    await queue.claims.claim("c", epoch, 0, 60, 10_000)
    await queue.claims.seal("c", epoch, 1)

    async def read(start: int, count: int = 1_000, bytes_max: int = 10**6) -> list[int]:
        return numbers((await queue.claims.read("c", epoch, 1, start, count, bytes_max)).parts)

    assert await read(0) == list(range(60))
    assert await read(50) == list(range(50, 60))
    assert await read(10, 5) == list(range(10, 15))
    assert await read(60) == []
    assert await read(30, bytes_max=1) == [30], "at least one"
    size = len(await read(0, bytes_max=100))
    assert 0 < size < 60
    queue = (await rig.restart()).queue("q")
    assert await read(20, 10) == list(range(20, 30))
    with pytest.raises(InvalidArgument):
        await read(0, 0)


@pytest.mark.parametrize(("count", "bytes_max"), [(1_000, 10**6), (7, 10**6), (1_000, 30)])
async def test_what_is_on_disk_is_read_in_slices_as_long(
    rig: Rig, count: int, bytes_max: int
) -> None:
    engine = await rig.start()
    topic = await engine.create_topic("t")
    await engine.create_queue("q")
    await engine.bind("t", "q")
    for number in range(COUNT):
        await topic.publish(numbered(1, number))
    lengths = []
    for is_stored in (False, True):
        queue = (await rig.restart() if is_stored else engine).queue("q")
        taken = queue.views.open(Wanted())
        found, at, steps = list[int](), 0, list[int]()
        while at < COUNT:
            got = await queue.views.read(taken.snapshot, at, count, bytes_max)
            assert (got.missing, len(got.states)) == (0, len(got.parts))
            steps.append(got.next - at)
            found, at = found + numbers(got.parts), got.next
        assert found == list(range(COUNT))
        lengths.append(steps)
    assert lengths[0] == lengths[1], "after a restart a read gave less"
    assert len(rig.journal.fetched) == len(set(rig.journal.fetched)), "a row was read twice"


async def test_a_read_of_many_runs_is_one_step_of_bounded_work(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views, "READ_RUNS_MAX", 10)
    queue = await (await rig.start()).create_queue("q")
    for number in range(4):
        await queue.push(numbered(40, 40 * number))
    for seq in range(0, 160, 2):
        delivery = await queue.pop(1, one_ack=True)
        assert delivery.parts[0].first == seq
        await queue.ack(delivery.lease, seq, seq + 1)
        await queue.pop(1, one_ack=True)
    taken = queue.views.open(Wanted())
    assert (await queue.views.read(taken.snapshot, 0, 1_000, 10**6)).next == 10
