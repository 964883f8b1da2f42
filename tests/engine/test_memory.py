"""Memory: contents beyond the limit leave it, come back in order, and the limit is kept."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from nexo.engine import memory
from nexo.vocabulary.attributes import encode_attributes
from nexo.vocabulary.errors import DataCorrupt, QueueNotFound
from nexo.vocabulary.limits import (
    COUNTED_NOTES,
    PAYLOAD_SHARE_MIN,
    SPARSE_CHUNK_BYTES,
    UNFOLDED_BYTES_MAX,
    UNREADABLE_RETRY_MS,
)
from nexo.vocabulary.settings import QueueSettings
from tests.engine.rig import Rig, ack, bodies_of, body, nack, number_of, numbered, texts
from tests.engine.virtual_time import settle

if TYPE_CHECKING:
    from nexo.engine.engine import Engine
    from nexo.engine.queue_actor import QueueActor
    from nexo.engine.topic_actor import TopicActor

SIZE = 1_000
BATCH = 100
CHUNK_BYTES = SIZE * BATCH
LIMIT_BYTES = 10 * CHUNK_BYTES
# Beside the limit there may be what was read ahead for whoever is next.
NEAR_BYTES = LIMIT_BYTES + 2 * int(1.1 * CHUNK_BYTES)


def resident_bytes(engine: Engine) -> int:
    """Counted from scratch."""
    holders: list[QueueActor | TopicActor] = [*engine.queues.values(), *engine.topics.values()]
    return sum(
        chunk.memory_bytes
        for holder in holders
        for log in holder.logs()
        for chunk in log.chunks.values()
        if chunk.content is not None
    )


async def fill(queue: QueueActor, batches: int, start: int = 0) -> None:
    for number in range(batches):
        await queue.push(numbered(BATCH, start + number * BATCH, SIZE))


async def test_the_memory_of_a_drained_backlog_goes_back_to_the_system(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    given_back: list[int] = []
    monkeypatch.setattr(memory, "give_memory_back", lambda: given_back.append(1))
    monkeypatch.setattr(memory, "GIVEN_BACK_BYTES_MIN", 5 * CHUNK_BYTES)
    queue = await (await rig.start()).create_queue("q")
    for backlog, times in ((4, 0), (6, 1), (6, 2)):
        await fill(queue, backlog)
        await asyncio.sleep(5)
        assert len(given_back) == max(0, times - 1), "the backlog is still there"
        while (delivery := await queue.pop(1_000, one_ack=True)).parts:
            await ack(queue, delivery)
        await asyncio.sleep(5)
        assert len(given_back) == times


async def test_a_queue_that_was_deleted_is_forgotten(rig: Rig) -> None:
    engine = await rig.start()
    queue = await engine.create_queue("q")
    await fill(queue, 1)
    gone = weakref.ref(queue)
    del queue
    await engine.delete_queue("q")
    await asyncio.sleep(1)
    gc.collect()
    assert gone() is None


async def test_a_backlog_beyond_the_limit_leaves_memory_and_comes_back_in_order(rig: Rig) -> None:
    engine = await rig.start(LIMIT_BYTES)
    queue = await engine.create_queue("q")
    for number in range(50):
        await fill(queue, 1, number * BATCH)
        assert resident_bytes(engine) <= NEAR_BYTES
    assert resident_bytes(engine) > LIMIT_BYTES // 2
    expected = 0
    while (delivery := await queue.pop(70, one_ack=True)).parts:
        for part in delivery.parts:
            for text in bodies_of(part):
                assert text == body(expected, SIZE)
                expected += 1
        await ack(queue, delivery)
        assert resident_bytes(engine) <= NEAR_BYTES
        assert engine.memory.resident_bytes == resident_bytes(engine)
    assert expected == 50 * BATCH
    assert rig.journal.fetched, "all of it was in memory: the test tests nothing"
    assert resident_bytes(engine) == 0


async def keys_of(queue: QueueActor, count: int) -> None:
    """A backlog of keys alone: what they stood for is gone."""
    for start in range(0, count, 500):
        keys = [f"a key of usual length {number:08}" for number in range(start, start + 500)]
        await queue.push(msgspec.structs.replace(numbered(500, size=1), deduplication_ids=keys))
        await ack(queue, await queue.pop(500, one_ack=True))


async def test_what_else_is_in_memory_leaves_less_for_payloads(rig: Rig) -> None:
    engine = await rig.start(LIMIT_BYTES)
    queue = await engine.create_queue("q")
    keyed = await engine.create_queue("keyed", QueueSettings(deduplication="id"))
    await fill(queue, 20)
    assert resident_bytes(engine) > LIMIT_BYTES * 3 // 4
    await keys_of(keyed, 3_000)
    await asyncio.sleep(1)  # then it is counted at the latest
    await fill(queue, 1, 20 * BATCH)
    kept_bytes = queue.queue.bookkeeping_bytes + keyed.queue.bookkeeping_bytes
    assert kept_bytes > LIMIT_BYTES // 3
    assert abs(engine.memory.bookkeeping_bytes - kept_bytes) < kept_bytes // 100
    assert resident_bytes(engine) + kept_bytes <= NEAR_BYTES
    await keys_of(keyed, 10_000)
    await asyncio.sleep(1)
    await fill(queue, 1, 21 * BATCH)
    assert LIMIT_BYTES // 8 < resident_bytes(engine) <= LIMIT_BYTES // PAYLOAD_SHARE_MIN
    engine = await rig.restart(LIMIT_BYTES)
    assert engine.memory.bookkeeping_bytes > LIMIT_BYTES, "what was there before is not counted"
    await engine.delete_queue("keyed")
    assert engine.memory.bookkeeping_bytes < LIMIT_BYTES // 10


async def test_it_is_counted_now_and_then_and_not_with_every_commit(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = await rig.start()
    queue = await engine.create_queue("q")
    counted: list[object] = []
    monkeypatch.setattr(engine.memory, "count", counted.append)
    for _ in range(10 * COUNTED_NOTES):
        await queue.push_one(b"x")
    assert counted == [queue] * 10


async def test_many_queues_that_are_being_filled_keep_to_the_limit(rig: Rig) -> None:
    engine = await rig.start(LIMIT_BYTES)
    queues = [await engine.create_queue(f"q{number}") for number in range(40)]
    for number in range(40):
        for queue in queues:
            await queue.push_one(body(number, SIZE))
    assert resident_bytes(engine) <= LIMIT_BYTES
    for queue in queues:
        assert [number_of(text.encode()) for text in texts(await queue.pop(40))] == list(range(40))


async def test_attributes_count_towards_the_limit(rig: Rig) -> None:
    engine = await rig.start(LIMIT_BYTES)
    queue = await engine.create_queue("q")
    attributes: list[bytes | None] = [encode_attributes({"a": "x" * SIZE})] * BATCH
    for number in range(30):
        batch = numbered(BATCH, number * BATCH, 1)
        await queue.push(msgspec.structs.replace(batch, attributes=attributes))
    assert LIMIT_BYTES // 2 < engine.memory.resident_bytes <= NEAR_BYTES
    assert sum(chunk.content is None for log in queue.logs() for chunk in log.chunks.values()) > 15


async def test_what_is_needed_first_stays(rig: Rig) -> None:
    engine = await rig.start(LIMIT_BYTES)
    queue = await engine.create_queue("q")
    await fill(queue, 50)
    for _ in range(5):
        await ack(queue, await queue.pop(BATCH, one_ack=True))
    assert rig.journal.fetched == [], "the head of the line had left memory"


async def test_deliveries_that_nobody_acks_do_not_fill_memory(rig: Rig) -> None:
    engine = await rig.start(LIMIT_BYTES)
    queue = await engine.create_queue("q")
    await fill(queue, 50)
    for expected in range(50):
        delivery = await queue.pop(BATCH, one_ack=True)
        first = next(bodies_of(part)[0] for part in delivery.parts)
        assert number_of(first) == expected * BATCH
        await asyncio.sleep(0.1)
        assert resident_bytes(engine) <= NEAR_BYTES


async def test_several_queues_share_the_limit(rig: Rig) -> None:
    engine = await rig.start(LIMIT_BYTES)
    queues = [await engine.create_queue(f"q{number}") for number in range(8)]
    for round_ in range(10):
        for queue in queues:
            await fill(queue, 1, round_ * BATCH)
            assert resident_bytes(engine) <= NEAR_BYTES
    seen = await asyncio.gather(*[drain(queue) for queue in queues])
    assert seen == [list(range(10 * BATCH))] * 8
    assert resident_bytes(engine) == 0


async def drain(queue: QueueActor) -> list[int]:
    numbers: list[int] = []
    while (delivery := await queue.pop(64, wait_ms=100, one_ack=True)).parts:
        numbers += [number_of(text) for part in delivery.parts for text in bodies_of(part)]
        await ack(queue, delivery)
    return numbers


async def test_a_limit_smaller_than_one_chunk_still_works(rig: Rig) -> None:
    engine = await rig.start(1)
    queues = [await engine.create_queue(f"q{number}") for number in range(4)]
    for queue in queues:
        await fill(queue, 10)
    seen = await asyncio.gather(*[drain(queue) for queue in queues])
    assert seen == [list(range(10 * BATCH))] * 4


async def test_priorities_share_the_limit_and_the_highest_stays(rig: Rig) -> None:
    engine = await rig.start(LIMIT_BYTES)
    queue = await engine.create_queue("q")
    for number in range(30):
        batch = msgspec.structs.replace(numbered(BATCH, 0, SIZE), priority=number % 3)
        await queue.push(batch)
    resident = {lane.priority: lane.log.resident_bytes for lane in queue.queue.lanes}
    assert resident[2] > resident[1] >= resident[0], resident


async def test_peeking_at_what_left_memory(rig: Rig) -> None:
    engine = await rig.start(LIMIT_BYTES // 5)
    queue = await engine.create_queue("q")
    await fill(queue, 20)
    await queue.pop(250, one_ack=True)
    async with asyncio.timeout(10):
        seen = await queue.peek(1_000)
    assert [m.body for m in seen] == [body(number, SIZE) for number in range(1_000)]
    await queue.push(numbered(1))
    assert resident_bytes(engine) <= NEAR_BYTES


async def test_claims_of_what_left_memory(rig: Rig) -> None:
    engine = await rig.start(LIMIT_BYTES // 5)
    queue = await engine.create_queue("q")
    await fill(queue, 40)
    desk, numbers, after = queue.claims, [], 0
    epoch = await desk.open("spark")
    async with asyncio.timeout(10):
        while (claim := await desk.claim("spark", epoch, after, 1_000, 60_000)).count:
            after = claim.number
            await desk.seal("spark", epoch, after)
            twice = [(await desk.read("spark", epoch, after)).parts for _ in range(2)]
            first, again = [[number_of(t) for p in parts for t in bodies_of(p)] for parts in twice]
            assert first == again
            numbers += first
            await asyncio.sleep(0.1)
            assert resident_bytes(engine) <= NEAR_BYTES
    assert numbers == list(range(40 * BATCH))


async def test_reading_a_topic_does_not_fill_memory(rig: Rig) -> None:
    engine = await rig.start(LIMIT_BYTES)
    topic = await engine.create_topic("t")
    for number in range(50):
        await topic.publish(numbered(BATCH, number * BATCH, SIZE))
    for _ in range(2):
        offset = 0
        while (reading := await topic.read(offset, 150)).parts:
            for part in reading.parts:
                for text in bodies_of(part):
                    assert text == body(offset, SIZE)
                    offset += 1
            assert offset == reading.next
            assert resident_bytes(engine) <= NEAR_BYTES
        assert offset == 50 * BATCH


async def test_nothing_that_is_not_on_disk_leaves_memory(rig: Rig) -> None:
    engine = await rig.start(1)
    queue = await engine.create_queue("q")
    rig.runner.is_held = True
    pushes = [queue.push(numbered(BATCH, number * BATCH, SIZE)) for number in range(5)]
    pushes += [queue.push(numbered(1, 500, SIZE))]
    await settle()
    rig.runner.release()
    await asyncio.gather(*pushes)
    assert await drain(queue) == list(range(501))


@pytest.mark.parametrize("event", ["purge", "delete", "retention", "ack"])
async def test_what_goes_while_it_is_read_back_disturbs_nobody(rig: Rig, event: str) -> None:
    """The row is dropped by a commit that comes before the read in the journal's line."""
    queue = await (await rig.start()).create_queue("q", QueueSettings(retention_ms=20_000))
    await fill(queue, 2)
    held = await queue.pop(2 * BATCH, one_ack=True)
    await nack(queue, held)
    held = await queue.pop(BATCH, one_ack=True)
    await asyncio.sleep(15)
    engine = await rig.restart()
    queue = engine.queue("q")
    rig.runner.is_held = True
    pop = asyncio.create_task(queue.pop(10, wait_ms=30_000))
    peek = asyncio.create_task(queue.peek(1_000))
    await settle()
    assert rig.runner.held
    going: asyncio.Future[Any]
    if event == "purge":
        going = queue.purge()
    elif event == "delete":
        going = asyncio.create_task(engine.delete_queue("q"))
    elif event == "ack":
        going = asyncio.create_task(ack(queue, held))
    else:
        going = asyncio.create_task(asyncio.sleep(6))
        await asyncio.sleep(6)
    await settle()
    rig.runner.release()
    await going
    results = await asyncio.gather(pop, peek, return_exceptions=True)
    errors = [each for each in results if isinstance(each, BaseException)]
    assert all(isinstance(error, QueueNotFound) for error in errors), errors
    assert not errors or event == "delete"


async def test_a_bad_row_does_not_stop_those_before_it(rig: Rig) -> None:
    queue = await (await rig.start()).create_queue("q")
    await fill(queue, 3)
    rows = sorted(rig.disk.rows)
    engine = await rig.restart()
    rig.journal.refuse_fetch = lambda asked: DataCorrupt("rotten") if rows[1] in asked else None
    queue = engine.queue("q")
    delivery = await queue.pop(BATCH, one_ack=True, visibility_ms=3_600_000)
    assert number_of(texts(delivery)[0].encode()) == 0
    assert engine.memory.unreadable() == [], "what was only read ahead is no trouble yet"
    delivery = await queue.pop(BATCH, one_ack=True, visibility_ms=3_600_000)
    assert number_of(texts(delivery)[0].encode()) == 2 * BATCH, "it was not passed over"
    assert not (await queue.pop(BATCH, one_ack=True)).parts
    (told,) = engine.memory.unreadable()
    assert (told.name, told.first, told.messages) == ("q", BATCH, BATCH)
    info = queue.info()
    assert (info.depth, info.unreadable, info.ready) == (3 * BATCH, BATCH, 0)
    rig.journal.refuse_fetch = lambda _: None
    waiting = asyncio.create_task(queue.pop(BATCH, one_ack=True, wait_ms=2 * UNREADABLE_RETRY_MS))
    assert number_of(texts(await waiting)[0].encode()) == BATCH, "it was not tried again"
    assert engine.memory.unreadable() == [], "it was read after all"


@pytest.mark.parametrize("gone", ["purged", "deleted"])
async def test_messages_that_are_gone_are_not_unreadable(rig: Rig, gone: str) -> None:
    queue = await (await rig.start()).create_queue("q")
    await fill(queue, 1)
    engine = await rig.restart()
    queue = engine.queue("q")
    rig.journal.refuse_fetch = lambda _: DataCorrupt("rotten")
    assert not (await queue.pop()).parts
    assert engine.memory.unreadable()
    await (queue.purge() if gone == "purged" else engine.delete_queue("q"))
    assert engine.memory.unreadable() == []


async def test_messages_of_a_deleted_topic_are_not_unreadable(rig: Rig) -> None:
    topic = await (await rig.start()).create_topic("t")
    await topic.publish(numbered(5))
    engine = await rig.restart()
    rig.journal.refuse_fetch = lambda _: DataCorrupt("rotten")
    assert not (await engine.topic("t").read(0, 5)).parts
    (told,) = engine.memory.unreadable()
    assert (told.name, told.first, told.messages) == ("t", 0, 5)
    await engine.delete_topic("t")
    assert engine.memory.unreadable() == []


async def test_sparse_chunks_are_copied_forward_and_their_rows_freed(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nexo.vocabulary.limits.UNFOLDED_BYTES_MAX", 2_000)
    assert UNFOLDED_BYTES_MAX > 2_000
    engine = await rig.start()
    queue = await engine.create_queue("q")
    await fill(queue, 5)
    kept = []
    for _ in range(5):
        delivery = await queue.pop(BATCH, one_ack=True)
        (part,) = delivery.parts
        kept.append(part.first + 50)
        await queue.ack(delivery.lease, part.first, part.first + 50)
        await queue.ack(delivery.lease, part.first + 51, part.first + BATCH)
    before_bytes = sum(len(columns[5]) for columns in rig.disk.rows.values())
    assert before_bytes >= 5 * SPARSE_CHUNK_BYTES
    other = await engine.create_queue("other")
    for number in range(200):  # records, until a snapshot is due
        await queue.push(numbered(1, number))
        await ack(queue, await queue.pop(1, one_ack=True))
    await other.push(numbered(1))
    await asyncio.sleep(1)
    stored_bytes = sum(len(columns[5]) for columns in rig.disk.rows.values())
    assert stored_bytes < 6 * SIZE, f"{before_bytes} bytes became {stored_bytes}"
    engine = await rig.restart()
    await asyncio.sleep(60)
    seen = await engine.queue("q").peek(10)
    assert [(m.seq, m.body) for m in seen] == [(seq, body(seq, SIZE)) for seq in kept]


async def test_a_chunk_copied_forward_stays_until_its_new_row_is_on_disk(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = await rig.start(int(1.2 * CHUNK_BYTES))
    queue, other = await engine.create_queue("q"), await engine.create_queue("other")
    await fill(queue, 1)
    delivery = await queue.pop(BATCH, one_ack=True)
    await queue.ack(delivery.lease, 1, 90)
    monkeypatch.setattr("nexo.vocabulary.limits.UNFOLDED_BYTES_MAX", 1)
    monkeypatch.setattr("nexo.vocabulary.limits.SNAPSHOT_BYTES_MIN", 1)
    rig.runner.is_held = True
    pushes = [other.push(numbered(30, 0, SIZE)) for _ in range(5)]  # too much, and cannot leave
    acked = queue.ack(delivery.lease, 90, 91)
    await settle()  # a snapshot is taken, and the chunk copied forward while the commit runs
    (chunk,) = queue.queue.lanes[0].log.chunks.values()
    assert chunk.seqs is not None, "nothing was copied forward: the test tests nothing"
    assert not rig.disk.rows.keys() & set(chunk.rows)
    rig.runner.step()
    await asyncio.gather(acked, *pushes)
    assert chunk.content is not None, "it left memory, and there is no row to read it from"
    rig.runner.release()
    await settle()
    engine.memory.limit_bytes = 1
    await other.push(numbered(1))
    assert chunk.content is None
    assert [m.body for m in await queue.peek()] == [body(seq, SIZE) for seq in (0, *range(91, 100))]
