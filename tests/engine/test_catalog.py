"""Definitions: what is created, edited and deleted, and what survives a restart."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from nexo.engine.definitions import import_definitions
from nexo.engine.recovery import load_catalog
from nexo.journal.port import CATALOG
from nexo.vocabulary import limits
from nexo.vocabulary.definitions import Definitions, QueueDefinition
from nexo.vocabulary.errors import (
    InvalidArgument,
    NexoError,
    NotReady,
    QueueExists,
    QueueFull,
    QueueNotFound,
    TopicExists,
    TopicNotFound,
)
from nexo.vocabulary.settings import Backoff, QueueSettings, TopicSettings
from tests.engine.rig import Rig, ack, bodies, nack, numbered, ranges, texts
from tests.engine.virtual_time import settle

RICH = QueueSettings(
    visibility_timeout_ms=1_234,
    max_attempts=None,
    delay_ms=5,
    deduplication="content",
    max_receive_rate=2.5,
    backoff=Backoff(10, 3.0, 500, 0.5),
    fifo=True,
    max_depth=7,
    archive=True,
)


async def test_creating_again_with_the_same_settings_is_the_same_queue(rig: Rig) -> None:
    engine = await rig.start()
    queue = await engine.create_queue("q", RICH)
    await queue.push(bodies("a"))
    assert await engine.create_queue("q", RICH) is queue
    assert queue.info().depth == 1
    with pytest.raises(QueueExists, match="visibility_timeout_ms"):
        await engine.create_queue("q", msgspec.structs.replace(RICH, visibility_timeout_ms=1))
    assert queue.queue.settings == RICH


async def test_when_the_scope_was_edited_is_no_setting_of_whoever_creates_again(rig: Rig) -> None:
    engine = await rig.start()
    queue = await engine.create_queue("q", RICH)
    edited = msgspec.structs.replace(RICH, deduplication_scope_since_ms=5)
    await engine.edit_queue("q", edited)
    assert await engine.create_queue("q", RICH) is queue
    assert queue.queue.settings == edited


async def test_creating_at_the_same_time_is_one_queue(rig: Rig) -> None:
    engine = await rig.start()
    rig.runner.is_held = True
    both = asyncio.gather(engine.create_queue("q"), engine.create_queue("q"))
    await settle()
    rig.runner.release()
    one, other = await both
    assert one is other


async def test_topics_are_created_once_too(rig: Rig) -> None:
    engine = await rig.start()
    topic = await engine.create_topic("t", TopicSettings(retention_messages=5))
    assert await engine.create_topic("t", TopicSettings(retention_messages=5)) is topic
    with pytest.raises(TopicExists):
        await engine.create_topic("t")


@pytest.mark.parametrize("name", ["", "a b", "é", "x" * 81, "nexo.mine", "nexo.events", "a/b"])
async def test_names_that_nobody_may_use(rig: Rig, name: str) -> None:
    engine = await rig.start()
    with pytest.raises(InvalidArgument):
        await engine.create_queue(name)
    with pytest.raises(InvalidArgument):
        await engine.create_topic(name)
    assert (engine.queues, engine.topics) == ({}, {})


async def test_unknown_names(rig: Rig) -> None:
    engine = await rig.start()
    await engine.create_queue("q")
    await engine.create_topic("t")
    with pytest.raises(QueueNotFound):
        engine.queue("other")
    with pytest.raises(TopicNotFound):
        engine.topic("other")
    with pytest.raises(QueueNotFound):
        await engine.edit_queue("other", QueueSettings())
    with pytest.raises(QueueNotFound):
        await engine.delete_queue("other")
    with pytest.raises(TopicNotFound):
        await engine.delete_topic("other")
    with pytest.raises(TopicNotFound):
        await engine.bind("other", "q")
    with pytest.raises(QueueNotFound):
        await engine.bind("t", "other")


async def test_a_restart_brings_definitions_and_settings_back(rig: Rig) -> None:
    engine = await rig.start()
    queue = await engine.create_queue("rich", RICH)
    await engine.create_queue("plain")
    await engine.create_topic("t", TopicSettings(retention_messages=5, retention_ms=60_000))
    await engine.bind("t", "plain", {"tenant": "a"})
    await queue.push(bodies("a"))
    await queue.set_paused(True)
    ids = [message.id for message in await queue.peek()]
    engine = await rig.restart()
    assert set(engine.queues) == {"rich", "plain"}
    assert set(engine.topics) == {"t", "nexo.archive.rich"}
    assert engine.queue("rich").queue.settings == RICH
    assert engine.queue("rich").info().paused
    assert engine.topic("t").topic.settings.retention_messages == 5
    assert [message.id for message in await engine.queue("rich").peek()] == ids
    with pytest.raises(QueueExists):
        await engine.create_queue("rich")
    assert await engine.create_queue("rich", RICH) is engine.queue("rich")


async def test_a_crash_in_the_creating_commit_leaves_nothing(rig: Rig) -> None:
    engine = await rig.start()
    rig.runner.is_held = True
    created = asyncio.create_task(engine.create_queue("q"))
    await settle()
    engine = await rig.crash()
    await created
    assert engine.queues == {}


async def test_deleting_tells_those_who_wait(rig: Rig) -> None:
    engine = await rig.start()
    queue = await engine.create_queue("q")
    errors: list[NexoError] = []
    pops = [asyncio.create_task(queue.pop(wait_ms=60_000)) for _ in range(3)]
    queue.subscribe(10, lambda _: None, errors.append)
    await settle()
    await engine.delete_queue("q")
    for pop in pops:
        with pytest.raises(QueueNotFound, match="'q' was deleted"):
            await pop
    assert [error.code for error in errors] == ["queue_not_found"]
    with pytest.raises(QueueNotFound):
        engine.queue("q")


async def test_stopping_the_broker_is_no_deletion(rig: Rig) -> None:
    queue = await (await rig.start()).create_queue("q")
    errors: list[NexoError] = []
    pop = asyncio.create_task(queue.pop(wait_ms=60_000))
    queue.subscribe(10, lambda _: None, errors.append)
    await settle()
    await rig.stop()
    with pytest.raises(NotReady, match="stop"):
        await pop
    assert [error.code for error in errors] == ["not_ready"]


async def test_a_deleted_queue_accepts_nothing_from_those_who_still_hold_it(rig: Rig) -> None:
    engine = await rig.start()
    queue = await engine.create_queue("q")
    await queue.push(bodies("a"))
    delivery = await queue.pop(one_ack=True)
    await engine.delete_queue("q")
    for act in (
        lambda: queue.push(bodies("b")),
        lambda: queue.push_one(b"b"),
        lambda: queue.pop(),
        lambda: queue.pop(wait_ms=1_000),
        lambda: queue.subscribe(1, lambda _: None, lambda _: None),
        lambda: queue.purge(),
        lambda: queue.set_paused(True),
        lambda: queue.claims.open("spark"),
    ):
        with pytest.raises(QueueNotFound):
            await act()  # type: ignore[misc]
    for bounds in ranges(delivery):
        with pytest.raises(NexoError):
            await queue.ack(delivery.lease, *bounds)


async def test_a_deleted_topic_accepts_nothing_from_those_who_still_hold_it(rig: Rig) -> None:
    engine = await rig.start()
    topic = await engine.create_topic("t")
    reading = asyncio.create_task(topic.read(0, wait_ms=60_000))
    await settle()
    await engine.delete_topic("t")
    with pytest.raises(TopicNotFound):
        await topic.publish(bodies("a"))
    with pytest.raises(TopicNotFound):
        await reading
    with pytest.raises(TopicNotFound):
        await topic.read(0)


async def test_a_deleted_queue_leaves_nothing_and_its_name_is_free(rig: Rig) -> None:
    engine = await rig.start()
    old = await engine.create_queue("q")
    await old.push(numbered(100))
    await old.push(bodies("small"))
    (first, *_) = await old.peek()
    receipt = await old.pop(one_ack=True)
    await engine.delete_queue("q")
    assert rig.disk.rows == {}
    new = await engine.create_queue("q", QueueSettings(max_depth=5))
    await new.push(bodies("new"))
    (message,) = await new.peek()
    assert message.id != first.id
    delivery = await new.pop(one_ack=True)
    if delivery.lease == receipt.lease:
        pytest.fail("an old receipt would ack a new message")
    engine = await rig.restart()
    assert [m.body for m in await engine.queue("q").peek()] == [b"new"]
    assert engine.queue("q").queue.settings.max_depth == 5


async def test_what_waits_for_the_disk_when_its_queue_is_deleted(rig: Rig) -> None:
    engine = await rig.start()
    queue = await engine.create_queue("q")
    rig.runner.is_held = True
    first = queue.push(numbered(50))
    await settle()
    second = queue.push(numbered(50))
    deleted = asyncio.create_task(engine.delete_queue("q"))
    await settle()
    rig.runner.release()
    await asyncio.gather(first, second, deleted)
    assert rig.disk.rows == {}


async def test_edited_settings_take_effect(rig: Rig) -> None:
    engine = await rig.start()
    queue = await engine.create_queue("q", QueueSettings(max_depth=5))
    await queue.push(numbered(5))
    with pytest.raises(QueueFull):
        await queue.push(bodies("one more"))
    await engine.edit_queue("q", QueueSettings(max_depth=6, visibility_timeout_ms=500))
    await queue.push(bodies("one more"))
    began = queue.now_ms()
    delivery = await queue.pop(6, one_ack=True)
    assert delivery.deadline_ms == began + 500
    await ack(queue, delivery)
    engine = await rig.restart()
    assert engine.queue("q").queue.settings.visibility_timeout_ms == 500


async def test_a_shorter_retention_takes_effect_at_once(rig: Rig) -> None:
    engine = await rig.start()
    queue = await engine.create_queue("q")
    await queue.push(numbered(3))
    await asyncio.sleep(60)
    await queue.push(bodies("young"))
    await engine.edit_queue("q", QueueSettings(retention_ms=30_000))
    await settle()
    assert texts(await queue.pop(10)) == ["young"]


async def test_a_higher_rate_takes_effect_for_those_who_wait(rig: Rig) -> None:
    engine = await rig.start()
    queue = await engine.create_queue("q", QueueSettings(max_receive_rate=0.01))
    await queue.push(numbered(3))
    await queue.pop(1, one_ack=True)
    pop = asyncio.create_task(queue.pop(2, wait_ms=3_600_000, one_ack=True))
    await asyncio.sleep(1)
    assert not pop.done()
    await engine.edit_queue("q", QueueSettings())
    began = queue.now_ms()
    assert texts(await pop) == ["1", "2"]
    assert queue.now_ms() - began <= 1


async def test_edits_that_contradict_are_refused_whole(rig: Rig) -> None:
    engine = await rig.start()
    queue = await engine.create_queue("q")
    for wrong in (
        QueueSettings(fifo=True),
        QueueSettings(delay_ms=10**9),
        QueueSettings(max_depth=0),
        QueueSettings(dead_letter="q"),
    ):
        with pytest.raises(InvalidArgument):
            await engine.edit_queue("q", wrong)
    assert queue.queue.settings == QueueSettings()


async def test_thousands_of_queues(rig: Rig) -> None:
    engine = await rig.start()
    names = [f"q{number}" for number in range(2_000)]
    await asyncio.gather(*[engine.create_queue(name) for name in names])
    assert len(rig.journal.commits) < 10, "each had a commit of its own"
    await asyncio.gather(*[engine.queue(name).push(bodies(name)) for name in names])
    await asyncio.gather(*[engine.delete_queue(name) for name in names[::2]])
    engine = await rig.restart()
    assert list(engine.queues) == names[1::2]
    got = await asyncio.gather(*[queue.pop() for queue in engine.queues.values()])
    assert [texts(each) for each in got] == [[name] for name in names[1::2]]


async def test_how_much_can_be_defined_is_bounded(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is there can be created again, and dead letters find their queue all the same."""
    for name in ("QUEUES_MAX", "TOPICS_MAX", "BINDINGS_MAX"):
        monkeypatch.setattr(f"nexo.vocabulary.limits.{name}", 2)
    engine = await rig.start()
    for name in ("a", "b"):
        await engine.create_queue(name, QueueSettings(max_attempts=1))
        await engine.create_topic(name)
        await engine.bind(name, name)
    for refused, noun in (
        (lambda: engine.create_queue("c"), "queues"),
        (lambda: engine.create_topic("c"), "topics"),
        (lambda: engine.bind("a", "b"), "bindings"),
        (lambda: engine.bind("a", "c", create=True), "queues"),
    ):
        with pytest.raises(InvalidArgument, match=f"at most 2 {noun}"):
            await refused()
    await engine.create_queue("a", QueueSettings(max_attempts=1))
    await engine.create_topic("a")
    await engine.bind("a", "a", {"kind": "x"})  # another filter is no other binding
    monkeypatch.setattr("nexo.vocabulary.limits.QUEUES_MAX", 3)
    document = Definitions(queues=[QueueDefinition("c"), QueueDefinition("d")])
    with pytest.raises(InvalidArgument, match="at most 3 queues"):
        await import_definitions(engine, document)
    assert set(engine.queues) == {"a", "b"}, "not in part either"
    with pytest.raises(InvalidArgument, match="1024 characters"):
        await engine.bind("a", "b", {"kind": "x" * 2_000})
    queue = engine.queue("a")
    await queue.push(bodies("dead"))
    await nack(queue, await queue.pop(one_ack=True))
    await settle()
    assert engine.queue("a_dlq").info().depth == 1
    await engine.delete_topic("b")
    await engine.create_topic("c")


async def test_no_door_can_store_long_texts_in_the_catalog(rig: Rig) -> None:
    engine = await rig.start()
    queue = await engine.create_queue("q")
    long = {"k": "x" * 100_000}
    for settings in (QueueSettings(tags=long), QueueSettings(aws=long)):
        with pytest.raises(InvalidArgument):
            await engine.create_queue("other", settings)
        with pytest.raises(InvalidArgument):
            await engine.edit_queue("q", settings)
    assert queue.queue.settings == QueueSettings()


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "RECORD_BYTES_BEFORE_SNAPSHOT", 4_000)
    monkeypatch.setattr(limits, "CATALOG_STEP_DEFINITIONS", 10)


@pytest.mark.usefixtures("small_steps")
async def test_a_snapshot_of_the_catalog_is_taken_while_definitions_go_on(rig: Rig) -> None:
    """It is of one moment; what changed while it was encoded stands behind it."""
    engine = await rig.start()
    await engine.create_topic("t")
    await asyncio.gather(*[engine.create_queue(f"q{number}") for number in range(200)])
    assert rig.disk.snapshots.get(CATALOG) is None, "all of it was encoded in one step"
    number, behind = 200, []
    while CATALOG not in rig.disk.snapshots:
        await engine.create_queue(f"q{number}")
        await engine.bind("t", f"q{number}")
        await engine.delete_queue(f"q{number - 100}")
        number += 1
        behind = rig.disk.records.get(CATALOG, [])
    assert number > 202, "it was not taken step by step"
    assert behind, "what changed meanwhile was not written behind the snapshot"
    names = [f"q{each}" for each in range(number)][:100] + [
        f"q{each}" for each in range(number - 100, number)
    ]
    assert list(engine.queues) == names
    engine = await rig.restart()
    assert list(engine.queues) == names
    assert engine.topic("t").info().bound_queues == names[-(number - 200) :]


@pytest.mark.usefixtures("small_steps")
async def test_a_snapshot_that_a_failure_interrupts_is_begun_anew(rig: Rig) -> None:
    engine = await rig.start()
    await asyncio.gather(*[engine.create_queue(f"q{number}") for number in range(100)])
    rig.journal.refuse_commit = lambda _: OSError("the disk is gone")
    with pytest.raises(NexoError):
        await engine.create_queue("lost")
    rig.journal.refuse_commit = lambda _: None
    await asyncio.sleep(60)
    assert engine.refusal is None
    assert "lost" not in engine.queues
    await asyncio.gather(*[engine.create_queue(f"r{number}") for number in range(100)])
    await settle()
    await engine.drain()
    assert CATALOG in rig.disk.snapshots
    kept = load_catalog(rig.journal.load(CATALOG))
    assert list(kept.queues) == list(engine.queues)
