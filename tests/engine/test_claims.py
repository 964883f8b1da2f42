"""Claims through the engine: the same batch has the same messages, also after a restart."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from nexo.machine import claims
from nexo.vocabulary import limits
from nexo.vocabulary.attributes import encode_attributes
from nexo.vocabulary.errors import Fenced, InvalidArgument, LeaseLost
from nexo.vocabulary.limits import NAME_CHARS_MAX, READ_AHEAD_CHUNKS, SHARED_CHUNK_ROWS_MAX
from nexo.vocabulary.settings import QueueSettings
from tests.engine.rig import (
    WANTED,
    Rig,
    bodies,
    bodies_of,
    number_of,
    numbered,
    publish_apart,
    texts,
)
from tests.engine.virtual_time import settle

if TYPE_CHECKING:
    from nexo.engine.queue_actor import QueueActor
    from nexo.machine.claims import Claim

NAME = "query-1"
TIMEOUT_MS = 10_000


async def claim(queue: QueueActor, epoch: int, after: int, count: int = 10) -> Claim:
    return await queue.claims.claim(NAME, epoch, after, count, TIMEOUT_MS)


async def read(queue: QueueActor, epoch: int, number: int) -> list[int]:
    parts = (await queue.claims.read(NAME, epoch, number)).parts
    return [number_of(text) for part in parts for text in bodies_of(part)]


async def filled(rig: Rig, count: int = 100) -> QueueActor:
    queue = await (await rig.start()).create_queue("q", QueueSettings(max_attempts=1))
    await queue.push(numbered(count))
    return queue


async def test_batches_follow_each_other_and_are_acked_by_the_next_claim(rig: Rig) -> None:
    queue = await filled(rig)
    epoch = await queue.claims.open(NAME)
    for number in range(1, 11):
        got = await claim(queue, epoch, number - 1)
        assert (got.number, got.count) == (number, 10)
        await queue.claims.seal(NAME, epoch, number)
        assert await read(queue, epoch, number) == list(range(10 * number - 10, 10 * number))
        assert queue.info().depth == 100 - 10 * (number - 1)
    assert await queue.claims.ack(NAME, epoch, 10) == 10
    assert queue.info().depth == 0
    assert (await claim(queue, epoch, 10)).number == 0


async def test_asking_again_gives_the_same_also_after_a_restart(rig: Rig) -> None:
    queue = await filled(rig)
    epoch = await queue.claims.open(NAME)
    first = await claim(queue, epoch, 0)
    assert await claim(queue, epoch, 0, 50) == first
    await queue.claims.seal(NAME, epoch, 1)
    await claim(queue, epoch, 1)
    queue = (await rig.restart()).queue("q")
    assert queue.info().claimed == {NAME: 10}, "claiming batch 2 acked batch 1"
    epoch = await queue.claims.open(NAME)
    again = await claim(queue, epoch, 1, 99)
    assert (again.number, again.count) == (2, 10)
    assert await read(queue, epoch, 2) == list(range(10, 20))
    queue = (await rig.crash()).queue("q")
    assert await read(queue, epoch, 2) == list(range(10, 20))


async def test_a_sealed_batch_is_held_for_ever_and_an_unsealed_one_lapses(rig: Rig) -> None:
    queue = await filled(rig, 20)
    epoch = await queue.claims.open(NAME)
    await claim(queue, epoch, 0)
    await queue.claims.seal(NAME, epoch, 1)
    other = await queue.claims.open("other")
    await queue.claims.claim("other", other, 0, 10, TIMEOUT_MS)
    pop = asyncio.create_task(queue.pop(100, wait_ms=60_000, one_ack=True))
    began = queue.now_ms()
    delivery = await pop
    assert queue.now_ms() - began == TIMEOUT_MS
    assert [number_of(text.encode()) for text in texts(delivery)] == list(range(10, 20))
    with pytest.raises(LeaseLost):
        await queue.claims.seal("other", other, 1)
    with pytest.raises(LeaseLost):
        await queue.claims.read("other", other, 1)
    await asyncio.sleep(24 * 3600)
    assert await read(queue, epoch, 1) == list(range(10))


async def test_the_heartbeat_keeps_a_claim(rig: Rig) -> None:
    queue = await filled(rig)
    epoch = await queue.claims.open(NAME)
    await claim(queue, epoch, 0)
    for _ in range(20):
        await asyncio.sleep(TIMEOUT_MS / 1000 - 1)
        queue.claims.keep(NAME, epoch, TIMEOUT_MS)
    assert await read(queue, epoch, 1) == list(range(10))
    await queue.claims.seal(NAME, epoch, 1)


async def test_a_second_driver_fences_the_first(rig: Rig) -> None:
    queue = await filled(rig)
    first = await queue.claims.open(NAME)
    await claim(queue, first, 0)
    second = await queue.claims.open(NAME)
    assert second == first + 1
    with pytest.raises(Fenced):
        await claim(queue, first, 1)
    with pytest.raises(Fenced):
        await queue.claims.ack(NAME, first, 1)
    with pytest.raises(Fenced):
        await queue.claims.seal(NAME, first, 1)
    with pytest.raises(Fenced):
        queue.claims.keep(NAME, first, TIMEOUT_MS)
    assert await read(queue, second, 1) == list(range(10))
    queue = (await rig.restart()).queue("q")
    with pytest.raises(Fenced):
        await claim(queue, first, 1)
    assert await queue.claims.open(NAME) == second + 1


async def test_a_claim_is_confirmed_when_it_is_on_disk(rig: Rig) -> None:
    queue = await filled(rig)
    epoch = await queue.claims.open(NAME)
    rig.runner.is_held = True
    claimed = asyncio.create_task(claim(queue, epoch, 0))
    await asyncio.sleep(1)
    assert not claimed.done()
    rig.runner.release()
    assert (await claimed).count == 10


async def test_a_fifo_group_goes_on_with_the_claim_that_acks(rig: Rig) -> None:
    queue = await (await rig.start()).create_queue("q", QueueSettings(fifo=True))
    await queue.push(msgspec.structs.replace(numbered(3), groups=["g"] * 3))
    epoch = await queue.claims.open(NAME)
    for after in range(3):
        assert (await claim(queue, epoch, after, 1)).number == after + 1
    assert (await claim(queue, epoch, 3, 1)).number == 0
    assert queue.info().acked == 3


async def test_a_claim_waits_for_what_a_rate_lets_through(rig: Rig) -> None:
    queue = await (await rig.start()).create_queue("q", QueueSettings(max_receive_rate=0.5))
    await queue.push(numbered(2))
    epoch = await queue.claims.open(NAME)
    assert (await claim(queue, epoch, 0)).count == 1
    began, commits = queue.now_ms(), len(rig.journal.commits)
    got = await queue.claims.claim(NAME, epoch, 1, 10, TIMEOUT_MS, wait_ms=10_000)
    assert (got.number, got.count) == (2, 1)
    assert queue.now_ms() - began == 2_000
    assert len(rig.journal.commits) - commits <= 3, "waiting writes nothing"


async def test_releasing_gives_back_and_the_batch_reads_as_empty(rig: Rig) -> None:
    queue = await filled(rig, 20)
    epoch = await queue.claims.open(NAME)
    await claim(queue, epoch, 0)
    await queue.claims.seal(NAME, epoch, 1)
    pop = asyncio.create_task(queue.pop(5, wait_ms=60_000, one_ack=True))
    assert len(texts(await pop)) == 5
    waiting = asyncio.create_task(queue.pop(100, wait_ms=60_000, one_ack=True))
    assert len(texts(await waiting)) == 5
    late = asyncio.create_task(queue.pop(100, wait_ms=20_000, one_ack=True))
    await settle()
    assert await queue.claims.release(NAME) == 10
    assert [number_of(text.encode()) for text in texts(await late)] == list(range(10))
    assert await read(queue, epoch, 1) == []
    queue = (await rig.restart()).queue("q")
    assert await read(queue, epoch, 1) == []
    await queue.push(bodies("77"))
    assert (await claim(queue, epoch, 1)).number == 2


async def test_a_released_batch_is_empty_once_that_is_on_disk(rig: Rig) -> None:
    """Before that, a query that goes on would ack unread what a crash brings back."""
    queue = await filled(rig, 20)
    epoch = await queue.claims.open(NAME)
    await claim(queue, epoch, 0)
    await queue.claims.seal(NAME, epoch, 1)
    rig.runner.is_held = True
    queue.claims.release(NAME)
    reading = asyncio.create_task(read(queue, epoch, 1))
    await asyncio.sleep(1)
    assert not reading.done(), "it read as empty before the release was on disk"
    queue = (await rig.crash()).queue("q")
    await asyncio.wait([reading])
    assert await read(queue, epoch, 1) == list(range(10))
    await queue.claims.release(NAME)
    assert await read(queue, epoch, 1) == []


async def test_releasing_to_the_dead_letters(rig: Rig) -> None:
    queue = await filled(rig, 20)
    epoch = await queue.claims.open(NAME)
    await claim(queue, epoch, 0)
    await queue.claims.seal(NAME, epoch, 1)
    assert await queue.claims.release(NAME, dead_letter=True) == 10
    assert rig.engine is not None
    dead = await rig.engine.queue("q_dlq").peek(100)
    assert [number_of(m.body) for m in dead] == list(range(10))
    assert queue.info().depth == 10


async def test_release_to_a_dead_letter_queue_that_cannot_be_changes_nothing(rig: Rig) -> None:
    """A name of full length has no room for "_dlq"."""
    name = "q" * NAME_CHARS_MAX
    engine = await rig.start()
    queue = await engine.create_queue(name, QueueSettings(max_attempts=None))
    await queue.push(numbered(20))
    epoch = await queue.claims.open(NAME)
    await claim(queue, epoch, 0)
    await queue.claims.seal(NAME, epoch, 1)
    with pytest.raises(InvalidArgument, match="no dead-letter queue"):
        await queue.claims.release(NAME, dead_letter=True)
    assert await read(queue, epoch, 1) == list(range(10))
    await engine.edit_queue(name, QueueSettings(max_attempts=None, dead_letter="failed"))
    assert await queue.claims.release(NAME, dead_letter=True) == 10
    dead = await engine.queue("failed").peek(100)
    assert [number_of(m.body) for m in dead] == list(range(10))


async def test_each_replay_counts_as_an_attempt(rig: Rig) -> None:
    queue = await filled(rig, 10)
    epoch = await queue.claims.open(NAME)
    await claim(queue, epoch, 0)
    for attempts in (1, 2, 3):
        await queue.claims.seal(NAME, epoch, 1)
        (part,) = (await queue.claims.read(NAME, epoch, 1)).parts
        assert part.history.attempts == attempts
    queue = (await rig.restart()).queue("q")
    (part,) = (await queue.claims.read(NAME, epoch, 1)).parts
    assert part.history.attempts == 3


async def test_an_old_checkpoint_is_refused(rig: Rig) -> None:
    queue = await filled(rig)
    epoch = await queue.claims.open(NAME)
    for after in range(3):
        await claim(queue, epoch, after)
    with pytest.raises(LeaseLost, match="acked already"):
        await claim(queue, epoch, 1)
    queue = (await rig.restart()).queue("q")
    with pytest.raises(LeaseLost, match="acked already"):
        await claim(queue, await queue.claims.open(NAME), 0)


async def test_a_forgotten_consumer_leaves_nothing(rig: Rig) -> None:
    queue = await filled(rig, 10)
    epoch = await queue.claims.open(NAME)
    await claim(queue, epoch, 0)
    await queue.claims.release(NAME, forget=True)
    with pytest.raises(Fenced):
        await claim(queue, epoch, 0)
    assert queue.info().claimed == {}
    assert queue.info().ready == 10


async def test_a_purge_empties_claims(rig: Rig) -> None:
    queue = await filled(rig)
    epoch = await queue.claims.open(NAME)
    await claim(queue, epoch, 0)
    await queue.claims.seal(NAME, epoch, 1)
    assert await queue.purge() == 100
    assert await read(queue, epoch, 1) == []
    queue = (await rig.restart()).queue("q")
    assert await read(queue, epoch, 1) == []


@pytest.mark.parametrize("name", ["", "x" * 257])
async def test_a_consumer_needs_a_name(rig: Rig, name: str) -> None:
    queue = await filled(rig)
    with pytest.raises(InvalidArgument):
        await queue.claims.open(name)


async def stored(rig: Rig, count: int, settings: QueueSettings | None = None) -> QueueActor:
    """A queue after a restart whose messages came one by one from a topic, a chunk each."""
    engine = await rig.start()
    topic = await engine.create_topic("t")
    await engine.create_queue("q", settings)
    await engine.bind("t", "q", WANTED)
    for number in range(count):
        await publish_apart(topic, numbered(1, number))
    queue = (await rig.restart()).queue("q")
    rig.journal.fetched.clear()
    return queue


async def test_what_a_topic_shares_one_by_one_is_claimed_and_read_as_few_parts(rig: Rig) -> None:
    engine = await rig.start()
    topic = await engine.create_topic("t")
    await engine.create_queue("q")
    await engine.bind("t", "q")
    for number in range(300):
        await topic.publish(numbered(1, number))
    queue = (await rig.restart()).queue("q")
    epoch = await queue.claims.open(NAME)
    await claim(queue, epoch, 0, 300)
    await queue.claims.seal(NAME, epoch, 1)
    parts = (await queue.claims.read(NAME, epoch, 1)).parts
    assert [number_of(text) for part in parts for text in bodies_of(part)] == list(range(300))
    assert len(parts) <= 1 + 300 // SHARED_CHUNK_ROWS_MAX


async def test_a_claim_takes_what_is_on_disk_without_reading_it(rig: Rig) -> None:
    queue = await stored(rig, 300)
    epoch = await queue.claims.open(NAME)
    got = await claim(queue, epoch, 0, 250)
    assert (got.count, got.payload_bytes) == (
        250,
        10 + 90 * 2 + 150 * 3 + 250 * len(encode_attributes(WANTED)),
    )
    await queue.claims.seal(NAME, epoch, 1)
    assert rig.journal.fetched == [], "the contents were read before anybody asked for them"
    assert await read(queue, epoch, 1) == list(range(250))
    assert len(rig.journal.fetched) == len(set(rig.journal.fetched)), "a row was read twice"
    assert (await claim(queue, epoch, 1, 250)).count == 50


async def test_a_claim_goes_by_the_mean_size_of_what_is_on_disk(rig: Rig) -> None:
    queue = await (await rig.start()).create_queue("q")
    for _ in range(3):
        await queue.push(numbered(40, size=100))
    queue = (await rig.restart()).queue("q")
    rig.journal.fetched.clear()
    epoch = await queue.claims.open(NAME)
    got = await queue.claims.claim(NAME, epoch, 0, 1_000, TIMEOUT_MS, bytes_max=5_050)
    assert (got.count, got.payload_bytes) == (50, 5_000)
    got = await queue.claims.claim(NAME, epoch, 1, 1_000, TIMEOUT_MS, bytes_max=1)
    assert got.count == 1, "one is always claimed"
    assert rig.journal.fetched == []


async def test_a_batch_of_many_pushes_is_one_step_of_bounded_work(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "READ_RUNS_MAX", 30)
    queue = await stored(rig, 100)
    epoch = await queue.claims.open(NAME)
    assert [(await claim(queue, epoch, after, 100)).count for after in range(5)] == [
        30, 30, 30, 10, 0,
    ]  # fmt: skip


async def test_records_of_a_batch_of_many_pushes_are_short(rig: Rig) -> None:
    """Else a start has to fold a range for each of them, again and again."""
    queue = await stored(rig, 200)
    epoch = await queue.claims.open(NAME)
    before = len(rig.journal.commits)
    await claim(queue, epoch, 0, 200)
    queue.claims.keep(NAME, epoch, TIMEOUT_MS)
    await queue.claims.seal(NAME, epoch, 1)
    await queue.claims.ack(NAME, epoch, 1)
    commits = rig.journal.commits[before:]
    assert sum(len(write.record) for commit in commits for write in commit.writes) < 500
    assert queue.info().acked == 200


@pytest.mark.parametrize("count", [300, 7])
async def test_a_slice_is_read_in_few_calls(
    rig: Rig, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, slice_of = list[Any](), claims.slice_of

    def looked(*given: Any) -> Any:
        looks.append(given)
        return slice_of(*given)

    monkeypatch.setattr(claims, "slice_of", looked)
    queue = await stored(rig, 300)
    epoch = await queue.claims.open(NAME)
    await claim(queue, epoch, 0, 300)
    await queue.claims.seal(NAME, epoch, 1)
    found, at, reads = list[int](), 0, 0
    while at < 300:
        parts = (await queue.claims.read(NAME, epoch, 1, at, count)).parts
        got = [number_of(text) for part in parts for text in bodies_of(part)]
        assert len(got) == min(count, 300 - at), "it stopped at what was in memory"
        found, at, reads = found + got, at + len(got), reads + 1
    assert found == list(range(300))
    assert sorted(rig.journal.fetched) == sorted(set(rig.journal.fetched))
    assert rig.journal.fetches <= 2 + 300 // READ_AHEAD_CHUNKS
    assert len(looks) <= 2 * reads, "the batch was walked through for each chunk of it"


async def test_a_fifo_batch_that_is_on_disk_keeps_its_groups(rig: Rig) -> None:
    queue = await (await rig.start()).create_queue("q", QueueSettings(fifo=True))
    for number in range(20):
        groups = [f"g{number % 2}"]
        await queue.push(msgspec.structs.replace(numbered(1, number), groups=groups))
    queue = (await rig.restart()).queue("q")
    epoch = await queue.claims.open(NAME)
    assert (await claim(queue, epoch, 0, 15)).count == 15
    assert await read(queue, epoch, 1) == sorted([*range(0, 20, 2), *range(1, 10, 2)])
    assert (await queue.pop(10)).parts == [], "a group was opened behind a claim"
