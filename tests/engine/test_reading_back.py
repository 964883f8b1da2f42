"""Reading back: each row once, however its messages are cut, and many rows in several calls."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from nexo.vocabulary.attributes import encode_attributes
from nexo.vocabulary.limits import READ_AHEAD_CHUNKS, READ_CALL_ROWS
from tests.engine.rig import Rig, ack, bodies, numbered, texts
from tests.engine.virtual_time import settle

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

    from nexo.engine.engine import Engine


async def every_second(engine: Engine, messages: int, size: int = 0) -> None:
    """A queue that gets every second message of a topic, each a chunk in the same row."""
    topic = await engine.create_topic("t")
    await engine.create_queue("q")
    await engine.bind("t", "q", {"kind": "wanted"})
    kinds = [encode_attributes({"kind": kind}) for kind in ("wanted", "other")]
    batch = msgspec.structs.replace(numbered(messages, size=size), attributes=messages // 2 * kinds)
    await topic.publish(batch)


async def test_a_row_of_more_chunks_than_a_read_takes_is_read_once(rig: Rig) -> None:
    messages = 8 * READ_AHEAD_CHUNKS
    await every_second(await rig.start(), messages)
    engine = await rig.restart()
    queue, found = engine.queue("q"), list[str]()
    while (delivery := await queue.pop(100, one_ack=True)).parts:
        found += texts(delivery)
        await ack(queue, delivery)
    assert found == [str(number) for number in range(0, messages, 2)]
    assert len(rig.journal.fetched) == 1, "all of the row was read for each part of it"
    assert engine.memory.resident_bytes > 0, "what is kept for the next read is not counted"
    engine.memory.give_back()
    assert engine.memory.resident_bytes == 0


async def test_a_row_that_is_too_large_to_be_kept_is_read_again(rig: Rig) -> None:
    messages = 4 * READ_AHEAD_CHUNKS
    await every_second(await rig.start(), messages, size=1_000)
    limit_bytes = 4 * 1_000 * messages  # of which a part is for rows that were just read
    engine = await rig.restart(limit_bytes)
    queue, found = engine.queue("q"), 0
    while (delivery := await queue.pop(100, one_ack=True)).parts:
        found += len(texts(delivery))
        await ack(queue, delivery)
        assert engine.memory.resident_bytes <= limit_bytes
    assert found == messages // 2
    assert len(rig.journal.fetched) > 1


async def test_recent_rows_leave_before_any_content(rig: Rig) -> None:
    await every_second(await rig.start(), 8 * READ_AHEAD_CHUNKS, size=100)
    limit_bytes = 4_000_000
    engine = await rig.restart(limit_bytes)
    engine.memory.limit_bytes += engine.memory.bookkeeping_bytes
    await engine.queue("q").pop(100)
    kept_bytes = engine.memory.resident_bytes - engine.queue("q").resident_bytes
    assert kept_bytes > 200_000, "the row is not there for the next read"
    other = await engine.create_queue("other")
    await other.push(numbered(38, size=100_000))
    assert engine.memory.resident_bytes <= limit_bytes
    assert other.resident_bytes == 38 * 100_012, "contents had to go, and the row stayed"


async def test_a_chunk_of_many_rows_is_read_in_several_calls(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nexo.machine.log.CHUNK_ROWS_MAX", 10_000)
    engine = await rig.start()
    queue = await engine.create_queue("q")
    for number in range(4 * READ_CALL_ROWS + 10):
        await queue.push_one(b"%d" % number)
    engine = await rig.restart()
    other = await engine.create_queue("other")
    calls: list[int] = []

    def counted(rows: Sequence[int]) -> None:
        calls.append(len(rows))

    rig.journal.refuse_fetch = counted
    rig.runner.is_held = True
    pop = asyncio.create_task(engine.queue("q").pop(10_000, one_ack=True))
    await settle()
    rig.runner.step()
    await settle()
    pushed = other.push(bodies("between"))
    await settle()
    rig.runner.step()
    await settle()
    rig.runner.step()
    assert (pushed.done(), pop.done()) == (True, False), "a commit had to wait for all of it"
    rig.runner.release()
    assert len(texts(await pop)) == 4 * READ_CALL_ROWS + 10
    assert calls == [*[READ_CALL_ROWS] * 4, 10]
