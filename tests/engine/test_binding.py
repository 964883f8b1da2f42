"""Binding from a start in the past: what the topic has kept arrives with the binding, uncopied."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
import pytest

from nexo.vocabulary.attributes import encode_attributes
from nexo.vocabulary.errors import InvalidArgument, QueueNotFound
from nexo.vocabulary.settings import QueueSettings, TopicSettings
from nexo.vocabulary.start import EARLIEST, LATEST, Start
from tests.engine.rig import Rig, ack, bodies, nack, numbered, peeked, texts
from tests.engine.virtual_time import settle

if TYPE_CHECKING:
    from nexo.engine.engine import Engine
    from nexo.vocabulary.batch import Batch

LIFE = [*map(str, range(40)), "a", "b", "c", *map(str, range(40, 80)), "d"]


async def publish_some(engine: Engine) -> None:
    """Large batches are rows of their own, small ones fill a chunk of several rows."""
    topic = await engine.create_topic("t")
    await topic.publish(numbered(40))
    for name in "abc":
        await topic.publish(bodies(name))
    await topic.publish(numbered(40, 40))
    await topic.publish(bodies("d"))


def coloured(colour: str, batch: Batch) -> Batch:
    return msgspec.structs.replace(batch, attributes=encode_attributes({"colour": colour}))


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize(
    ("start", "left_out"),
    [(EARLIEST, 0), (Start(offset=39), 39), (Start(offset=41), 41), (Start(offset=900), 84)],
)
async def test_what_is_kept_arrives_in_order(
    rig: Rig, start: Start, left_out: int, restarted: bool
) -> None:
    engine = await rig.start()
    await publish_some(engine)
    if restarted:
        engine = await rig.restart()
    await engine.bind("t", "q", start=start, create=True)
    await engine.topic("t").publish(bodies("new"))
    assert await peeked(engine.queue("q")) == [*LIFE[left_out:], "new"]
    engine = await rig.crash()
    queue = engine.queue("q")
    delivery = await queue.pop(1_000, one_ack=True)
    got = texts(delivery)
    while len(got) < len(LIFE) - left_out + 1:
        got += texts(await queue.pop(1_000, one_ack=True))
    assert got == [*LIFE[left_out:], "new"]


async def test_no_payload_is_written_again(rig: Rig) -> None:
    engine = await rig.start()
    await publish_some(engine)
    rows, before = set(rig.disk.rows), len(rig.journal.commits)
    for number in range(3):
        await engine.bind("t", f"q{number}", start=EARLIEST, create=True)
    commits = rig.journal.commits[before:]
    assert [commit.rows for commit in commits] == [[], [], []]
    assert set(rig.disk.rows) == rows
    await engine.delete_topic("t")
    assert set(rig.disk.rows) == rows, "the queues hold them"
    for number in range(3):
        queue = engine.queue(f"q{number}")
        while (delivery := await queue.pop(100, one_ack=True)).parts:
            await ack(queue, delivery)
    assert rig.disk.rows == {}


@pytest.mark.parametrize("restarted", [False, True])
async def test_a_filtered_binding_holds_each_row_once_for_each_run_in_it(
    rig: Rig, restarted: bool
) -> None:
    """And not all rows of a chunk for each of its messages."""
    engine = await rig.start()
    topic = await engine.create_topic("t")
    wanted: list[str] = []
    for number in range(0, 900, 3):  # rows of one, two and three messages
        colours = ["red", "blue", "red"][: 1 + number % 9 // 3]
        batch = numbered(len(colours), number)
        columns = [encode_attributes({"colour": colour}) for colour in colours]
        wanted += [str(number + at) for at, each in enumerate(colours) if each == "red"]
        await topic.publish(msgspec.structs.replace(batch, attributes=columns))
    if restarted:
        engine = await rig.restart()
    await engine.bind("t", "q", {"colour": "red"}, EARLIEST, create=True)
    queue = engine.queue("q")
    assert sum(len(chunk.rows) for log in queue.logs() for chunk in log.chunks.values()) == 400
    assert sum(len(write.record) for write in rig.journal.commits[-1].writes) < 100 * len(wanted)
    assert await peeked(queue) == wanted
    engine = await rig.restart()
    queue = engine.queue("q")
    await engine.delete_topic("t")
    assert await peeked(queue) == wanted
    assert await queue.purge() == len(wanted)
    assert rig.disk.rows == {}


async def test_the_binding_and_what_it_brings_are_one_commit(rig: Rig) -> None:
    engine = await rig.start()
    await publish_some(engine)
    rig.runner.is_held = True
    binding = asyncio.create_task(engine.bind("t", "q", start=EARLIEST, create=True))
    await settle()
    assert not binding.done()
    engine = await rig.crash()
    with pytest.raises(QueueNotFound):
        engine.queue("q")
    assert engine.topic("t").info().bound_queues == []
    before = len(rig.journal.commits)
    await engine.bind("t", "q", start=EARLIEST, create=True)
    assert len(rig.journal.commits) == before + 1
    assert len(await peeked(engine.queue("q"))) == len(LIFE)


async def test_a_start_counts_once(rig: Rig) -> None:
    engine = await rig.start()
    await publish_some(engine)
    binds = [engine.bind("t", "q", start=EARLIEST, create=True) for _ in range(3)]
    await asyncio.gather(*binds)
    await engine.bind("t", "q", {"colour": "red"}, EARLIEST)
    assert await peeked(engine.queue("q")) == LIFE
    await engine.topic("t").publish(coloured("blue", bodies("blue")))
    assert await peeked(engine.queue("q")) == LIFE, "the filter holds from then on"


async def test_members_that_join_at_once_after_a_restart(rig: Rig) -> None:
    """All of them wait for the disk before anything is bound."""
    engine = await rig.start()
    await publish_some(engine)
    engine = await rig.restart()
    rig.runner.is_held = True
    binds = [
        asyncio.create_task(engine.bind("t", "q", start=EARLIEST, create=True)) for _ in range(3)
    ]
    await settle()
    engine.topic("t").publish(bodies("meanwhile"))
    await settle()
    rig.runner.release()
    await asyncio.gather(*binds)
    await engine.topic("t").publish(bodies("later"))
    assert await peeked(engine.queue("q")) == [*LIFE, "meanwhile", "later"]


async def test_by_time(rig: Rig) -> None:
    engine = await rig.start()
    topic = await engine.create_topic("t")
    times: list[int] = []
    for number in range(6):
        await topic.publish(numbered(40, number * 40) if number % 2 else bodies(str(number * 40)))
        times.append(topic.topic.now_ms)
        await asyncio.sleep(1)
    for restarted in (False, True):
        if restarted:
            engine = await rig.restart()
        actor = engine.topic("t")
        for number, time_ms in enumerate(times):
            for at_ms in (time_ms, time_ms - 500):
                offset = await actor.offset_of(Start(time_ms=at_ms))
                assert texts(await actor.read(offset, 1)) == [str(number * 40)]
        assert await actor.offset_of(Start(time_ms=times[-1] + 1)) == actor.info().end
    name = "from-the-third"
    await engine.bind("t", name, start=Start(time_ms=times[2] - 1), create=True)
    assert (await peeked(engine.queue(name)))[:2] == ["80", "120"]


@pytest.mark.parametrize("restarted", [False, True])
async def test_only_what_the_filter_wants(rig: Rig, restarted: bool) -> None:
    engine = await rig.start()
    topic = await engine.create_topic("t")
    colours = [encode_attributes({"colour": "red" if n % 3 else "blue"}) for n in range(60)]
    await topic.publish(msgspec.structs.replace(numbered(60), attributes=colours))
    await topic.publish(coloured("red", bodies("r1", "r2")))
    await topic.publish(coloured("blue", bodies("b1")))
    await topic.publish(coloured("red", numbered(40, 100)))
    if restarted:
        engine = await rig.restart(memory_limit_bytes=200)
    await engine.bind("t", "q", {"colour": "red"}, EARLIEST, create=True)
    red = [str(n) for n in range(60) if n % 3]
    assert await peeked(engine.queue("q")) == [*red, "r1", "r2", *map(str, range(100, 140))]


async def test_groups_keep_their_order_after_a_restart(rig: Rig) -> None:
    engine = await rig.start()
    topic = await engine.create_topic("t")
    groups: list[str | None] = ["a", "b"] * 20
    await topic.publish(msgspec.structs.replace(numbered(40), groups=groups))
    await topic.publish(msgspec.structs.replace(bodies("x", "y"), groups=["a", "c"]))
    engine = await rig.restart()
    queue = await engine.create_queue("q.fifo", QueueSettings(fifo=True))
    await engine.bind("t", "q.fifo", start=EARLIEST)
    first = await queue.pop(1, one_ack=True)
    assert texts(first) == ["0"]
    assert texts(await queue.pop(1, one_ack=True)) == ["1"]
    assert texts(await queue.pop(10, one_ack=True)) == ["y"], "the others wait for their turn"


async def test_times_stay_and_retention_counts_from_the_arrival(rig: Rig) -> None:
    engine = await rig.start()
    topic = await engine.create_topic("t")
    await topic.publish(numbered(40))
    await topic.publish(bodies("small"))
    published_ms = topic.topic.now_ms
    await asyncio.sleep(100)
    settings = QueueSettings(retention_ms=50_000)
    queue = await engine.create_queue("q", settings)
    await engine.bind("t", "q", start=EARLIEST)
    await queue.push(bodies("own"))
    await asyncio.sleep(40)
    assert {m.created_ms for m in await queue.peek(41)} == {published_ms}
    assert len(await peeked(queue)) == 42
    engine = await rig.restart()
    queue = engine.queue("q")
    assert {m.created_ms for m in await queue.peek(41)} == {published_ms}
    await asyncio.sleep(11)
    assert (queue.info().depth, queue.info().expired) == (0, 42)


async def test_a_delay_retries_and_dead_letters_apply(rig: Rig) -> None:
    engine = await rig.start()
    await publish_some(engine)
    queue = await engine.create_queue("q", QueueSettings(delay_ms=2_000, max_attempts=1))
    await engine.bind("t", "q", start=Start(offset=40))
    assert queue.info().scheduled == len(LIFE) - 40
    await asyncio.sleep(3)
    await nack(queue, await queue.pop(2, one_ack=True), "bad")
    assert await peeked(engine.queue("q_dlq")) == ["a", "b"]
    engine = await rig.restart()
    assert engine.queue("q").info().depth == len(LIFE) - 42


async def test_an_archived_queue_archives_what_it_gets(rig: Rig) -> None:
    engine = await rig.start()
    await publish_some(engine)
    await asyncio.sleep(100)
    rows = set(rig.disk.rows)
    settings = QueueSettings(archive=True, archive_retention_ms=50_000)
    queue = await engine.create_queue("q", settings)
    await engine.bind("t", "q", start=EARLIEST)
    await queue.push(bodies("own"))
    while (delivery := await queue.pop(100, one_ack=True)).parts:
        await ack(queue, delivery)
    await asyncio.sleep(40)
    engine = await rig.restart()
    archive = engine.topic("nexo.archive.q")
    assert texts(await archive.read(0, 1_000)) == [*LIFE, "own"]
    assert texts(await archive.read(len(LIFE))) == ["own"]
    assert set(rig.disk.rows) >= rows
    assert len(rig.disk.rows) == len(rows) + 1
    await asyncio.sleep(11)
    assert archive.info().start == len(LIFE) + 1, "kept from when it came"
    assert set(rig.disk.rows) == rows


@pytest.mark.parametrize("first", ["topic", "queue"])
async def test_an_archive_keeps_what_the_others_let_go(rig: Rig, first: str) -> None:
    """Each of the three holds every row for itself, from the step that binds on."""
    engine = await rig.start()
    await publish_some(engine)
    settings = QueueSettings(archive=True, archive_retention_ms=50_000)
    queue = await engine.create_queue("q", settings)
    await engine.bind("t", "q", start=EARLIEST)
    rows = set(rig.disk.rows)
    if first == "topic":
        await engine.delete_topic("t")
    while (delivery := await queue.pop(100, one_ack=True)).parts:
        await ack(queue, delivery)
    if first == "queue":
        await engine.delete_topic("t")
    await settle()
    assert set(rig.disk.rows) == rows, "rows went that the archive holds"
    assert texts(await engine.topic("nexo.archive.q").read(0, 1_000)) == LIFE
    await asyncio.sleep(60)
    assert rig.disk.rows == {}, "rows stayed that nobody holds"


async def test_what_the_topic_drops_meanwhile_is_no_longer_kept(rig: Rig) -> None:
    engine = await rig.start()
    topic = await engine.create_topic("t", TopicSettings(retention_messages=50))
    await topic.publish(numbered(40))
    await topic.publish(numbered(40, 40))
    engine = await rig.restart()
    topic = engine.topic("t")
    rig.runner.is_held = True
    binding = asyncio.create_task(engine.bind("t", "q", start=EARLIEST, create=True))
    await settle()
    topic.publish(numbered(60, 80))
    await settle()
    rig.runner.release()
    await binding
    got = await peeked(engine.queue("q"))
    assert got == [str(number) for number in range(140 - len(got), 140)]
    assert len(got) >= 50


async def test_refusals(rig: Rig) -> None:
    engine = await rig.start()
    await publish_some(engine)
    with pytest.raises(QueueNotFound):
        await engine.bind("t", "nowhere", start=EARLIEST)
    with pytest.raises(InvalidArgument):
        await engine.bind("t", "q", start=Start(offset=1, time_ms=1), create=True)
    with pytest.raises(InvalidArgument):
        await engine.bind("t", "q", start=Start(offset=-1), create=True)
    assert "q" not in engine.queues
    await engine.bind("t", "q", start=LATEST, create=True)
    assert engine.queue("q").info().depth == 0


async def test_an_archive_in_use_cannot_be_deleted(rig: Rig) -> None:
    engine = await rig.start()
    queue = await engine.create_queue("q", QueueSettings(archive=True))
    await queue.push(bodies("a"))
    with pytest.raises(InvalidArgument, match="in use"):
        await engine.delete_topic("nexo.archive.q")
    await engine.edit_queue("q", QueueSettings())
    await engine.delete_topic("nexo.archive.q")
    assert await peeked(queue) == ["a"]
