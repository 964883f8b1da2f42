"""A disk that falls behind: whoever pushes waits, memory stays bounded, and order is kept."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from nexo.vocabulary.errors import QueueNotFound, ReadOnly
from tests.engine.rig import Rig, body, number_of, numbered, texts
from tests.engine.virtual_time import settle

LIMIT_BYTES = 100_000
SIZE = 1_000


@pytest.fixture(autouse=True)
def low_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nexo.vocabulary.limits.UNSETTLED_BYTES_MAX", LIMIT_BYTES)


async def test_pushes_wait_and_memory_is_bounded(rig: Rig) -> None:
    engine = await rig.start()
    queue, topic = await engine.create_queue("q"), await engine.create_topic("t")
    rig.runner.is_held = True
    pushes: list[asyncio.Future[Any]] = [
        *[queue.push_one(body(number, SIZE)) for number in range(500)],
        queue.push(numbered(100, 500, SIZE)),
        topic.publish(numbered(100, 0, SIZE)),
    ]
    await settle()
    assert engine.committer.unsettled_bytes <= LIMIT_BYTES + 100 * SIZE
    assert queue.queue.resident_bytes <= 2 * LIMIT_BYTES
    assert not any(push.done() for push in pushes)
    most = 0
    for _ in range(100):
        if rig.runner.held:
            rig.runner.step()
        await settle()
        most = max(most, engine.committer.unsettled_bytes)
    assert most <= LIMIT_BYTES + 100 * SIZE
    await asyncio.gather(*pushes)
    rig.runner.release()
    assert [number_of(text.encode()) for text in texts(await queue.pop(1_000))] == list(range(600))
    assert engine.committer.unsettled_bytes == 0


async def test_nobody_is_overtaken(rig: Rig) -> None:
    queue = await (await rig.start()).create_queue("q")
    rig.runner.is_held = True
    first = queue.push(numbered(200, 0, SIZE))
    waiting = [queue.push(numbered(1, number, SIZE)) for number in (200, 201)]
    await settle()
    rig.runner.step()  # there is room from here on, and those who wait have not run yet
    late = queue.push(numbered(1, 202, SIZE))
    await settle()
    rig.runner.release()
    await asyncio.gather(first, *waiting, late)
    assert [number_of(text.encode()) for text in texts(await queue.pop(1_000))] == list(range(203))


async def test_one_who_gives_up_frees_the_way(rig: Rig) -> None:
    engine = await rig.start()
    queue = await engine.create_queue("q")
    rig.runner.is_held = True
    first = queue.push(numbered(200, 0, SIZE))
    quitter, other = queue.push(numbered(1, 999)), queue.push(numbered(1, 200))
    await settle()
    quitter.cancel()
    await settle()
    rig.runner.release()
    await asyncio.gather(first, other)
    assert not engine.committer.congested
    assert [number_of(text.encode()) for text in texts(await queue.pop(1_000))] == list(range(201))


async def test_acks_do_not_wait_for_room(rig: Rig) -> None:
    queue = await (await rig.start()).create_queue("q")
    await queue.push(numbered(1))
    delivery = await queue.pop(one_ack=True)
    await settle()
    rig.runner.is_held = True
    pushes = [queue.push(numbered(200, 0, SIZE)) for _ in range(3)]
    await settle()
    acked = queue.ack(delivery.lease, 0, 1)
    await settle()
    rig.runner.step()
    await settle()
    rig.runner.step()
    await asyncio.wait_for(acked, 1)
    rig.runner.release()
    await asyncio.gather(*pushes)


async def test_those_who_wait_are_told_when_the_disk_fails(rig: Rig) -> None:
    engine = await rig.start()
    queue, topic = await engine.create_queue("q"), await engine.create_topic("t")
    rig.runner.is_held = True
    told: list[asyncio.Future[Any]] = [
        queue.push(numbered(200, 0, SIZE)),
        queue.push(numbered(1)),
        queue.push_one(b"x"),
        topic.publish(numbered(1)),
    ]
    await settle()
    failing = [ReadOnly("full")]
    rig.journal.refuse_commit = lambda _: failing.pop() if failing else None
    rig.runner.release()
    results = await asyncio.gather(*told, return_exceptions=True)
    assert [getattr(each, "code", each) for each in results] == ["read_only"] * 4
    await asyncio.sleep(5)
    assert engine.committer.unsettled_bytes == 0
    await queue.push(numbered(1))
    assert queue.info().depth == 1


async def test_a_queue_deleted_while_its_producer_waits(rig: Rig) -> None:
    engine = await rig.start()
    queue, other = await engine.create_queue("q"), await engine.create_queue("other")
    rig.runner.is_held = True
    first = other.push(numbered(200, 0, SIZE))
    waiting = queue.push(numbered(1))
    await settle()
    deleted = asyncio.create_task(engine.delete_queue("q"))
    await settle()
    rig.runner.release()
    await asyncio.gather(first, deleted)
    with pytest.raises(QueueNotFound):
        await waiting
