"""Messages that the disk cannot give: everything goes past them, and they stay where they are."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
import pytest

from nexo.vocabulary.attributes import encode_attributes
from nexo.vocabulary.errors import DataCorrupt
from nexo.vocabulary.limits import SMALL_PUSH_BYTES, UNREADABLE_RETRY_MS
from nexo.vocabulary.settings import QueueSettings
from tests.engine.rig import Rig, ack, bodies, numbered, peeked, texts
from tests.engine.virtual_time import settle

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nexo.engine.queue_actor import QueueActor

ROTTEN = 2  # of the rows, the number of the one that cannot be read
LEFT = ["0", "1", "3", "4"]
LONG_MS = 3_600_000
LARGE = encode_attributes({"filler": "x" * SMALL_PUSH_BYTES})  # a chunk of its own in the queue


def rot(rig: Rig, rows: list[int]) -> None:
    def refuse(asked: Sequence[int]) -> DataCorrupt | None:
        return DataCorrupt("rotten") if rows[ROTTEN] in asked else None

    rig.journal.refuse_fetch = refuse


async def rotten(rig: Rig, settings: QueueSettings | None = None, group: str = "") -> QueueActor:
    """Five messages in a row each after a restart, the third of them unreadable."""
    engine = await rig.start()
    topic = await engine.create_topic("t")
    await engine.create_queue("q", settings or QueueSettings(visibility_timeout_ms=LONG_MS))
    await engine.bind("t", "q")
    for number in range(5):
        batch = msgspec.structs.replace(bodies(str(number)), attributes=LARGE)
        await topic.publish(msgspec.structs.replace(batch, groups=group) if group else batch)
    rows = sorted(rig.disk.rows)
    engine = await rig.restart()
    rot(rig, rows)
    return engine.queue("q")


async def test_pops_go_past_it(rig: Rig) -> None:
    queue = await rotten(rig)
    got: list[str] = []
    while (delivery := await queue.pop(1, one_ack=True)).parts:
        got += texts(delivery)
        await ack(queue, delivery)
    assert got == LEFT
    info = queue.info()
    assert (info.depth, info.ready, info.unreadable) == (1, 0, 1)


async def test_two_pops_that_meet_it_both_go_past_it(rig: Rig) -> None:
    queue = await rotten(rig)
    await ack(queue, await queue.pop(2, one_ack=True))
    rig.runner.is_held = True
    pops = [asyncio.create_task(queue.pop(1, one_ack=True)) for _ in range(2)]
    await settle()
    rig.runner.release()
    assert sorted(texts(await pops[0]) + texts(await pops[1])) == ["3", "4"]


async def test_subscriptions_go_past_it_and_get_it_when_it_can_be_read(rig: Rig) -> None:
    queue = await rotten(rig)
    got: list[str] = []
    take, ended = lambda delivery: got.extend(texts(delivery)), lambda _: None
    queue.subscribe(10, take, ended, one_ack=True)
    await asyncio.sleep(1)
    assert got == LEFT
    reads = len(rig.journal.fetched)
    await asyncio.sleep(10)
    assert len(rig.journal.fetched) == reads, "it is read again and again"
    rig.journal.refuse_fetch = lambda _: None
    await asyncio.sleep(UNREADABLE_RETRY_MS / 1000)
    assert got == [*LEFT, "2"]
    assert queue.info().unreadable == 0


async def test_it_is_in_line_after_a_restart(rig: Rig) -> None:
    queue = await rotten(rig)
    assert texts(await queue.pop(2, one_ack=True)) == ["0", "1"]
    assert texts(await queue.pop(2, one_ack=True)) == ["3", "4"]
    queue = (await rig.restart()).queue("q")
    assert queue.info().unreadable == 0
    assert texts(await queue.pop(10)) == ["2"]


async def test_a_group_goes_on_behind_it(rig: Rig) -> None:
    queue = await rotten(rig, QueueSettings(fifo=True), group="one")
    got: list[str] = []
    while (delivery := await queue.pop(10, one_ack=True)).parts:
        got += texts(delivery)
        await ack(queue, delivery)
    assert got == LEFT
    rig.journal.refuse_fetch = lambda _: None
    later = asyncio.create_task(queue.pop(1, one_ack=True, wait_ms=2 * UNREADABLE_RETRY_MS))
    assert texts(await later) == ["2"]


async def test_claims_go_past_it(rig: Rig) -> None:
    queue = await rotten(rig)
    epoch = await queue.claims.open("spark")
    await queue.claims.claim("spark", epoch, 0, 2, 60_000)
    claimed = await queue.claims.claim("spark", epoch, 1, 2, 60_000)
    assert claimed.number == 2


async def test_dead_letters_go_past_it(rig: Rig) -> None:
    settings = QueueSettings(max_attempts=1, visibility_timeout_ms=1_000)
    engine = await rig.start()
    topic = await engine.create_topic("t")
    queue = await engine.create_queue("q", settings)
    await engine.bind("t", "q")
    for number in range(5):
        await topic.publish(msgspec.structs.replace(bodies(str(number)), attributes=LARGE))
    rows = sorted(rig.disk.rows)
    assert len((await queue.pop(5, one_ack=True)).parts) == 5
    engine = await rig.restart()
    rot(rig, rows)
    await asyncio.sleep(2)
    assert await peeked(engine.queue("q_dlq")) == LEFT
    assert engine.queue("q").info().depth == 1
    rig.journal.refuse_fetch = lambda _: None
    await asyncio.sleep(UNREADABLE_RETRY_MS / 1000)
    assert await peeked(engine.queue("q_dlq")) == [*LEFT, "2"]


async def test_a_redrive_goes_past_it(rig: Rig) -> None:
    queue = await rotten(rig)
    engine = rig.engine
    assert engine is not None
    target = await engine.create_queue("target")
    task = await engine.redrive("q", "target")
    assert await task.finished == 4
    assert (task.progress().moved, task.progress().skipped) == (4, 1)
    assert await peeked(target) == LEFT
    assert queue.info().unreadable == 1


async def test_peeking_shows_the_others(rig: Rig) -> None:
    queue = await rotten(rig)
    assert await peeked(queue) == LEFT
    assert queue.info().unreadable == 1


async def test_a_peek_is_told_of_what_is_in_flight(rig: Rig) -> None:
    """It cannot stand aside: somebody holds it."""
    engine = await rig.start()
    queue = await engine.create_queue("q")
    await queue.push(numbered(50))
    await queue.pop(1, one_ack=True)
    queue = (await rig.restart()).queue("q")
    rig.journal.refuse_fetch = lambda _: DataCorrupt("rotten")
    with pytest.raises(DataCorrupt):
        await queue.peek()
    assert queue.info().unreadable == 49


@pytest.mark.parametrize("way", ["purge", "delete"])
async def test_it_goes_with_a_purge(rig: Rig, way: str) -> None:
    queue = await rotten(rig)
    assert await peeked(queue) == LEFT
    assert rig.engine is not None
    if way == "purge":
        assert await queue.purge() == 5
        await queue.push(bodies("a"))
        assert await peeked(queue) == ["a"]
    else:
        await rig.engine.delete_queue("q")
    await rig.engine.delete_topic("t")


async def test_a_late_receipt_still_removes_it(rig: Rig) -> None:
    engine = await rig.start()
    queue = await engine.create_queue("q")
    await queue.push(numbered(50))
    queue = (await rig.restart()).queue("q")
    rig.journal.refuse_fetch = lambda _: DataCorrupt("rotten")
    assert not (await queue.pop(1)).parts
    assert queue.late.holds(7)
    removed = queue.late.discard(7)
    assert removed is not None
    await removed
    assert not queue.late.holds(7)
    assert (queue.info().depth, queue.info().unreadable) == (49, 49)
