"""Dead letters: made on first need, moved in one commit, with all that is known of them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
import pytest

from nexo.vocabulary.attributes import decode_attributes, encode_attributes
from nexo.vocabulary.changes import Pushed, Removed, decode_queue_changes
from nexo.vocabulary.errors import QueueNotFound
from nexo.vocabulary.settings import QueueSettings
from nexo.vocabulary.states import Cause
from tests.engine.rig import Rig, bodies, nack, numbered, peeked, texts
from tests.engine.virtual_time import settle

if TYPE_CHECKING:
    from nexo.engine.engine import Engine
    from nexo.engine.queue_actor import QueueActor
    from nexo.journal.port import Commit


def changes_of(commit: Commit, queue: QueueActor) -> list[object]:
    return [
        change
        for write in commit.writes
        if write.owner == queue.owner
        for change in decode_queue_changes(write.record)
    ]


async def failing(engine: Engine, name: str = "q", **settings: object) -> QueueActor:
    wanted = msgspec.structs.replace(QueueSettings(max_attempts=1), **settings)
    return await engine.create_queue(name, wanted)


async def test_the_dead_letter_queue_comes_with_the_first_dead_letter(rig: Rig) -> None:
    engine = await rig.start()
    queue = await failing(engine, max_attempts=2)
    await queue.push(bodies("a"))
    await nack(queue, await queue.pop(one_ack=True))
    with pytest.raises(QueueNotFound):
        engine.queue("q_dlq")
    await nack(queue, await queue.pop(one_ack=True))
    assert await peeked(engine.queue("q_dlq")) == ["a"]
    assert engine.queue("q_dlq").queue.settings.max_attempts is None
    engine = await rig.restart()
    assert await peeked(engine.queue("q_dlq")) == ["a"]


async def test_everything_known_of_a_message_goes_with_it(rig: Rig) -> None:
    engine = await rig.start()
    queue = await failing(engine, max_attempts=3, visibility_timeout_ms=1_000)
    batch = msgspec.structs.replace(
        bodies("a", "b"),
        priority=7,
        groups=["g", None],
        attributes=[encode_attributes({"tenant": "t"}), None],
    )
    await queue.push(batch)
    ids = [message.id for message in await queue.peek()]
    created_ms = queue.now_ms()
    await asyncio.sleep(1)
    await queue.pop(2, one_ack=True)
    await asyncio.sleep(1.001)
    first_failed_ms = queue.now_ms() - 1
    await nack(queue, await queue.pop(2, one_ack=True), "second")
    await asyncio.sleep(5)
    last_failed_ms = queue.now_ms()
    await nack(queue, await queue.pop(2, one_ack=True), "third")
    engine = await rig.restart()
    dead = await engine.queue("q_dlq").peek()
    assert [(m.body, m.id, m.priority) for m in dead] == [(b"a", ids[0], 7), (b"b", ids[1], 7)]
    assert [m.group_id for m in dead] == ["g", None]
    assert [decode_attributes(m.attributes) for m in dead] == [{"tenant": "t"}, {}]
    for message in dead:
        fate = message.dead_letter
        assert fate is not None
        assert (fate.reason, fate.source, fate.attempts) == ("third", "q", 3)
        assert (fate.first_failed_ms, fate.last_failed_ms) == (first_failed_ms, last_failed_ms)
        assert message.created_ms == created_ms
        assert message.attempts == 0


@pytest.mark.parametrize(
    ("one_ack", "reason"), [(True, "visibility timeout"), (False, "retransmit timeout")]
)
async def test_a_timeout_is_a_failure_with_a_reason(rig: Rig, one_ack: bool, reason: str) -> None:
    engine = await rig.start()
    queue = await failing(engine)
    await queue.push(bodies("a"))
    await queue.pop(one_ack=one_ack)
    await asyncio.sleep(60)
    (message,) = await engine.queue("q_dlq").peek()
    assert message.dead_letter is not None
    assert reason in message.dead_letter.reason


async def test_removal_and_arrival_are_one_commit(rig: Rig) -> None:
    engine = await rig.start()
    queue = await failing(engine)
    await queue.push(numbered(50))
    await nack(queue, await queue.pop(50, one_ack=True))
    dead = engine.queue("q_dlq")
    removals = [
        (commit, change)
        for commit in rig.journal.commits
        for change in changes_of(commit, queue)
        if isinstance(change, Removed)
    ]
    ((commit, removed),) = removals
    assert (removed.cause, tuple(removed.ranges)) == (Cause.DEAD_LETTERED, (0, 50))
    arrived = [each for each in changes_of(commit, dead) if isinstance(each, Pushed)]
    assert [(each.first, each.end) for each in arrived] == [(0, 50)]
    assert [row for row, _ in commit.rows] == [arrived[0].row]
    assert commit.dropped_rows, "the source's row goes in the same commit"


async def test_a_crash_before_that_commit_leaves_it_in_the_source(rig: Rig) -> None:
    engine = await rig.start()
    queue = await failing(engine)
    await queue.push(bodies("a"))
    await queue.pop(one_ack=True)
    await asyncio.sleep(29.9)
    rig.journal.is_cut = True
    await asyncio.sleep(10)
    assert "q_dlq" in engine.queues
    engine = await rig.crash()
    await asyncio.sleep(1)
    assert await peeked(engine.queue("q_dlq")) == ["a"]
    assert engine.queue("q").info().depth == 0


async def test_the_dead_letters_of_a_fifo_queue_are_fifo(rig: Rig) -> None:
    engine = await rig.start()
    queue = await failing(engine, "x.fifo", fifo=True)
    await queue.push(msgspec.structs.replace(bodies("a", "b", "c"), groups=["g", "g", "h"]))
    while (delivery := await queue.pop(10, one_ack=True)).parts:
        await nack(queue, delivery)
    dead = engine.queue("x_dlq.fifo")
    assert dead.queue.settings.fifo
    first = await dead.pop(1, one_ack=True)
    assert texts(first) == ["a"]
    assert texts(await dead.pop(10, one_ack=True)) == ["c"], "`b` waits for `a`"


async def test_a_named_dead_letter_queue_takes_those_of_several(rig: Rig) -> None:
    engine = await rig.start()
    shared = await engine.create_queue("graves", QueueSettings(max_attempts=9))
    for name in ("one", "two"):
        queue = await failing(engine, name, dead_letter="graves")
        await queue.push(bodies(name))
        await nack(queue, await queue.pop(one_ack=True))
    sources = [m.dead_letter.source for m in await shared.peek() if m.dead_letter]
    assert sources == ["one", "two"]
    assert shared.queue.settings.max_attempts == 9, "it was there and stays as it was"


async def test_a_dead_letter_may_die_again(rig: Rig) -> None:
    engine = await rig.start()
    queue = await failing(engine)
    await failing(engine, "q_dlq")
    await queue.push(bodies("a"))
    (original,) = await queue.peek()
    await nack(queue, await queue.pop(one_ack=True))
    await nack(engine.queue("q_dlq"), await engine.queue("q_dlq").pop(one_ack=True))
    (message,) = await engine.queue("q_dlq_dlq").peek()
    assert message.id == original.id
    assert message.dead_letter is not None
    assert message.dead_letter.source == "q_dlq"


async def test_what_is_out_of_memory_is_read_back_first(rig: Rig) -> None:
    queue = await failing(await rig.start())
    await queue.push(numbered(40, size=100))
    await queue.pop(40, one_ack=True)
    engine = await rig.restart()
    assert engine.memory.resident_bytes == 0
    await asyncio.sleep(60)
    dead = await engine.queue("q_dlq").peek(100)
    assert [m.body for m in dead] == [b"%d" % n + b"." * (100 - len(b"%d" % n)) for n in range(40)]


async def test_waiting_consumers_of_the_dead_letters_are_served(rig: Rig) -> None:
    engine = await rig.start()
    queue, dead = await failing(engine), await engine.create_queue("q_dlq")
    pop = asyncio.create_task(dead.pop(wait_ms=60_000))
    await settle()
    await queue.push(bodies("a"))
    await nack(queue, await queue.pop(one_ack=True))
    assert texts(await pop) == ["a"]


async def test_depth_and_size_limits_do_not_stop_dead_letters(rig: Rig) -> None:
    engine = await rig.start()
    await engine.create_queue("q_dlq", QueueSettings(max_depth=1, max_message_bytes=1))
    queue = await failing(engine)
    await queue.push(bodies("long", "longer"))
    await nack(queue, await queue.pop(2, one_ack=True))
    assert await peeked(engine.queue("q_dlq")) == ["long", "longer"]


async def test_deleting_the_source_leaves_its_dead_letters(rig: Rig) -> None:
    engine = await rig.start()
    queue = await failing(engine)
    await queue.push(bodies("a"))
    await nack(queue, await queue.pop(one_ack=True))
    await engine.delete_queue("q")
    engine = await rig.restart()
    assert await peeked(engine.queue("q_dlq")) == ["a"]


async def test_deleting_the_dead_letter_queue_makes_a_new_one_on_need(rig: Rig) -> None:
    engine = await rig.start()
    queue = await failing(engine)
    for text in ("a", "b"):
        await queue.push(bodies(text))
        await nack(queue, await queue.pop(one_ack=True))
        assert await peeked(engine.queue("q_dlq")) == [text]
        if text == "a":
            await engine.delete_queue("q_dlq")


async def test_a_purge_while_the_read_back_runs_leaves_no_dead_letter(rig: Rig) -> None:
    queue = await failing(await rig.start())
    await queue.push(numbered(40))
    await queue.pop(40, one_ack=True)
    engine = await rig.restart()
    rig.runner.is_held = True
    await asyncio.sleep(60)
    purged = engine.queue("q").purge()
    await settle()
    rig.runner.release()
    assert await purged == 40
    await asyncio.sleep(5)
    assert "q_dlq" not in engine.queues or engine.queue("q_dlq").info().depth == 0
    assert engine.refusal is None


async def test_one_that_was_deleted_does_not_come_back(rig: Rig) -> None:
    """Not after a restart either. One that is named after its queue does: it is always the same."""
    engine = await rig.start()
    await engine.create_queue("graves")
    settings = QueueSettings(max_attempts=1, dead_letter="graves")
    named = await engine.create_queue("named", settings)
    await engine.create_queue("plain", QueueSettings(max_attempts=1))
    await named.push(bodies("a"))
    await engine.queue("plain").push(bodies("b"))
    await engine.delete_queue("graves")
    for restarts in (False, True, True):
        if restarts:
            engine = await rig.restart()
        named = engine.queue("named")
        await nack(named, await named.pop(one_ack=True))
        assert "graves" not in engine.queues
        assert (named.info().ready, named.info().in_flight) == (1, 0)
    plain = engine.queue("plain")
    await nack(plain, await plain.pop(one_ack=True))
    assert await peeked(engine.queue("plain_dlq")) == ["b"]
    await engine.create_queue("graves", QueueSettings(delay_ms=1))
    await nack(named, await named.pop(one_ack=True))
    assert await peeked(engine.queue("graves")) == ["a"]
    assert named.info().depth == 0
    (letter,) = await engine.queue("graves").peek()
    assert letter.dead_letter is not None
    assert letter.dead_letter.attempts == 4
    await engine.delete_queue("graves")
    await engine.edit_queue("named", QueueSettings(max_attempts=1))
    await engine.edit_queue("named", settings)
    await named.push(bodies("c"))
    await nack(named, await named.pop(one_ack=True))
    assert await peeked(engine.queue("graves")) == ["c"], "nobody asked for it when it was deleted"
