"""Restarts: everything confirmed is back, and no receipt ever means another message."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
import pytest

from nexo.engine.engine import Engine
from nexo.journal.memory import MemoryJournal
from nexo.journal.sqlite import SqliteJournal
from nexo.vocabulary.errors import DataCorrupt, NexoError, StaleReceipt
from nexo.vocabulary.settings import QueueSettings
from nexo.vocabulary.states import State
from tests.engine.rig import HeldRunner, Rig, ack, bodies, nack, numbered, peeked, ranges, texts

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(params=["memory", "file"])
def place(rig: Rig, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "file":
        rig.make_journal = lambda: SqliteJournal(tmp_path / "data", reserve_bytes=0)
    return str(request.param)


@pytest.mark.usefixtures("place")
async def test_every_state_comes_back(rig: Rig) -> None:
    queue = await (await rig.start()).create_queue("q")
    await queue.push(numbered(10))
    await queue.push(msgspec.structs.replace(bodies("later"), delay_ms=60_000))
    await queue.push(msgspec.structs.replace(bodies("urgent"), priority=9))
    assert texts(await queue.pop(one_ack=True)) == ["urgent"]
    sent = await queue.pop(2)
    received = await queue.pop(2)
    for bounds in ranges(received):
        queue.received(received.lease, *bounds)
    failed = await queue.pop(2, one_ack=True)
    await nack(queue, failed)
    acked = await queue.pop(1, one_ack=True)
    await ack(queue, acked)
    before = await queue.peek(100)
    engine = await rig.restart()
    queue = engine.queue("q")
    assert await queue.peek(100) == before
    states = [message.state for message in before]
    assert states == [
        *[State.RECEIVED],
        *[State.SENT] * 2,
        *[State.RECEIVED] * 2,
        *[State.READY] * 5,
        State.SCHEDULED,
    ]
    info = queue.info()
    assert (info.pushed, info.delivered, info.acked, info.nacked) == (12, 8, 1, 2)
    assert texts(sent) == ["0", "1"]


@pytest.mark.usefixtures("place")
async def test_receipts_from_before_a_restart_still_work(rig: Rig) -> None:
    queue = await (await rig.start()).create_queue("q")
    await queue.push(numbered(4))
    delivery = await queue.pop(3, one_ack=True)
    queue = (await rig.restart()).queue("q")
    await queue.ack(delivery.lease, 0, 1)
    await queue.nack(delivery.lease, 1, 2, 0)
    await queue.extend(delivery.lease, 2, 3, 120_000)
    assert await peeked(queue) == ["1", "2", "3"]
    with pytest.raises(StaleReceipt):
        await queue.ack(delivery.lease, 0, 1)


@pytest.mark.usefixtures("place")
async def test_a_receipt_that_the_crash_forgot_never_hits_another_delivery(rig: Rig) -> None:
    queue = await (await rig.start()).create_queue("q")
    await queue.push(numbered(1))
    forgotten = await queue.pop(one_ack=True)
    queue = (await rig.crash()).queue("q")
    other = await queue.pop(one_ack=True)
    assert texts(other) == texts(forgotten)
    assert other.lease != forgotten.lease
    for act in (queue.ack, queue.nack, queue.give_back):
        with pytest.raises(StaleReceipt):
            await act(forgotten.lease, 0, 1)
    await ack(queue, other)


async def test_lease_numbers_are_never_used_twice(rig: Rig) -> None:
    await (await rig.start()).create_queue("q", QueueSettings(max_attempts=None))
    assert rig.engine is not None
    await rig.engine.queue("q").push(numbered(1))
    seen: set[int] = set()
    for step in range(10):
        assert rig.engine is not None
        queue = rig.engine.queue("q")
        for _ in range(3):
            delivery = await queue.pop(one_ack=True)
            assert delivery.lease not in seen
            seen.add(delivery.lease)
            for bounds in ranges(delivery):
                await queue.give_back(delivery.lease, *bounds)
        await (rig.crash() if step % 2 else rig.restart())


async def test_numbers_go_on_after_everything_is_gone(rig: Rig) -> None:
    queue = await (await rig.start()).create_queue("q")
    assert (await queue.push(numbered(5))).ranges == [0, 5]
    await queue.purge()
    queue = (await rig.restart()).queue("q")
    assert (await queue.push(numbered(5))).ranges == [5, 10]
    queue = (await rig.restart()).queue("q")
    assert (await queue.push(bodies("x"))).ranges == [10, 11]


async def test_rows_are_never_numbered_twice(rig: Rig) -> None:
    queue = await (await rig.start()).create_queue("q")
    rows: list[int] = []
    for _ in range(5):
        await queue.push(numbered(40))
        rows += [row for commit in rig.journal.commits for row, _ in commit.rows]
        await queue.purge()
        queue = (await rig.restart()).queue("q")
    assert len(rows) == len(set(rows)) == 5


async def test_a_snapshot_stands_for_the_records_before_it(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nexo.vocabulary.limits.UNFOLDED_BYTES_MAX", 500)
    engine = await rig.start()
    queue = await engine.create_queue("q")
    for number in range(100):
        await queue.push(numbered(3, 3 * number))
        delivery = await queue.pop(2, one_ack=True)
        (first, end), *_ = ranges(delivery)
        await queue.ack(delivery.lease, first, first + 1)
        if end > first + 1 and number % 2:
            await queue.nack(delivery.lease, first + 1, end, 0)
    assert any(write.snapshot for commit in rig.journal.commits for write in commit.writes)
    assert len(rig.disk.records[queue.owner]) < 100
    before = await queue.peek(1_000)
    engine = await rig.crash()
    after = await engine.queue("q").peek(1_000)
    assert [(m.seq, m.body) for m in after] == [(m.seq, m.body) for m in before]


async def test_deduplication_and_producers_survive(rig: Rig) -> None:
    queue = await (await rig.start()).create_queue("q", QueueSettings(deduplication="content"))
    first = await queue.push(bodies("a", "b"), "me", 1)
    queue = (await rig.crash()).queue("q")
    assert (await queue.push(bodies("a", "b"), "me", 1)).ranges == first.ranges
    assert (await queue.push(bodies("b"), "me", 2)).ranges == [1, 2]
    assert queue.info().depth == 2


async def test_time_does_not_go_back_behind_the_journal(rig: Rig) -> None:
    """The wall clock was set back by an hour between two runs."""
    queue = await (await rig.start()).create_queue("q", QueueSettings(visibility_timeout_ms=5_000))
    await queue.push(numbered(1))
    await queue.pop(one_ack=True)
    await rig.stop()

    class LateClock:
        def __init__(self) -> None:
            self.ahead_ms = 0

        def now_ms(self) -> int:
            return int(asyncio.get_running_loop().time() * 1000) + self.ahead_ms

        def wall_ms(self) -> int:
            return self.now_ms() - self.ahead_ms

        def not_before(self, now_ms: int) -> None:
            self.ahead_ms += max(0, now_ms - self.now_ms())

    journal = MemoryJournal(rig.disk)
    # No thread: the virtual clock would run ahead of it.
    engine = Engine(journal, clock=LateClock(), runner=HeldRunner(), new_incarnation=lambda: 9)
    await engine.open()
    began = asyncio.get_running_loop().time()
    delivery = await engine.queue("q").pop(wait_ms=60_000)
    assert texts(delivery) == ["0"]
    assert asyncio.get_running_loop().time() - began == pytest.approx(5, abs=0.1)
    await engine.close()


async def test_a_journal_that_cannot_be_read_is_let_go(rig: Rig) -> None:
    await (await rig.start()).create_queue("q")
    await rig.stop()
    rig.disk.records[0] = [b"\xc1 not msgpack"]
    journal = MemoryJournal(rig.disk)
    engine = Engine(journal, new_incarnation=lambda: 1)
    with pytest.raises(DataCorrupt, match="catalog"):
        await engine.open()
    with pytest.raises(NexoError, match="not open"):
        journal.last_row()
