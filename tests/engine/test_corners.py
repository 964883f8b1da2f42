"""Corners that nobody looked at until a bug was planted there."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from nexo.vocabulary.attributes import encode_attributes
from nexo.vocabulary.errors import ReadOnly
from nexo.vocabulary.names import archive_name
from nexo.vocabulary.settings import QueueSettings
from nexo.vocabulary.start import Start
from tests.engine.rig import Rig, ack, bodies, nack, numbered, texts
from tests.engine.virtual_time import settle


async def test_a_delivery_noted_during_a_commit_is_written_by_itself(rig: Rig) -> None:
    engine = await rig.start()
    queue, other = await engine.create_queue("q"), await engine.create_queue("other")
    await queue.push(bodies("a"))
    rig.runner.is_held = True
    push = other.push(bodies("b"))
    await settle()
    assert texts(await queue.pop(1)) == ["a"]  # the commit of the push is under way
    rig.runner.release()
    await push
    await asyncio.sleep(1)
    assert engine.committer.idle
    (delivered,) = await (await rig.crash()).queue("q").peek()
    assert delivered.attempts == 1


async def test_a_redrive_moves_messages_of_every_priority(rig: Rig) -> None:
    engine = await rig.start()
    queue = await engine.create_queue("q", QueueSettings(max_attempts=1))
    for priority in (0, 7, 3):
        await queue.push_one(b"%d" % priority, priority)
    await nack(queue, await queue.pop(3, one_ack=True))
    assert engine.queue("q_dlq").info().depth == 3
    task = await engine.redrive("q_dlq")
    assert await task.finished == 3
    assert texts(await queue.pop(3)) == ["7", "3", "0"]


async def test_an_archive_is_found_by_time_though_a_commit_brought_the_newer_first(
    rig: Rig,
) -> None:
    engine = await rig.start()
    queue = await engine.create_queue("q", QueueSettings(archive=True))
    other = await engine.create_queue("other")
    rig.runner.is_held = True
    running = other.push(bodies("x"))
    await settle()
    old_ms, old = queue.now_ms(), queue.push_one(b"old", 0)
    await asyncio.sleep(10)
    new = queue.push_one(b"new", 7)
    rig.runner.release()
    await asyncio.gather(running, old, new)
    archive = engine.topic(archive_name("q"))
    offset = await archive.offset_of(Start(time_ms=old_ms + 5_000))
    assert "new" in texts(await archive.read(offset))


async def test_a_late_binding_by_attributes_takes_nothing_before_its_start(rig: Rig) -> None:
    engine = await rig.start()
    topic, queue = await engine.create_topic("t"), await engine.create_queue("q")
    red = encode_attributes({"colour": "red"})
    batch = msgspec.structs.replace(bodies("a", "b", "c"), attributes=[red, None, red])
    await topic.publish(batch)
    await engine.bind("t", "q", {"colour": "red"}, Start(offset=1))
    assert texts(await queue.pop(10)) == ["c"]


async def test_what_comes_during_a_commit_waits_for_the_disk_after_it(rig: Rig) -> None:
    engine = await rig.start()
    queue = await engine.create_queue("q")
    rig.runner.is_held = True
    first = queue.push(numbered(1, size=1_000))
    await settle()
    second = queue.push(numbered(1, size=300))
    await settle()
    assert engine.committer.unsettled_bytes == 1_300
    rig.runner.step()
    assert engine.committer.unsettled_bytes == 300
    rig.runner.release()
    await asyncio.gather(first, second)
    assert engine.committer.unsettled_bytes == 0


async def test_dead_letters_wait_for_a_full_disk_and_disturb_nobody(rig: Rig) -> None:
    engine = await rig.start()
    queue = await engine.create_queue("q", QueueSettings(max_attempts=1))
    other = await engine.create_queue("other")
    await queue.push(bodies("a", "b"))
    await other.push(bodies("c"))
    await queue.pop(2, one_ack=True, visibility_ms=2_000)
    await asyncio.sleep(1)
    rig.journal.refuse_commit = lambda commit: ReadOnly("no room") if commit.rows else None
    with pytest.raises(ReadOnly):
        await other.push(bodies("d"))
    await asyncio.sleep(0.5)
    opens = rig.journal.opens
    await asyncio.sleep(20)  # the leases are over, and it was the last attempt
    await ack(other, await other.pop(1, one_ack=True))
    assert rig.journal.opens == opens, "a move that cannot be written was tried all the same"
    assert queue.info().depth == 2
    rig.journal.refuse_commit = lambda _: None
    await asyncio.sleep(5)
    assert engine.queue("q_dlq").info().depth == 2
    assert queue.info().depth == 0


async def test_a_late_delete_leaves_alone_what_spark_holds(rig: Rig) -> None:
    queue = await (await rig.start()).create_queue("q")
    await queue.push(bodies("a", "b"))
    epoch = await queue.claims.open("spark")
    claim = await queue.claims.claim("spark", epoch, 0, 10, 60_000)
    assert claim.count == 2
    assert queue.holds(0)
    assert queue.lease_of(0) is None
    assert queue.discard(0) is None
    assert queue.info().depth == 2
