"""The engine on the embedded journal, on a disk that is really full (a simulated one)."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING

import pytest

from nexo.journal.sqlite import SqliteJournal
from nexo.simulation.disk import FaultKind, SimulatedDisk
from nexo.vocabulary.errors import ReadOnly
from tests.engine.rig import Rig, ack, body, number_of, numbered, texts
from tests.journal.workload import SMALL

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nexo.engine.queue_actor import QueueActor

RESERVE_BYTES = 256 * 1024


@pytest.fixture
def disk(rig: Rig) -> Iterator[SimulatedDisk]:
    made = SimulatedDisk(Random(1))
    rig.make_journal = lambda: SqliteJournal(
        "data", vfs=made.name, tuning=SMALL, reserve_bytes=RESERVE_BYTES
    )
    yield made
    made.close()


async def push_until_full(queue: QueueActor) -> int:
    """How many messages were confirmed before the disk was full."""
    for confirmed in range(0, 100_000, 50):
        try:
            await queue.push(numbered(50, confirmed, 500))
        except ReadOnly as error:
            if "full" in error.message:
                return confirmed
            raise
    raise AssertionError("the disk is never full")


async def test_a_full_disk_refuses_pushes_lets_consumers_work_and_heals(
    rig: Rig, disk: SimulatedDisk
) -> None:
    engine = await rig.start()
    queue = await engine.create_queue("q")
    disk.capacity_bytes = disk.used_bytes + 2_000_000
    confirmed = await push_until_full(queue)
    assert confirmed > 1_000
    await asyncio.sleep(10)
    assert engine.refusal is not None
    for expected in range(0, 1_000, 100):
        delivery = await queue.pop(100, one_ack=True)
        assert texts(delivery)[0].encode() == body(expected, 500)
        await ack(queue, delivery)
    with pytest.raises(ReadOnly):
        await queue.push(numbered(1))
    disk.capacity_bytes = None
    await asyncio.sleep(3)
    assert engine.refusal is None
    await queue.push(numbered(1, confirmed))
    numbers: list[int] = []
    while (delivery := await queue.pop(1_000, one_ack=True)).parts:
        numbers += [number_of(text.encode()) for text in texts(delivery)]
        await ack(queue, delivery)
    assert numbers == list(range(1_000, confirmed + 1))


async def test_draining_makes_room_by_itself(rig: Rig, disk: SimulatedDisk) -> None:
    """Nobody frees a byte outside: the consumers do, and then pushes are accepted again."""
    engine = await rig.start()
    queue = await engine.create_queue("q")
    disk.capacity_bytes = disk.used_bytes + 3_000_000
    confirmed = await push_until_full(queue)
    await asyncio.sleep(2)
    acked = 0
    while (delivery := await queue.pop(200, one_ack=True)).parts:
        acked += delivery.count
        await ack(queue, delivery)
    assert acked == confirmed
    await asyncio.sleep(60)
    assert engine.refusal is None, "the room that draining left was never found"
    await queue.push(numbered(50, 0, 500))


async def test_a_restart_on_the_full_disk(rig: Rig, disk: SimulatedDisk) -> None:
    engine = await rig.start()
    queue = await engine.create_queue("q")
    disk.capacity_bytes = disk.used_bytes + 1_000_000
    confirmed = await push_until_full(queue)
    engine = await rig.restart()
    queue = engine.queue("q")
    assert queue.info().depth == confirmed
    delivery = await queue.pop(10, one_ack=True)
    await ack(queue, delivery)
    with pytest.raises(ReadOnly):
        await queue.push(numbered(50, 0, 5_000))
    disk.capacity_bytes = None
    await asyncio.sleep(5)
    await queue.push(numbered(1))
    assert queue.info().depth == confirmed - 10 + 1


@pytest.mark.parametrize("seed", range(5))
async def test_failed_writes_and_fsyncs_lose_nothing_confirmed(
    rig: Rig, disk: SimulatedDisk, seed: int
) -> None:
    random = Random(seed)
    engine = await rig.start()
    queue = await engine.create_queue("q")
    confirmed: set[int] = set()
    acked: set[int] = set()
    refused = 0
    for number in range(300):
        if random.random() < 0.1:
            disk.faults[disk.operations + random.randrange(1, 4)] = FaultKind.FAIL
        try:
            await queue.push(numbered(1, number, random.choice([10, 5_000])))
            confirmed.add(number)
            if random.random() < 0.5:
                delivery = await queue.pop(one_ack=True, visibility_ms=10)
                if delivery.parts:
                    await ack(queue, delivery)
                    acked.add(number_of(texts(delivery)[0].encode()))
        except ReadOnly:
            refused += 1
            await asyncio.sleep(random.choice([0, 0.5, 3]))
    assert refused > 5
    disk.faults.clear()
    await asyncio.sleep(10)
    assert engine.refusal is None
    engine = await rig.restart()
    left = {number_of(message.body) for message in await engine.queue("q").peek(1_000)}
    assert confirmed - acked <= left, f"lost: {confirmed - acked - left}"
    assert not acked & left, f"came back: {acked & left}"
