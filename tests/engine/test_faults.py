"""A journal that fails: what was not confirmed did not happen, what was confirmed stays."""

from __future__ import annotations

import asyncio
from traceback import walk_tb
from typing import TYPE_CHECKING, Any

import pytest

from nexo.engine.dispatcher import Dispatcher
from nexo.vocabulary import limits
from nexo.vocabulary.errors import DataCorrupt, Fenced, NexoError, NotReady, QueueNotFound, ReadOnly
from nexo.vocabulary.limits import CLOSE_MS, COMMIT_OVERDUE_MS, DISK_PROBE_MS, LAZY_COMMIT_MS
from nexo.vocabulary.settings import QueueSettings
from tests.engine.rig import Rig, ack, bodies, nack, numbered, peeked, texts
from tests.engine.virtual_time import settle

if TYPE_CHECKING:
    from nexo.journal.port import Commit


def fail_times(rig: Rig, times: int, error: Exception | None = None) -> None:
    """The next commits fail, this many."""
    left = [error or ReadOnly("the disk is full")] * times
    rig.journal.refuse_commit = lambda _: left.pop() if left else None


def fail_payloads(rig: Rig) -> None:
    """Commits with payloads fail, others do not: a full disk with a reserve."""

    def refuse(commit: Commit) -> Exception | None:
        return ReadOnly("the disk is full") if commit.rows else None

    rig.journal.refuse_commit = refuse


def heal(rig: Rig) -> None:
    rig.journal.refuse_commit = lambda _: None


async def test_everybody_who_waits_for_a_failed_commit_is_told(rig: Rig) -> None:
    engine = await rig.start()
    one, other = await engine.create_queue("one"), await engine.create_queue("other")
    await one.push(bodies("safe"))
    delivery = await one.pop(one_ack=True)
    rig.runner.is_held = True
    fail_times(rig, 1)
    told: list[asyncio.Future[Any]] = [one.push(bodies("a")), other.push_one(b"b")]
    await settle()
    later = asyncio.create_task(ack(one, delivery))  # waits for the commit after the failing one
    await settle()
    rig.runner.release()
    results = await asyncio.gather(*told, later, return_exceptions=True)
    assert [getattr(each, "code", each) for each in results] == ["read_only"] * 3


async def test_pushes_are_refused_at_once_until_the_disk_is_back(rig: Rig) -> None:
    engine = await rig.start()
    queue, topic = await engine.create_queue("q"), await engine.create_topic("t")
    fail_payloads(rig)
    with pytest.raises(ReadOnly):
        await queue.push(bodies("a"))
    refusal = engine.refusal
    assert refusal is not None
    held = len(list(walk_tb(refusal.__traceback__)))
    for act in (
        lambda: queue.push(bodies("b")),
        lambda: queue.push_one(b"b"),
        lambda: topic.publish(bodies("b")),
        lambda: engine.create_queue("new"),
        lambda: engine.delete_queue("q"),
        lambda: engine.redrive("q"),
    ):
        with pytest.raises(ReadOnly, match="full"):
            await act()
    # What is kept to be told again and again must not hold on to what was refused.
    assert len(list(walk_tb(refusal.__traceback__))) == held
    heal(rig)
    await asyncio.sleep(DISK_PROBE_MS / 1000 + 0.1)
    assert engine.refusal is None
    await queue.push(bodies("c"))
    assert await peeked(queue) == ["c"]


async def test_what_failed_did_not_happen(rig: Rig) -> None:
    engine = await rig.start()
    queue = await engine.create_queue("q")
    await queue.push(bodies("a", "b", "c", "d"))
    acked, nacked = await queue.pop(one_ack=True), await queue.pop(one_ack=True)
    await asyncio.sleep(1)
    fail_times(rig, 1)
    results = await asyncio.gather(
        ack(queue, acked),
        nack(queue, nacked),
        queue.push(bodies("e")),
        engine.create_queue("new"),
        engine.edit_queue("q", QueueSettings(max_attempts=1)),
        return_exceptions=True,
    )
    assert [getattr(each, "code", each) for each in results] == ["read_only"] * 5
    await asyncio.sleep(5)
    assert engine.refusal is None
    info = queue.info()
    assert (info.depth, info.ready, info.in_flight) == (4, 2, 2)
    with pytest.raises(QueueNotFound):
        engine.queue("new")
    assert queue.queue.settings == QueueSettings()
    # Who was refused asks again, and his receipts are as good as before.
    await ack(queue, acked)
    await nack(queue, nacked)
    assert await peeked(queue) == ["b", "c", "d"]


async def test_the_queue_object_stays_the_same(rig: Rig) -> None:
    engine = await rig.start()
    queue, topic = await engine.create_queue("q"), await engine.create_topic("t")
    fail_times(rig, 1)
    with pytest.raises(ReadOnly):
        await queue.push(bodies("a"))
    await asyncio.sleep(5)
    assert engine.queue("q") is queue
    assert engine.topic("t") is topic


async def test_safe_messages_are_delivered_and_acked_while_the_disk_is_full(rig: Rig) -> None:
    engine = await rig.start()
    queue = await engine.create_queue("q")
    await queue.push(numbered(100))
    waiting = asyncio.create_task((await engine.create_queue("empty")).pop(wait_ms=3_600_000))
    fail_payloads(rig)
    with pytest.raises(ReadOnly):
        await queue.push(bodies("refused"))
    await asyncio.sleep(0.1)
    for number in range(10):
        delivery = await queue.pop(10, one_ack=True)
        assert texts(delivery)[0] == str(10 * number)
        await ack(queue, delivery)
        await asyncio.sleep(0.5)
    assert engine.refusal is not None
    assert queue.info().depth == 0
    heal(rig)
    await asyncio.sleep(2)
    await engine.queue("empty").push(bodies("at last"))
    assert texts(await waiting) == ["at last"], "who waited through it all is served"


async def test_acks_that_fail_too_bring_the_messages_back(rig: Rig) -> None:
    engine = await rig.start()
    queue = await engine.create_queue("q")
    await queue.push(bodies("a", "b"))
    fail_payloads(rig)
    with pytest.raises(ReadOnly):
        await queue.push(bodies("refused"))
    await asyncio.sleep(0.1)
    delivery = await queue.pop(one_ack=True)
    await asyncio.sleep(0.1)
    rig.journal.refuse_commit = lambda _: ReadOnly("not even that")
    with pytest.raises(ReadOnly):
        await ack(queue, delivery)
    await asyncio.sleep(5)
    heal(rig)
    await asyncio.sleep(5)
    assert engine.refusal is None
    assert sorted(await peeked(queue)) == ["a", "b"]
    await ack(queue, delivery)
    assert await peeked(queue) == ["b"]


async def test_an_unexpected_failure_is_told_as_read_only_and_recovered(rig: Rig) -> None:
    engine = await rig.start()
    queue = await engine.create_queue("q")
    await queue.push(bodies("safe"))
    opens = rig.journal.opens
    fail_times(rig, 1, OSError("Input/output error"))
    with pytest.raises(ReadOnly, match="Input/output error"):
        await queue.push(bodies("a"))
    await asyncio.sleep(5)
    assert rig.journal.opens == opens + 1, "the journal was not recovered from the disk"
    await queue.push(bodies("b"))
    assert await peeked(queue) == ["safe", "b"]


async def test_an_unknown_outcome_may_turn_out_to_have_happened(rig: Rig) -> None:
    """A failed fsync: the commit is reported as failed, and is there when the file is opened."""
    engine = await rig.start()
    queue = await engine.create_queue("q")
    failing = [True]

    def commit_and_fail(commit: Commit) -> Exception | None:
        if not failing:
            return None
        failing.clear()
        rig.journal.inner.commit(commit)
        return ReadOnly("fsync failed")

    rig.journal.refuse_commit = commit_and_fail
    with pytest.raises(ReadOnly):
        await queue.push(bodies("maybe"))
    await asyncio.sleep(5)
    assert await peeked(queue) == ["maybe"], "the memory must follow the journal"
    await queue.push(bodies("sure"))
    assert await peeked(queue) == ["maybe", "sure"]


async def test_a_journal_that_opens_only_later(rig: Rig) -> None:
    engine = await rig.start()
    queue = await engine.create_queue("q")
    await queue.push(bodies("safe"))
    closed: list[NexoError] = [ReadOnly("cannot open"), DataCorrupt("cannot read")] * 2
    rig.journal.refuse_open = lambda: closed.pop() if closed else None
    fail_times(rig, 1, OSError("gone"))
    with pytest.raises(ReadOnly):
        await queue.push(bodies("a"))
    await asyncio.sleep(2.5)
    assert engine.refusal is not None
    with pytest.raises(ReadOnly):
        await queue.push(bodies("b"))
    await asyncio.sleep(5)
    assert engine.refusal is None
    await queue.push(bodies("c"))
    assert await peeked(queue) == ["safe", "c"]


@pytest.mark.parametrize("error", [Fenced("overtaken"), NotReady("the connection is lost")])
async def test_nothing_is_given_out_of_a_store_that_may_be_anothers(
    rig: Rig, error: NexoError
) -> None:
    """Unlike a full disk: then what is in memory is still ours."""
    engine = await rig.start()
    queue, topic = await engine.create_queue("q"), await engine.create_topic("t")
    await queue.push(bodies("safe"))
    await topic.publish(bodies("told"))
    given: list[object] = []
    queue.subscribe(0, given.append, given.append)
    away = [True]
    rig.journal.refuse_open = lambda: NotReady("in use by another") if away[0] else None
    fail_times(rig, 1, error)
    with pytest.raises(NotReady):
        await queue.push(bodies("lost"))
    with pytest.raises(NotReady):
        await queue.pop()
    with pytest.raises(NotReady):
        await topic.read(0, 1)
    queue.grant(next(iter(queue.room.subscriptions)), 1)
    await asyncio.sleep(3)
    assert not given, "a subscriber got what may be another's"
    away[0] = False
    await asyncio.sleep(3)
    assert len(given) == 1
    assert (await topic.read(0, 1)).parts


@pytest.mark.parametrize("error", [ReadOnly("cannot read"), DataCorrupt("cannot read")])
async def test_a_load_that_fails_is_done_again_before_anything_is_accepted(
    rig: Rig, error: NexoError, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = await rig.start()
    queue = await engine.create_queue("q")
    await queue.push(bodies("safe"))
    fail_times(rig, 1)
    failing, load = [error], rig.journal.load

    def failing_load(owner: int) -> object:
        if failing and owner:
            raise failing.pop()
        return load(owner)

    monkeypatch.setattr(rig.journal, "load", failing_load)
    with pytest.raises(ReadOnly):
        await queue.push(bodies("refused"))
    await asyncio.sleep(5)
    assert not failing
    assert engine.refusal is None
    await queue.push(bodies("b"))
    assert await peeked(queue) == ["safe", "b"], "the state is not what the journal holds"


@pytest.mark.parametrize("fault", [NotReady("the connection is lost"), ReadOnly("closed")])
async def test_nothing_of_the_state_before_is_written_to_a_journal_that_was_opened_again(
    rig: Rig, fault: NexoError, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full, acks go on, and then the journal has to be opened again. An ack that comes
    while it opens is of a state that is about to be replaced."""
    engine = await rig.start()
    queue = await engine.create_queue("q")
    await queue.push(bodies("a", "b"))
    delivery = await queue.pop(2, one_ack=True, visibility_ms=60_000)
    await asyncio.sleep(1)  # until the journal knows of it
    fail_payloads(rig)
    failing, last_row = [fault], rig.journal.last_row

    def failing_last_row() -> int:
        if failing:
            raise failing.pop()
        return last_row()

    with pytest.raises(ReadOnly):
        await queue.push(bodies("refused"))
    await settle()
    monkeypatch.setattr(rig.journal, "last_row", failing_last_row)
    opens = rig.journal.opens
    await asyncio.sleep(1.2 * DISK_PROBE_MS / 1000)
    assert not failing, "nobody has asked whether the journal can be used"
    rig.runner.is_held = True
    await asyncio.sleep(DISK_PROBE_MS / 1000)
    assert rig.runner.held, "the journal is not being opened"
    heal(rig)
    late = asyncio.create_task(ack(queue, delivery))
    await settle()
    rig.runner.release()
    assert rig.journal.opens == opens + 1
    with pytest.raises(NexoError):
        await late
    await asyncio.sleep(5)
    assert engine.refusal is None
    await ack(queue, delivery)  # the audit of the rig finds what is acked twice
    assert queue.queue.depth == 0


async def test_failing_again_while_recovering(rig: Rig) -> None:
    engine = await rig.start()
    queue = await engine.create_queue("q", QueueSettings(max_attempts=None))
    await queue.push(numbered(5))
    fail_times(rig, 7)
    with pytest.raises(ReadOnly):
        await queue.push(bodies("a"))
    for _ in range(20):
        await asyncio.sleep(0.7)
        delivery = await queue.pop(one_ack=True, visibility_ms=1_000)
        assert delivery.parts
    assert engine.refusal is None
    await asyncio.sleep(2)
    assert await peeked(queue) == ["0", "1", "2", "3", "4"]


async def test_a_read_that_fails_is_told_and_tried_again(rig: Rig) -> None:
    queue = await (await rig.start()).create_queue("q")
    await queue.push(bodies("a"))
    engine = await rig.restart()
    queue = engine.queue("q")
    rig.journal.refuse_fetch = lambda _: ReadOnly("cannot read now")
    with pytest.raises(ReadOnly):
        await queue.pop()
    with pytest.raises(ReadOnly):
        await queue.peek()
    got: list[str] = []
    queue.subscribe(5, lambda delivery: got.extend(texts(delivery)), lambda _: None)
    await asyncio.sleep(3)
    assert (got, queue.info().ready) == ([], 1)
    rig.journal.refuse_fetch = lambda _: None
    await asyncio.sleep(1)
    assert got == ["a"], "who waits is served as soon as it can be read"
    assert engine.refusal is None, "a failed read endangers nothing"


async def test_dead_letters_wait_for_the_disk(rig: Rig) -> None:
    engine = await rig.start()
    queue = await engine.create_queue("q", QueueSettings(max_attempts=1))
    await queue.push(bodies("a", "b"))
    delivery = await queue.pop(2, one_ack=True)
    await asyncio.sleep(0.1)
    fail_payloads(rig)
    with pytest.raises(ReadOnly):
        await queue.push(bodies("refused"))
    await asyncio.sleep(0.1)
    await queue.nack(delivery.lease, 0, 1, reason="bad")
    await asyncio.sleep(100)
    assert engine.refusal is not None
    assert queue.info().depth == 2
    heal(rig)
    await asyncio.sleep(5)
    assert queue.info().depth == 0
    assert sorted(await peeked(engine.queue("q_dlq"))) == ["a", "b"]


async def test_a_failed_delete_leaves_the_queue(rig: Rig) -> None:
    engine = await rig.start()
    queue = await engine.create_queue("q")
    await queue.push(bodies("a"))
    fail_times(rig, 1)
    with pytest.raises(ReadOnly):
        await engine.delete_queue("q")
    await asyncio.sleep(5)
    assert await peeked(engine.queue("q")) == ["a"]
    await engine.queue("q").push(bodies("b"))
    assert await peeked(engine.queue("q")) == ["a", "b"]


async def test_closing_in_the_middle_of_it(rig: Rig) -> None:
    engine = await rig.start()
    queue = await engine.create_queue("q")
    await queue.push(bodies("safe"))
    rig.journal.refuse_commit = lambda _: ReadOnly("for good")
    with pytest.raises(ReadOnly):
        await queue.push(bodies("a"))
    engine = await rig.restart()
    assert await peeked(engine.queue("q")) == ["safe"]


async def test_a_disk_that_fails_the_last_commit_does_not_keep_the_journal_open(rig: Rig) -> None:
    engine = await rig.start()
    queue = await engine.create_queue("q")
    await queue.push(bodies("safe"))
    await asyncio.sleep(1)
    await queue.pop(one_ack=True)
    rig.journal.refuse_commit = lambda _: ReadOnly("for good")
    with pytest.raises(ReadOnly):
        await engine.close()
    rig.engine = None
    with pytest.raises(NexoError, match="not open"):
        rig.journal.inner.last_row()
    engine = await rig.start()
    assert await peeked(engine.queue("q")) == ["safe"]


async def test_a_broker_whose_commits_do_not_come_is_not_healthy(rig: Rig) -> None:
    engine = await rig.start()
    queue = await engine.create_queue("q")
    await asyncio.sleep(60)
    assert engine.trouble is None, "nothing waits for a commit"
    rig.runner.is_held = True
    push = queue.push(bodies("a"))
    await asyncio.sleep(COMMIT_OVERDUE_MS / 1000 - 0.1)
    assert engine.trouble is None
    await asyncio.sleep(1)
    assert engine.trouble is not None
    assert engine.refusal is None, "what comes is still taken"
    assert "5 seconds" in engine.trouble.message
    rig.runner.release()
    await push
    assert engine.trouble is None


async def test_a_committer_that_is_stuck_is_not_healthy(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = await rig.start()
    queue = await engine.create_queue("q")
    monkeypatch.setattr(engine.committer, "begin", lambda: None)
    push = queue.push(bodies("a"))
    await asyncio.sleep(COMMIT_OVERDUE_MS / 1000 + 1)
    assert engine.trouble is not None
    monkeypatch.undo()
    engine.committer._is_scheduled = False
    await queue.push(bodies("b"))
    await push
    assert engine.trouble is None


async def test_a_disk_that_never_answers_does_not_keep_a_broker_from_stopping(rig: Rig) -> None:
    engine = await rig.start()
    queue = await engine.create_queue("q")
    told: list[str] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: told.append(context["message"]))
    rig.runner.is_held = True
    push = queue.push(bodies("a"))
    await settle()
    began_s = loop.time()
    await engine.close()
    assert loop.time() - began_s <= CLOSE_MS / 1000
    assert told == ["the broker stops though its disk has not taken everything"]
    with pytest.raises(NotReady):
        await push
    rig.engine = None
    rig.runner.release()
    rig.journal.close()


async def test_who_leaves_meanwhile_does_not_keep_the_event_loop_busy(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Too much is unwritten for more to come back, and while the journal is opened again each
    commit is refused at once: there is nothing to wait for but time."""
    engine = await rig.start()
    queue = await engine.create_queue("q")
    waiter = queue.subscribe(9, lambda _: None, lambda _: None)
    await queue.push(numbered(10))
    await asyncio.sleep(1)
    engine.committer.stop()
    assert texts(await queue.pop(1)) == ["9"]  # and that cannot be written
    monkeypatch.setattr(limits, "UNWRITTEN_CHANGES_MAX", 0)
    tries: list[None] = []
    give_back = Dispatcher._give_back_some

    def counted(dispatcher: Dispatcher) -> None:
        assert len(tries) < 1_000, "it spins"
        tries.append(None)
        give_back(dispatcher)

    monkeypatch.setattr(Dispatcher, "_give_back_some", counted)
    queue.unsubscribe(waiter)
    await asyncio.sleep(0.5)
    assert 1 < len(tries) <= 500 / LAZY_COMMIT_MS + 1
    engine.committer.resume()
    await asyncio.sleep(5)
    assert texts(await queue.pop(100)) == [str(number) for number in range(9)]
