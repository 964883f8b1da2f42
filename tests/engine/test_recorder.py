"""What a start has to fold follows what is held, however much happened before."""

from __future__ import annotations

import asyncio
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

import msgspec
import pytest

from nexo.journal.port import CATALOG
from nexo.machine.apply import apply_to_topic
from nexo.machine.log import Place
from nexo.machine.topic import Topic, archive, collect_topic
from nexo.vocabulary.errors import ReadOnly
from nexo.vocabulary.limits import CHUNK_ROWS_MAX
from nexo.vocabulary.settings import QueueSettings, TopicSettings
from nexo.vocabulary.start import Start
from tests.engine.rig import Rig, ack, bodies, numbered, peeked, texts
from tests.work import steps_of

if TYPE_CHECKING:
    from nexo.engine.engine import Engine
    from nexo.engine.queue_actor import QueueActor

LIMIT = 4_000
LEAST = 100
OWNERS = 12


@pytest.fixture(autouse=True)
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nexo.vocabulary.limits.UNFOLDED_BYTES_MAX", LIMIT)
    monkeypatch.setattr("nexo.vocabulary.limits.SNAPSHOT_BYTES_MIN", LEAST)


def unfolded(rig: Rig) -> int:
    """Bytes of records that a start would fold, beyond what it reads of snapshots."""
    beyond = 0
    for owner, records in rig.disk.records.items():
        if owner == CATALOG:  # which has a bound of its own
            continue
        held = max(len(rig.disk.snapshots.get(owner, b"")), LEAST)
        beyond += max(0, sum(map(len, records)) - held)
    return beyond


async def queues_of(engine: Engine) -> list[QueueActor]:
    return [await engine.create_queue(f"q{number}") for number in range(OWNERS)]


async def pass_through(queue: QueueActor, messages: int) -> None:
    for number in range(messages):
        await queue.push(numbered(1, number))
        await ack(queue, await queue.pop(1, one_ack=True))


async def test_records_are_bounded_over_all_owners_together(rig: Rig) -> None:
    """Also those of queues that have long been silent."""
    engine = await rig.start()
    most = 0
    for _ in range(3):
        for queue in await queues_of(engine):
            await pass_through(queue, 20)
            most = max(most, unfolded(rig))
    await asyncio.sleep(1)
    records = sum(len(write.record) for c in rig.journal.commits for write in c.writes)
    assert records > 10 * LIMIT, "too little happened: the test tests nothing"
    assert LIMIT / 2 < most < 1.5 * LIMIT
    assert unfolded(rig) <= LIMIT


async def test_a_snapshot_is_paid_for_by_the_records_before_it(rig: Rig) -> None:
    """A queue that holds much is not written again and again because others are busy."""
    engine = await rig.start()
    large, *others = await queues_of(engine)
    for number in range(800):  # each of another due time, so each is told by itself
        later = msgspec.structs.replace(bodies(f"later {number}"), delay_ms=100_000 + number)
        await large.push(later)
    for queue in others:
        await pass_through(queue, 10)
    by_owner: dict[int, tuple[int, int]] = {}
    for commit in rig.journal.commits:
        for write in commit.writes:
            records, snapshots = by_owner.get(write.owner, (0, 0))
            taken = max(LEAST, len(write.snapshot)) if write.snapshot is not None else 0
            by_owner[write.owner] = (records + len(write.record), snapshots + taken)
    assert any(snapshots for _, snapshots in by_owner.values())
    for records, snapshots in by_owner.values():
        assert snapshots <= 2 * records + LEAST


async def test_what_earlier_lives_left_counts(rig: Rig) -> None:
    engine = await rig.start()
    for _ in range(30):
        for queue in await queues_of(engine):
            await pass_through(queue, 1)
        engine = await rig.crash()
    assert unfolded(rig) < 1.5 * LIMIT


async def test_an_orderly_end_leaves_snapshots_alone(rig: Rig) -> None:
    engine = await rig.start()
    for queue in await queues_of(engine):
        await pass_through(queue, 4)
    assert unfolded(rig) > 0
    await rig.restart()
    assert unfolded(rig) == 0


async def test_an_end_without_room_for_snapshots_is_an_end(rig: Rig) -> None:
    engine = await rig.start()
    for queue in await queues_of(engine):
        await pass_through(queue, 4)
    await queue.push(bodies("kept"))
    rig.journal.refuse_commit = lambda commit: ReadOnly("full") if commit.writes else None
    engine = await rig.restart()
    assert await peeked(engine.queue(queue.name)) == ["kept"]


async def test_a_deleted_queue_is_not_written_again(rig: Rig) -> None:
    """Its snapshot may have been due when it went."""
    engine = await rig.start()
    for queue in await queues_of(engine):
        await pass_through(queue, 8)
    for actor in list(engine.queues.values()):
        await engine.delete_queue(actor.name)
    await engine.create_queue("other")
    await pass_through(engine.queue("other"), 60)
    await asyncio.sleep(1)
    left = {engine.queue("other").owner, 0}
    assert rig.disk.snapshots.keys() | rig.disk.records.keys() == left


async def test_a_large_queue_is_read_whole_after_its_snapshot(rig: Rig) -> None:
    """Rows of full chunks lie packed in a snapshot."""
    engine = await rig.start()
    queue = await engine.create_queue("q")
    total = CHUNK_ROWS_MAX + 20
    for number in range(total):
        await queue.push(numbered(1, number))
    assert len(queue.queue.lanes[0].log.chunks) == 2
    engine = await rig.restart()
    got: list[str] = []
    while len(got) < total:
        got += texts(await engine.queue("q").pop(total))
    assert got == [str(number) for number in range(total)]
    engine = await rig.restart()
    assert engine.queue("q").info().in_flight == total


# -- Snapshots that take several commits ------------------------------------------------------


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nexo.vocabulary.limits.SNAPSHOT_STEP_ENTRIES", 20)


async def later(queue: QueueActor, start: int, count: int) -> None:
    """Messages of which each is due at a time of its own."""
    batch = msgspec.structs.replace(
        numbered(count, start), delay_ms=[10_000_000 + start + number for number in range(count)]
    )
    await queue.push(batch)


def snapshots_of(rig: Rig, owner: int) -> int:
    writes = [write for commit in rig.journal.commits for write in commit.writes]
    return sum(write.owner == owner and write.snapshot is not None for write in writes)


@pytest.mark.usefixtures("small_steps")
async def test_a_large_snapshot_takes_several_commits_and_work_goes_on(rig: Rig) -> None:
    engine = await rig.start()
    queue = await engine.create_queue("q")
    await later(queue, 0, 1_000)
    assert not snapshots_of(rig, queue.owner), "all of it was taken down in one step"
    number = 0
    while not snapshots_of(rig, queue.owner):
        await pass_through(queue, 1)
        number += 1
    assert number > 10, "it was not taken down step by step"
    engine = await rig.restart()  # which compares what the journal tells with what was in memory
    assert engine.queue("q").info().scheduled == 1_000


@pytest.mark.usefixtures("small_steps")
async def test_an_idle_broker_finishes_its_snapshots(rig: Rig) -> None:
    engine = await rig.start()
    queue = await engine.create_queue("q")
    await later(queue, 0, 1_000)
    await asyncio.sleep(60)
    assert snapshots_of(rig, queue.owner) == 1
    assert rig.disk.records.get(queue.owner) is None


@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize("commits", [1, 5, 60])
async def test_a_crash_in_the_middle_of_a_snapshot_loses_nothing(rig: Rig, commits: int) -> None:
    engine = await rig.start()
    queue = await engine.create_queue("q")
    await later(queue, 0, 600)
    for number in range(commits):
        await queue.push(numbered(1, number))
        delivery = await queue.pop(1, one_ack=True, visibility_ms=10**8)
        if number % 2:
            await ack(queue, delivery)
    held = (commits + 1) // 2
    info = (await rig.crash()).queue("q").info()
    assert (info.scheduled, info.depth) == (600, 600 + held)


@pytest.mark.usefixtures("small_steps")
async def test_a_snapshot_whose_commit_fails_is_begun_anew(rig: Rig) -> None:
    engine = await rig.start()
    queue = await engine.create_queue("q")
    await later(queue, 0, 400)
    await pass_through(queue, 3)
    rig.journal.refuse_commit = lambda _: OSError("the disk is gone")
    with pytest.raises(ReadOnly):
        await queue.push(bodies("lost"))
    rig.journal.refuse_commit = lambda _: None
    await asyncio.sleep(60)
    await later(queue, 400, 400)
    await asyncio.sleep(60)
    assert snapshots_of(rig, queue.owner)
    assert engine.queue("q").info().scheduled == 800


@pytest.mark.usefixtures("small_steps")
async def test_many_snapshots_share_the_steps(rig: Rig) -> None:
    """Each commit takes down as much as it may, of however many owners."""
    engine = await rig.start()
    for queue in await queues_of(engine):
        await later(queue, 0, 30)
    commits = rig.journal.commits
    await rig.restart()  # all of them are due
    assert unfolded(rig) == 0
    taken = [sum(write.snapshot is not None for write in commit.writes) for commit in commits]
    assert sum(taken) >= OWNERS
    assert max(taken) <= 2


# -- Archives and topics ----------------------------------------------------------------------


async def test_an_archive_of_singles_has_few_chunks(rig: Rig) -> None:
    engine = await rig.start(memory_limit_bytes=20_000)
    queue = await engine.create_queue("q", QueueSettings(archive=True))
    total = 2 * CHUNK_ROWS_MAX + 30
    times = []
    for number in range(total):
        await queue.push(numbered(1, number))
        times.append(engine.now_ms())
        await asyncio.sleep(0.01)
    await ack(queue, await queue.pop(total, one_ack=True))
    for _ in range(2):
        actor = engine.topic("nexo.archive.q")
        assert len(actor.topic.log.chunks) <= 4
        for offset in (0, 1, CHUNK_ROWS_MAX - 1, CHUNK_ROWS_MAX, total - 1):
            assert texts(await actor.read(offset, 1)) == [str(offset)]
            assert await actor.offset_of(Start(time_ms=times[offset])) == offset
        engine = await rig.restart()


async def test_retention_takes_an_archive_from_its_front(rig: Rig) -> None:
    engine = await rig.start()
    settings = QueueSettings(archive=True, archive_retention_ms=10_000)
    queue = await engine.create_queue("q", settings)
    for number in range(40):
        await queue.push(numbered(1, number))
        await ack(queue, await queue.pop(1, one_ack=True))
        await asyncio.sleep(0.5)
    actor = engine.topic("nexo.archive.q")
    assert 18 <= actor.info().start <= 21, "some twenty are older than ten seconds"
    await asyncio.sleep(11)
    assert actor.info().start == 40
    assert rig.disk.rows == {}


def test_folding_a_topic_takes_steps_in_proportion_to_its_records() -> None:
    few, many = (steps_of(partial(_fold_archive, batches)) for batches in (100, 400))
    assert many < 5 * few


def _fold_archive(batches: int) -> None:
    """Large batches: a chunk each."""
    topic = Topic("nexo.archive.q", TopicSettings(), count(1))
    records = []
    for number in range(batches):
        archive(topic, numbered(40), Place(number + 1), 1_000)
        records.append(collect_topic(topic).changes)
    recovered = Topic("nexo.archive.q", TopicSettings(), count(1))
    apply_to_topic(recovered, records)
    assert len(recovered.log.chunks) == batches
