"""A push with very many groups is sorted by them in several turns of the event loop: others get
theirs in between, and nobody is told that nothing is there before all of it is looked at."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
import pytest

from nexo.machine.groups import GroupedLine
from nexo.machine.invariants import check
from nexo.vocabulary import limits
from nexo.vocabulary.errors import ReadOnly
from nexo.vocabulary.settings import QueueSettings
from tests.engine.rig import Rig, ack, numbered, texts

if TYPE_CHECKING:
    from nexo.engine.queue_actor import QueueActor
    from nexo.machine.pop import Delivery
    from nexo.vocabulary.batch import Batch

STEP, MANY = 10, 95
KINDS = [pytest.param(False, id="fair"), pytest.param(True, id="fifo")]
EXPECTED = [str(number) for number in range(MANY)]


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SORTED_STEP_MESSAGES", STEP)


def grouped(*groups: str) -> Batch:
    return msgspec.structs.replace(numbered(len(groups)), groups=list(groups))


def apart() -> Batch:
    """A group for each message."""
    return grouped(*[f"group {number}" for number in range(MANY)])


async def create(rig: Rig, fifo: bool) -> QueueActor:
    engine = await rig.start()
    return await engine.create_queue("q", QueueSettings(fifo=fifo, visibility_timeout_ms=60_000))


@pytest.mark.parametrize("fifo", KINDS)
async def test_each_turn_sorts_some(rig: Rig, fifo: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    queue, handles, honest = await create(rig, fifo), list[int](), GroupedLine.sort
    turn = 0

    def counted(line: GroupedLine, messages_max: int) -> int:
        count = honest(line, messages_max)
        assert count <= STEP
        handles.append(turn)
        return count

    monkeypatch.setattr(GroupedLine, "sort", counted)
    await queue.push(apart())
    for turn in range(1, 20):  # noqa: B007 - it is looked at above
        await asyncio.sleep(0)
    check(queue.queue)
    assert queue.queue.is_sorted
    assert len(handles) == -(-MANY // STEP)
    assert all(handles.count(each) <= 2 for each in handles), "others had no turn in between"


@pytest.mark.parametrize("fifo", KINDS)
async def test_who_waits_gets_all_in_order(rig: Rig, fifo: bool) -> None:
    queue, got = await create(rig, fifo), list[str]()

    def take(delivery: Delivery) -> None:
        got.extend(texts(delivery))

    queue.subscribe(MANY, take, lambda _: None)
    await queue.push(apart())
    await asyncio.sleep(1)
    assert got == EXPECTED


@pytest.mark.parametrize("fifo", KINDS)
async def test_pops_that_do_not_wait_find_all(rig: Rig, fifo: bool) -> None:
    queue, got = await create(rig, fifo), list[str]()
    await queue.push(apart())
    while (delivery := await queue.pop(7, one_ack=True)).parts:
        got += texts(delivery)
    assert got == EXPECTED


@pytest.mark.parametrize("is_native", [True, False])
async def test_pop_looks_behind_a_locked_group(rig: Rig, is_native: bool) -> None:
    """What is sorted first belongs to a group that is in flight."""
    queue = await create(rig, fifo=True)
    await queue.push(grouped("a"))
    held = await queue.pop(one_ack=True)
    await queue.push(grouped(*["a"] * 50, "b"))
    assert queue.queue.lanes[0].line.head(queue.queue.lanes[0].log.settled) is None
    assert queue.receive_at_once(10) is None, "it cannot know yet"
    assert queue.pop_at_once(10, 1_000_000, "", None, True) is None
    if is_native:
        assert texts(await queue.pop(10)) == ["50"]
    else:
        assert texts(await queue.pop(10, one_ack=True)) == ["50"]
    await ack(queue, held)
    assert len(texts(await queue.pop(100, one_ack=True))) == 50


async def test_who_waits_is_served_when_a_free_group_is_found(rig: Rig) -> None:
    queue, got = await create(rig, fifo=True), list[str]()
    await queue.push(grouped("a"))
    await queue.pop(one_ack=True)

    def take(delivery: Delivery) -> None:
        got.extend(texts(delivery))

    queue.subscribe(MANY, take, lambda _: None)
    await queue.push(grouped(*["a"] * MANY, "b"))
    await asyncio.sleep(1)
    assert got == [str(MANY)]


async def test_redrive_looks_behind_a_locked_group(rig: Rig) -> None:
    engine = await rig.start()
    source = await engine.create_queue("q_dlq", QueueSettings(fifo=True))
    target = await engine.create_queue("q", QueueSettings(fifo=True))
    await source.push(grouped("a"))
    await source.pop(one_ack=True)
    await source.push(grouped(*["a"] * MANY, "b"))
    task = await engine.redrive("q_dlq", "q")
    assert await task.finished == 1
    assert texts(await target.pop()) == [str(MANY)]


@pytest.mark.parametrize("fifo", KINDS)
async def test_claim_waits_for_what_is_not_sorted(rig: Rig, fifo: bool) -> None:
    queue = await create(rig, fifo)
    epoch = await queue.claims.open("spark")
    await queue.push(grouped("a"))
    await queue.pop(one_ack=True)
    await queue.push(grouped(*["a"] * 50, "b") if fifo else apart())
    claim = await queue.claims.claim("spark", epoch, 0, 1_000, 60_000)
    assert claim.number == 1
    assert claim.count >= 1


@pytest.mark.parametrize("fifo", KINDS)
async def test_redrive_moves_all(rig: Rig, fifo: bool) -> None:
    engine = await rig.start()
    source = await engine.create_queue("q_dlq", QueueSettings(fifo=fifo))
    target = await engine.create_queue("q", QueueSettings(fifo=fifo))
    await source.push(apart())
    task = await engine.redrive("q_dlq", "q")
    assert await task.finished == MANY
    assert source.info().depth == 0
    assert target.info().ready == MANY


@pytest.mark.parametrize("fifo", KINDS)
async def test_reload_in_the_midst_of_it(rig: Rig, fifo: bool) -> None:
    queue = await create(rig, fifo)
    await queue.push(apart())
    rig.journal.refuse_commit = lambda _: ReadOnly("the disk is full")
    with pytest.raises(ReadOnly):
        await queue.push(grouped("late"))
    rig.journal.refuse_commit = lambda _: None
    await asyncio.sleep(10)
    check(queue.queue)
    got: list[str] = []
    while (delivery := await queue.pop(50, one_ack=True)).parts:
        got += texts(delivery)
    assert got == EXPECTED


@pytest.mark.parametrize("fifo", KINDS)
async def test_queue_that_is_deleted_in_the_midst_of_it(rig: Rig, fifo: bool) -> None:
    queue = await create(rig, fifo)
    await queue.push(apart())
    assert rig.engine is not None
    await rig.engine.delete_queue("q")
    await asyncio.sleep(1)
    assert queue.queue.is_sorted


@pytest.mark.parametrize("fifo", KINDS)
async def test_restart_in_the_midst_of_it(rig: Rig, fifo: bool) -> None:
    queue = await create(rig, fifo)
    await queue.push(apart())
    engine = await rig.crash()
    assert len(texts(await engine.queue("q").pop(1_000, one_ack=True))) == MANY
