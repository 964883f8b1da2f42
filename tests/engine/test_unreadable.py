"""Messages that the disk cannot give: everything goes past them, and they stay where they are."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
import pytest

from nexo.vocabulary.attributes import encode_attributes
from nexo.vocabulary.errors import DataCorrupt, ReadOnly
from nexo.vocabulary.limits import SMALL_PUSH_BYTES, UNREADABLE_RETRY_MS
from nexo.vocabulary.settings import QueueSettings
from nexo.vocabulary.start import Start
from tests.engine.rig import Rig, ack, bodies, bodies_of, nack, numbered, peeked, texts
from tests.engine.virtual_time import settle

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nexo.engine.queue_actor import QueueActor
    from nexo.engine.topic_actor import TopicActor

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


async def read_slices(queue: QueueActor, epoch: int, count: int) -> list[str]:
    """The first batch as Spark's tasks read it: each goes on where its last answer ended."""
    got: list[str] = []
    at = 0
    while at < 5:
        found = await queue.claims.read("spark", epoch, 1, at, count)
        assert found.next > at, "whoever reads a slice does not get past it"
        got += [text.decode() for part in found.parts for text in bodies_of(part)]
        at = found.next
    return got


@pytest.mark.parametrize("count", [1, 2, 5])
async def test_a_sealed_batch_goes_on_without_it_and_its_ack_keeps_it(rig: Rig, count: int) -> None:
    queue = await rotten(rig)
    refuse = rig.journal.refuse_fetch
    epoch = await queue.claims.open("spark")
    assert (await queue.claims.claim("spark", epoch, 0, 5, 60_000)).count == 5
    await queue.claims.seal("spark", epoch, 1)
    assert await read_slices(queue, epoch, count) == LEFT
    queue = (await rig.restart()).queue("q")
    rig.journal.refuse_fetch = refuse
    assert await read_slices(queue, epoch, count) == LEFT, "not the same after a restart"
    assert await queue.claims.ack("spark", epoch, 1) == 4
    assert (queue.info().depth, queue.info().acked, queue.info().unreadable) == (1, 4, 1)
    assert (await queue.claims.claim("spark", epoch, 1, 5, 60_000)).number == 0
    rig.journal.refuse_fetch = lambda _: None
    await asyncio.sleep(UNREADABLE_RETRY_MS / 1000)
    assert texts(await queue.pop(5, wait_ms=1_000)) == ["2"]


async def test_a_sealed_batch_stays_what_it_was_when_it_can_be_read(rig: Rig) -> None:
    """Spark may have committed what another task of the same batch has read."""
    queue = await rotten(rig)
    epoch = await queue.claims.open("spark")
    await queue.claims.claim("spark", epoch, 0, 5, 60_000)
    await queue.claims.seal("spark", epoch, 1)
    assert await read_slices(queue, epoch, 5) == LEFT
    rig.journal.refuse_fetch = lambda _: None
    assert await read_slices(queue, epoch, 5) == LEFT
    assert await queue.claims.ack("spark", epoch, 1) == 4
    await asyncio.sleep(UNREADABLE_RETRY_MS / 1000)
    assert texts(await queue.pop(5, wait_ms=1_000)) == ["2"]


@pytest.mark.parametrize("way", ["ack", "claim"])
async def test_what_an_ack_kept_is_tried_again_by_itself(rig: Rig, way: str) -> None:
    queue = await rotten(rig)
    epoch = await queue.claims.open("spark")
    await queue.claims.claim("spark", epoch, 0, 5, LONG_MS)
    await queue.claims.seal("spark", epoch, 1)
    assert await read_slices(queue, epoch, 5) == LEFT
    await asyncio.sleep(UNREADABLE_RETRY_MS / 1000 + 1)  # it was tried, and is in nobody's line
    if way == "ack":
        await queue.claims.ack("spark", epoch, 1)
    else:
        await queue.claims.claim("spark", epoch, 1, 5, LONG_MS)
    rig.journal.refuse_fetch = lambda _: None
    await asyncio.sleep(UNREADABLE_RETRY_MS / 1000 + 1)
    assert (queue.info().ready, queue.info().unreadable) == (1, 0)


async def test_what_is_passed_over_is_on_disk_before_it_is_told(rig: Rig) -> None:
    queue = await rotten(rig)
    epoch = await queue.claims.open("spark")
    await queue.claims.claim("spark", epoch, 0, 5, 60_000)
    await queue.claims.seal("spark", epoch, 1)
    rig.journal.refuse_commit = lambda _: ReadOnly("the disk is full")
    with pytest.raises(ReadOnly):
        await read_slices(queue, epoch, 5)


async def test_a_batch_that_is_not_sealed_is_told_of_it(rig: Rig) -> None:
    queue = await rotten(rig)
    epoch = await queue.claims.open("spark")
    await queue.claims.claim("spark", epoch, 0, 5, 60_000)
    with pytest.raises(DataCorrupt):
        await read_slices(queue, epoch, 5)
    await queue.claims.seal("spark", epoch, 1)
    rig.journal.refuse_fetch = lambda _: None
    assert await read_slices(queue, epoch, 5) == ["0", "1", "2", "3", "4"]


async def test_all_pieces_of_a_line_stand_aside_and_come_back(rig: Rig) -> None:
    queue = await (await rig.start()).create_queue("q")
    await queue.push(numbered(10))
    popped = [await queue.pop(1, one_ack=True) for _ in range(10)]
    for delivery in popped[::2]:
        await nack(queue, delivery)
    for delivery in popped[1::2]:
        await ack(queue, delivery)
    queue = (await rig.restart()).queue("q")
    rig.journal.refuse_fetch = lambda _: DataCorrupt("rotten")
    assert not (await queue.pop(10)).parts
    assert (queue.info().ready, queue.info().unreadable) == (0, 5)
    rig.journal.refuse_fetch = lambda _: None
    await asyncio.sleep(UNREADABLE_RETRY_MS / 1000)
    assert sorted(texts(await queue.pop(10, wait_ms=1_000))) == ["0", "2", "4", "6", "8"]


async def test_a_batch_that_is_planned_anew_has_it_if_it_can_be_read(rig: Rig) -> None:
    queue = await rotten(rig)
    epoch = await queue.claims.open("spark")
    await queue.claims.claim("spark", epoch, 0, 5, 60_000)
    await queue.claims.seal("spark", epoch, 1)
    assert await read_slices(queue, epoch, 5) == LEFT
    rig.journal.refuse_fetch = lambda _: None
    await queue.claims.seal("spark", epoch, 1)
    assert await read_slices(queue, epoch, 5) == ["0", "1", "2", "3", "4"]
    assert await queue.claims.ack("spark", epoch, 1) == 5
    assert queue.info().depth == 0


async def test_a_batch_with_it_can_be_released(rig: Rig) -> None:
    queue = await rotten(rig)
    epoch = await queue.claims.open("spark")
    await queue.claims.claim("spark", epoch, 0, 5, 60_000)
    await queue.claims.seal("spark", epoch, 1)
    assert await read_slices(queue, epoch, 5) == LEFT
    assert await queue.claims.release("spark") == 5
    assert texts(await queue.pop(2, one_ack=True)) == ["0", "1"]
    assert texts(await queue.pop(2, one_ack=True)) == ["3", "4"]
    assert queue.info().unreadable == 1


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


async def test_a_redrive_counts_every_message_that_it_goes_past(rig: Rig) -> None:
    engine = await rig.start()
    queue = await engine.create_queue("q")
    for start in (0, 40, 80, 120):
        await queue.push(numbered(40, start))
    rows = sorted(rig.disk.rows)
    engine = await rig.restart()
    rot(rig, rows)
    await engine.create_queue("target")
    task = await engine.redrive("q", "target")
    assert await task.finished == 120
    assert (task.progress().moved, task.progress().skipped) == (120, 40)


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


async def rotten_topic(rig: Rig, rotten: set[int]) -> TopicActor:
    """A topic of one chunk after a restart, with two messages in each of its ten rows."""
    topic = await (await rig.start()).create_topic("t")
    for number in range(10):
        await topic.publish(numbered(2, 2 * number))
        await asyncio.sleep(0.01)
    rows = sorted(rig.disk.rows)
    topic = (await rig.restart()).topic("t")
    assert len(topic.topic.log.chunks) == 1

    def refuse(asked: Sequence[int]) -> DataCorrupt | None:
        return DataCorrupt("rotten") if {rows[each] for each in rotten} & set(asked) else None

    rig.journal.refuse_fetch = refuse
    return topic


@pytest.mark.parametrize(
    ("rotten", "lost"),
    [({0}, range(2)), ({3}, range(6, 8)), ({3, 5}, range(6, 12)), ({9}, range(18, 20))],
)
@pytest.mark.parametrize("count", [1, 3, 100])
async def test_readers_of_a_topic_go_past_it(
    rig: Rig, rotten: set[int], lost: range, count: int
) -> None:
    topic = await rotten_topic(rig, rotten)
    got: list[str] = []
    offset = 0
    while offset < 20:
        reading = await topic.read(offset, count)
        assert reading.next > offset, "a reader does not get past it"
        got += texts(reading)
        offset = reading.next
    assert got == [str(number) for number in range(20) if number not in lost]
    assert rig.engine is not None
    (told,) = rig.engine.memory.unreadable()  # by the log and the metrics
    assert told.name == "t"
    rig.journal.refuse_fetch = lambda _: None
    assert texts(await topic.read(0)) == [str(number) for number in range(20)], "it must stay"


async def test_followers_go_past_it_and_a_strict_read_does_not(rig: Rig) -> None:
    topic = await rotten_topic(rig, {0})
    assert rig.engine is not None
    (found,) = await rig.engine.follow("*", {}, 100, 10**6, 0)
    assert texts(found.reading) == [str(number) for number in range(2, 20)]
    with pytest.raises(DataCorrupt):
        await topic.read(0, strict=True)


async def test_a_reader_behind_the_last_waits_for_more(rig: Rig) -> None:
    topic = await rotten_topic(rig, {9})
    waiting = asyncio.create_task(topic.read(18, wait_ms=5_000))
    await settle()
    await topic.publish(bodies("more"))
    assert texts(await waiting) == ["more"]


async def test_a_start_at_a_time_that_cannot_be_read(rig: Rig) -> None:
    topic = await rotten_topic(rig, {4})
    chunk = next(iter(topic.topic.log.chunks.values()))
    assert await topic.offset_of(Start(time_ms=chunk.created_last_ms)) == 0


async def test_a_late_receipt_still_removes_it(rig: Rig) -> None:
    engine = await rig.start()
    queue = await engine.create_queue("q")
    await queue.push(numbered(50))
    queue = (await rig.restart()).queue("q")
    rig.journal.refuse_fetch = lambda _: DataCorrupt("rotten")
    assert not (await queue.pop(1)).parts
    assert queue.holds(7)
    removed = queue.discard(7)
    assert removed is not None
    await removed
    assert not queue.holds(7)
    assert (queue.info().depth, queue.info().unreadable) == (49, 49)
