"""However long a line is: calls never nest, and one step of the event loop does a bounded part.

The runner of these tests runs a call to the journal inside the call, as the broker does while its
disk is quick.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from nexo.engine import queue_actor
from nexo.engine.desk import Desk
from nexo.machine import compact, fail, move, purge
from nexo.machine import deadlines as time_rules
from nexo.machine.deadlines import run_due
from nexo.machine.invariants import check
from nexo.vocabulary import limits
from nexo.vocabulary.attributes import encode_attributes
from nexo.vocabulary.errors import ReadOnly
from nexo.vocabulary.limits import (
    COPY_STEP_CHUNKS,
    DESK_TURN_CALLS,
    DUE_STEP_SPANS,
    GIVE_BACK_STEP_SPANS,
    LONG_COMMIT_ROWS,
    MOVE_RUNS,
    POP_RUNS_MAX,
    READ_AHEAD_CHUNKS,
    SERVE_STEP_PARTS,
    SPARSE_CHUNK_BYTES,
    WAITERS_TOLD,
)
from nexo.vocabulary.settings import QueueSettings
from tests.engine.rig import (
    WANTED,
    HeldRunner,
    Rig,
    ack,
    bodies,
    numbered,
    peeked,
    publish_apart,
    texts,
)
from tests.engine.virtual_time import settle

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nexo.engine.engine import Engine
    from nexo.engine.queue_actor import QueueActor
    from nexo.machine.chunk import Chunk
    from nexo.machine.pop import Delivery
    from nexo.machine.queue import Queue

MANY = 2_000  # deeper than calls may nest
CHUNK_BY_CHUNK = 1  # a memory limit at which nothing is read ahead


class Consumer:
    def __init__(self, queue: QueueActor, prefetch: int) -> None:
        self.texts: list[str] = []
        queue.subscribe(prefetch, self._take, lambda _: None)

    def _take(self, delivery: Delivery) -> None:
        self.texts += texts(delivery)


class Turns:
    """Counts what happens in each turn of the event loop."""

    def __init__(self) -> None:
        self.most = 0
        self.all = 0
        self._now = 0
        self._handle: asyncio.Handle | None = None

    def count(self, more: int = 1) -> None:
        self._now += more
        self.all += more
        self.most = max(self.most, self._now)
        if self._handle is None:  # else time would never jump
            self._handle = asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self._now = 0
        self._handle = None


async def fill(engine: Engine, settings: QueueSettings | None = None) -> QueueActor:
    """A queue of many chunks with one message each."""
    topic = await engine.create_topic("t")
    queue = await engine.create_queue("q", settings)
    await engine.bind("t", "q", WANTED)
    for number in range(MANY):
        await publish_apart(topic, bodies(str(number)))
    return queue


EXPECTED = [str(number) for number in range(MANY)]


async def popped(queue: QueueActor) -> list[str]:
    """All that is ready, pop by pop."""
    found: list[str] = []
    while (delivery := await queue.pop(MANY, one_ack=True)).parts:
        found += texts(delivery)
    return found


def watch_returns(monkeypatch: pytest.MonkeyPatch) -> Turns:
    """Counts the runs of messages that come back in each turn."""
    turns, honest = Turns(), fail.come_back

    def counted(*arguments: Any) -> None:
        turns.count()
        honest(*arguments)

    for module in (fail, time_rules):
        monkeypatch.setattr(module, "come_back", counted)
    return turns


async def test_a_subscriber_after_a_restart(rig: Rig) -> None:
    await fill(await rig.start())
    engine = await rig.restart(CHUNK_BY_CHUNK)
    other = await engine.create_queue("other")
    consumer = Consumer(engine.queue("q"), MANY)
    for number in range(10):
        await other.push(bodies(str(number)))
    assert len(consumer.texts) < MANY / 2, "others had to wait until all was read"
    await asyncio.sleep(1)
    assert consumer.texts == EXPECTED


async def test_many_small_rows_are_read_back_together(rig: Rig) -> None:
    await fill(await rig.start())
    calls: list[int] = []

    def counted(rows: Sequence[int]) -> None:
        calls.append(len(rows))

    engine = await rig.restart()
    rig.journal.refuse_fetch = counted
    consumer = Consumer(engine.queue("q"), MANY)
    await asyncio.sleep(1)
    assert consumer.texts == EXPECTED
    assert len(calls) <= MANY // READ_AHEAD_CHUNKS + 1
    assert max(calls) <= READ_AHEAD_CHUNKS


async def test_a_row_that_several_chunks_share_is_read_once(rig: Rig) -> None:
    engine = await rig.start()
    topic = await engine.create_topic("t")
    await engine.create_queue("q")
    await engine.bind("t", "q", {"kind": "wanted"})
    kinds = [encode_attributes({"kind": kind}) for kind in ("wanted", "other")]
    await topic.publish(msgspec.structs.replace(numbered(100), attributes=50 * kinds))
    engine = await rig.restart()
    rig.journal.fetched.clear()
    assert len(texts(await engine.queue("q").pop(100))) == 50
    assert len(rig.journal.fetched) == 1


async def test_dead_letters_that_left_memory_are_moved_in_order(rig: Rig) -> None:
    settings = QueueSettings(max_attempts=1, visibility_timeout_ms=1_000)
    queue = await fill(await rig.start(), settings)
    while (await queue.pop(100, one_ack=True)).parts:
        pass
    engine = await rig.restart(CHUNK_BY_CHUNK)
    rig.journal.fetched.clear()
    await asyncio.sleep(2)
    assert await engine.queue("q").pop() is not None
    assert len(rig.journal.fetched) <= MANY + 1, "some were read again and again"
    dead = engine.queue("q_dlq")
    assert await peeked(dead, 1_000) == EXPECTED[:1_000]
    assert dead.info().depth == MANY


async def test_what_is_due_at_one_time_comes_back_some_at_a_time(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = await fill(await rig.start(), QueueSettings(delay_ms=10_000))
    steps: list[int] = []

    def watched(of: Queue, now_ms: int, spans_max: int) -> bool:
        before = of.ready
        is_more = run_due(of, now_ms, spans_max)
        check(of)
        if of.ready > before:
            steps.append(of.ready - before)
        return is_more

    monkeypatch.setattr(queue_actor, "run_due", watched)
    await asyncio.sleep(11)
    assert queue.info().ready == MANY
    assert steps == [DUE_STEP_SPANS] * (MANY // DUE_STEP_SPANS)
    steps.clear()
    for _ in range(0, MANY, POP_RUNS_MAX):
        delivery = await queue.pop(MANY, one_ack=True, visibility_ms=1_000)
        assert len(delivery.parts) == POP_RUNS_MAX, "a pop takes so many runs, and no more"
    await asyncio.sleep(2)
    assert queue.info().ready == MANY
    assert steps == [DUE_STEP_SPANS] * (MANY // DUE_STEP_SPANS)
    assert await popped(queue) == EXPECTED


async def test_a_claim_lapses_some_at_a_time(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = await fill(await rig.start())
    epoch = await queue.claims.open("query")
    claim = await queue.claims.claim("query", epoch, 0, MANY, 1_000)
    assert claim.count == MANY
    turns = watch_returns(monkeypatch)
    await asyncio.sleep(1)
    again = await queue.claims.claim("query", epoch, 0, MANY, 60_000)
    assert 0 < again.count < MANY, "the batch is over with its first messages"
    await asyncio.sleep(1)
    assert turns.most == DUE_STEP_SPANS
    assert queue.info().ready == MANY - again.count
    check(queue.queue)


async def test_a_crash_in_the_middle_of_a_lapse(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = await fill(await rig.start())
    epoch = await queue.claims.open("query")
    await queue.claims.claim("query", epoch, 0, MANY, 1_000)
    monkeypatch.setattr(limits, "DUE_STEP_SPANS", 10)
    monkeypatch.setattr(limits, "UNWRITTEN_CHANGES_MAX", 30)
    rig.runner.is_held = True
    await asyncio.sleep(1)
    while rig.runner.held:
        rig.runner.step()
        await settle()
        if queue.info().ready > MANY // 2:
            break
    monkeypatch.undo()
    engine = await rig.crash()
    await asyncio.sleep(2)
    assert await popped(engine.queue("q")) == EXPECTED


async def test_a_consumer_that_leaves_gives_back_some_at_a_time(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = await fill(await rig.start())
    waiter = queue.subscribe(MANY, lambda _: None, lambda _: None)
    await settle()
    assert queue.info().in_flight == MANY
    turns = watch_returns(monkeypatch)
    queue.unsubscribe(waiter)
    await settle()
    assert turns.most == GIVE_BACK_STEP_SPANS
    assert await popped(queue) == EXPECTED


async def test_dead_letters_move_some_at_a_time(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = await rig.start()
    queue = await fill(engine, QueueSettings(max_attempts=1, visibility_timeout_ms=1_000))
    await popped(queue)
    turns, honest = Turns(), move.take_out

    def counted(*arguments: Any) -> bool:
        turns.count()
        return honest(*arguments)

    monkeypatch.setattr(move, "take_out", counted)
    await asyncio.sleep(2)
    assert engine.queue("q_dlq").info().depth == MANY
    dead = [str(number) for number in range(MANY)]
    assert await peeked(engine.queue("q_dlq"), 1_000) == dead[:1_000]
    redrive = await engine.redrive("q_dlq")
    await redrive.finished
    assert turns.most <= MOVE_RUNS
    assert queue.info().ready == MANY


async def test_what_time_brings_waits_for_a_slow_disk(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a commit would have to write all of it in one step."""
    monkeypatch.setattr(limits, "DUE_STEP_SPANS", 10)
    monkeypatch.setattr(limits, "UNWRITTEN_CHANGES_MAX", 40)
    queue = await fill(await rig.start())
    for _ in range(0, MANY, POP_RUNS_MAX):
        await queue.pop(MANY, one_ack=True, visibility_ms=1_000)
    await asyncio.sleep(0.5)
    rig.runner.is_held = True
    await asyncio.sleep(10)
    assert 0 < queue.info().ready < 200
    rig.runner.release()
    await asyncio.sleep(2)
    assert queue.info().ready == MANY


@pytest.mark.parametrize("is_deleted", [False, True])
async def test_a_purge_is_taken_apart_some_at_a_time(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, is_deleted: bool
) -> None:
    engine = await rig.start()
    queue, steps, looks = await fill(engine), list[int](), list[int]()
    honest, honestly = purge.take_apart, purge.prepare

    def counted(of: Queue, count: int) -> bool:
        steps.append(count)
        return honest(of, count)

    def looked(of: Queue, count: int) -> bool:
        looks.append(count)
        return honestly(of, count)

    monkeypatch.setattr(purge, "take_apart", counted)
    monkeypatch.setattr(purge, "prepare", looked)
    monkeypatch.setattr(limits, "PURGED_STEP_THINGS", 100)
    chunks = list(queue.queue.lanes[0].log.chunks.values())
    purged = asyncio.ensure_future(engine.delete_queue("q") if is_deleted else queue.purge())
    while queue.info().depth:
        assert not steps, "it is taken apart before it is purged"
        await asyncio.sleep(0)
    assert queue.resident_bytes == 0
    assert len(looks) >= MANY // 100
    assert len(steps) <= 2
    await purged
    await settle()
    assert len(steps) > MANY // 100
    assert not any(chunk.content for chunk in chunks)


async def test_what_comes_while_a_purge_looks_at_chunks_is_purged_too(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rig sees to it that no row stays behind, and none is dropped that is needed."""
    monkeypatch.setattr(limits, "PURGED_STEP_THINGS", 50)
    engine = await rig.start()
    queue = await fill(engine)
    purged = asyncio.ensure_future(queue.purge())
    delivery = await queue.pop(20, one_ack=True)
    await ack(queue, delivery)
    await queue.push(numbered(40))
    assert await purged > 0
    await queue.push(bodies("later"))
    assert await popped(queue) == ["later"]


async def test_a_crash_after_a_purge_brings_nothing_back(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = await fill(await rig.start())
    monkeypatch.setattr(purge, "take_apart", lambda *_: False)  # it never comes to that
    await queue.purge()
    await queue.push(bodies("later"))
    engine = await rig.crash()
    assert await popped(engine.queue("q")) == ["later"]


async def test_what_is_too_old_goes_some_at_a_time(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches of 32 are chunks of their own."""
    monkeypatch.setattr(limits, "DUE_STEP_SPANS", 10)
    engine = await rig.start()
    queue = await engine.create_queue("q", QueueSettings(retention_ms=60_000))
    for number in range(95):
        await queue.push(numbered(32, 32 * number))
    expired: list[int] = []

    def counted(of: Queue, *rest: Any) -> bool:
        before = of.totals.expired
        is_more = run_due(of, *rest)
        expired.append(of.totals.expired - before)
        check(of)
        return is_more

    monkeypatch.setattr(queue_actor, "run_due", counted)
    await asyncio.sleep(61)
    assert [each for each in expired if each] == [*[320] * 9, 160]
    assert queue.info().depth == 0


async def test_sparse_chunks_are_copied_forward_some_at_a_time(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = await (await rig.start(CHUNK_BY_CHUNK)).create_queue("q")
    count, size = 3 * COPY_STEP_CHUNKS, SPARSE_CHUNK_BYTES // 20
    for _ in range(count):
        await queue.push(numbered(32, size=size))
    for _ in range(count):
        delivery = await queue.pop(32, one_ack=True, visibility_ms=60_000)
        for part in delivery.parts:
            await queue.ack(delivery.lease, part.first, part.first + part.count - 1)
    copied: list[int] = []
    honest = compact.copy_forward

    def counted(of: Queue, *chunks: Chunk) -> None:
        copied.append(len(chunks))
        honest(of, *chunks)

    monkeypatch.setattr(compact, "copy_forward", counted)
    for limit in ("UNFOLDED_BYTES_MAX", "SNAPSHOT_BYTES_MIN"):
        monkeypatch.setattr(limits, limit, 0)
    await queue.push(bodies("a snapshot is due"))
    await asyncio.sleep(1)
    assert copied == [COPY_STEP_CHUNKS] * 3
    check(queue.queue)


async def test_consumers_are_served_some_at_a_time(rig: Rig) -> None:
    queue = await (await rig.start()).create_queue("q")
    turns, got = Turns(), []

    def take(delivery: Delivery) -> None:
        turns.count(len(delivery.parts))
        got.extend(texts(delivery))

    for _ in range(3 * SERVE_STEP_PARTS):
        queue.subscribe(1, take, lambda _: None)
    await queue.push(numbered(3 * SERVE_STEP_PARTS))
    await settle()
    assert got == [str(number) for number in range(3 * SERVE_STEP_PARTS)]
    assert turns.most <= SERVE_STEP_PARTS


async def test_pops_that_nobody_waits_for_any_more_do_not_nest(rig: Rig) -> None:
    queue = await (await rig.start()).create_queue("q")
    pops = [asyncio.create_task(queue.pop(wait_ms=60_000)) for _ in range(MANY)]
    await settle()
    rig.runner.is_held = True
    push = queue.push(bodies("a"))
    await settle()
    for pop in pops[:-1]:
        pop.cancel()
    rig.runner.release()  # they are served before they have left
    await push
    assert texts(await pops[-1]) == ["a"]
    await asyncio.gather(*pops, return_exceptions=True)


async def test_calls_at_the_desk_never_nest_and_leave_the_loop_its_turns() -> None:
    desk, turns, ended = Desk(HeldRunner()), Turns(), asyncio.Event()
    order: list[int] = []

    def job(number: int) -> int:
        turns.count()
        return number

    def done(number: int, _: Any) -> None:
        order.append(number)
        if number < MANY:
            desk.submit(lambda: job(number + 1), done)

        else:
            ended.set()

    desk.submit(lambda: job(0), done)
    await ended.wait()
    assert order == list(range(MANY + 1))
    assert turns.most <= DESK_TURN_CALLS


async def test_consumers_that_leave_at_once_take_turns(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = await fill(await rig.start())
    waiters = [queue.subscribe(20, lambda _: None, lambda _: None) for _ in range(MANY // 20)]
    await settle()
    assert queue.info().in_flight == MANY
    await asyncio.sleep(1)
    monkeypatch.setattr(limits, "UNWRITTEN_CHANGES_MAX", 100)
    for waiter in waiters:
        queue.room.leave(waiter)  # else what comes back goes to those who have not left yet
    turns = watch_returns(monkeypatch)
    for waiter in waiters:
        queue.unsubscribe(waiter)
    assert 100 < queue.info().ready <= 120
    await asyncio.sleep(1)
    assert turns.most <= GIVE_BACK_STEP_SPANS
    assert await popped(queue) == EXPECTED


async def test_who_leaves_waits_for_a_commit_of_what_came_back(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a commit would have to write all of it in one step."""
    queue = await fill(await rig.start())
    waiter = queue.subscribe(MANY, lambda _: None, lambda _: None)
    await settle()
    monkeypatch.setattr(limits, "GIVE_BACK_STEP_SPANS", 30)
    monkeypatch.setattr(limits, "UNWRITTEN_CHANGES_MAX", 100)
    rig.runner.is_held = True
    queue.unsubscribe(waiter)
    await settle()
    assert queue.info().ready <= 2 * 130, "one commit under way, and what waits for the next"
    rig.runner.release()
    await asyncio.sleep(1)
    assert await popped(queue) == EXPECTED


async def test_consumers_wait_for_a_commit_of_what_was_handed_out(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = await (await rig.start()).create_queue("q")
    got: list[str] = []
    await queue.push(numbered(MANY))
    monkeypatch.setattr(limits, "UNWRITTEN_CHANGES_MAX", 100)
    rig.runner.is_held = True
    for _ in range(MANY):
        queue.subscribe(1, lambda delivery: got.extend(texts(delivery)), lambda _: None)
    await settle()
    assert 100 < len(got) <= 2 * 101, "one commit under way, and what waits for the next"
    rig.runner.release()
    await settle()
    assert got == EXPECTED


async def test_while_nothing_is_accepted_consumers_do_not_wait_for_a_commit(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There may be none for long."""
    engine = await rig.start()
    queue = await engine.create_queue("q")
    await queue.push(numbered(MANY))
    monkeypatch.setattr(limits, "UNWRITTEN_CHANGES_MAX", 100)
    monkeypatch.setattr(engine._context, "refusal", ReadOnly("the disk is full", "free some"))
    rig.runner.is_held = True
    got: list[str] = []
    for _ in range(MANY):
        queue.subscribe(1, lambda delivery: got.extend(texts(delivery)), lambda _: None)
    await settle()
    assert got == EXPECTED
    monkeypatch.undo()
    rig.runner.release()
    await settle()


async def test_those_who_wait_are_told_some_at_a_time_that_their_queue_is_gone(rig: Rig) -> None:
    engine = await rig.start()
    queue = await engine.create_queue("q")
    turns = Turns()
    for _ in range(3 * WAITERS_TOLD + 1):
        queue.subscribe(1, lambda _: None, lambda _: turns.count())
    await engine.delete_queue("q")
    await settle()
    assert turns.most == WAITERS_TOLD
    assert turns.all == 3 * WAITERS_TOLD + 1


async def test_a_commit_of_many_queues_never_runs_in_the_event_loop(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has a record to be stored, though none has a row."""
    engine = await rig.start()
    topic = await engine.create_topic("t")
    few = [f"q{number}" for number in range(LONG_COMMIT_ROWS + 1)]
    await asyncio.gather(*[engine.bind("t", name, create=True) for name in few])
    seen: list[bool] = []
    honest = rig.runner.run

    def watched(job: Any, done: Any, is_long: bool) -> None:
        seen.append(is_long)
        honest(job, done, is_long)

    monkeypatch.setattr(rig.runner, "run", watched)
    await engine.queue("q0").push(bodies("one"))
    assert not any(seen)
    await topic.publish(bodies("all"))
    assert any(seen)
    seen.clear()
    await engine.delete_queue("q0")
    assert not any(seen)
    # A record of each, and the records that go with it.
    await asyncio.gather(
        *[engine.delete_queue(name) for name in few[1 : LONG_COMMIT_ROWS // 2 + 1]]
    )
    assert any(seen)
