"""What goes to a queue in another shard arrives there once, in order, and with all that is known of
it, whatever is lost, fenced or started again on the way."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from nexo.engine.hands import Changes
from nexo.engine.moves import Chosen
from nexo.engine.transfers import Load, Transfer, Transfers
from nexo.machine import producers
from nexo.vocabulary.attributes import encode_attributes
from nexo.vocabulary.errors import (
    Forbidden,
    InvalidArgument,
    MessageTooLarge,
    NotReady,
    QueueNotFound,
)
from nexo.vocabulary.settings import QueueSettings
from nexo.vocabulary.sns import Subscription
from nexo.vocabulary.start import EARLIEST
from tests.engine.rig import Rig, bodies, nack, numbered, peeked, texts
from tests.engine.shards import Shards

FAILING = QueueSettings(max_attempts=1, dead_letter="b_dead")


async def fail_all(shards: Shards, count: int, name: str = "a") -> None:
    """Messages run out of attempts, ten at a time."""
    queue = shards.a.engine.queue(name)
    for start in range(0, count, 10):
        await queue.push(numbered(min(10, count - start), start))
        await nack(queue, await queue.pop(10), "broken")


def texts_of(count: int, start: int = 0) -> list[str]:
    return [str(number) for number in range(start, start + count)]


# -- Dead letters -----------------------------------------------------------------------------


async def test_a_dead_letter_keeps_what_is_known_of_it(rig: Rig, other: Rig) -> None:
    shards = await Shards.started(rig, other)
    source = await shards.a.engine.create_queue("a", FAILING)
    batch = msgspec.structs.replace(
        bodies("x"), priority=7, groups="tenant", attributes=encode_attributes({"k": "v"})
    )
    accepted = await source.push(batch)
    (before,) = await source.peek()
    await asyncio.sleep(3)
    await nack(source, await source.pop(consumer="worker"), "broken")
    await shards.quiet()
    letters = shards.b.engine.queue("b_dead")
    (found,) = await letters.peek()
    assert (found.id, found.created_ms) == (before.id, before.created_ms)
    assert (found.body, found.priority, found.group_id) == (b"x", 7, "tenant")
    assert found.attributes == before.attributes
    assert found.dead_letter is not None
    assert (found.dead_letter.reason, found.dead_letter.source) == ("broken", "a")
    assert (found.dead_letter.attempts, found.dead_letter.consumer) == (1, "worker")
    assert found.dead_letter.last_failed_ms == before.created_ms + 3_000
    assert letters.settings.max_attempts is None
    assert accepted.ranges
    assert source.info().depth == 0
    assert list(shards.a.engine.queues) == ["a"]  # what stands in between is hidden
    with pytest.raises(QueueNotFound):
        shards.a.engine.queue("nexo.transfer.moved.b_dead")


async def test_they_leave_their_queue_in_the_commit_that_stores_them(rig: Rig, other: Rig) -> None:
    shards = await Shards.started(rig, other)
    shards.on_push = never
    await shards.a.engine.create_queue("a", FAILING)
    await fail_all(shards, 10)
    await asyncio.sleep(1)
    assert shards.a.engine.queue("a").info().depth == 0
    assert shards.a.engine.transfers.backlog().messages == 10
    assert shards.a.engine.transfers.backlog().oldest_ms == 1_000
    engine = await shards.a.crash()
    assert engine.transfers.backlog().messages == 10
    shards.on_push = None
    await asyncio.sleep(10)
    assert await peeked(shards.b.engine.queue("b_dead")) == texts_of(10)


async def test_a_fifo_queue_gets_a_fifo_queue_for_dead_letters(rig: Rig, other: Rig) -> None:
    shards = await Shards.started(rig, other)
    settings = QueueSettings(fifo=True, max_attempts=1, dead_letter="b_dead.fifo")
    source = await shards.a.engine.create_queue("a.fifo", settings)
    await source.push(msgspec.structs.replace(numbered(3), groups=["g", "h", "g"]))
    await nack(source, await source.pop(3))
    await nack(source, await source.pop(3))
    await shards.quiet()
    letters = shards.b.engine.queue("b_dead.fifo")
    assert letters.settings.fifo
    assert sorted(await peeked(letters)) == ["0", "1", "2"]


# -- Exactly one arrives ----------------------------------------------------------------------


async def never(transfer: Transfer) -> None:
    raise NotReady("nobody answers")


async def test_an_answer_that_is_lost(rig: Rig, other: Rig) -> None:
    """It is pushed again, and not stored again, also if it is divided otherwise."""
    shards = await Shards.started(rig, other)
    await shards.a.engine.create_queue("a", FAILING)
    lost = 0

    async def lose(transfer: Transfer) -> None:
        nonlocal lost
        lost += 1
        if lost % 3:
            raise NotReady("the answer is lost")

    shards.on_answer = lose
    await fail_all(shards, 60)
    await asyncio.sleep(60)
    assert lost >= 3
    assert len({tuple(each.ranges) for each in shards.pushes}) > 1
    assert await peeked(shards.b.engine.queue("b_dead")) == texts_of(60)
    assert shards.a.engine.transfers.backlog().messages == 0


async def test_the_source_is_started_again_between_push_and_ack(rig: Rig, other: Rig) -> None:
    shards = await Shards.started(rig, other)
    await shards.a.engine.create_queue("a", FAILING)
    stands, answered = asyncio.Event(), asyncio.Event()

    async def stand(transfer: Transfer) -> None:
        stands.set()
        await answered.wait()

    shards.on_answer = stand
    await fail_all(shards, 30)
    await stands.wait()
    shards.on_answer = None
    await shards.a.crash()
    await asyncio.sleep(10)
    assert await peeked(shards.b.engine.queue("b_dead")) == texts_of(30)


async def test_the_target_crashes_before_its_commit(rig: Rig, other: Rig) -> None:
    shards = await Shards.started(rig, other)
    await shards.a.engine.create_queue("a", FAILING)
    shards.b.rig.runner.is_held = True  # no commit ends
    await fail_all(shards, 30)
    await asyncio.sleep(1)
    assert shards.a.engine.transfers.backlog().messages == 30
    await shards.b.crash()
    await asyncio.sleep(30)
    assert await peeked(shards.b.engine.queue("b_dead")) == texts_of(30)


async def test_a_push_that_comes_again_waits_for_the_commit_of_the_first(
    rig: Rig, other: Rig
) -> None:
    shards = await Shards.started(rig, other)
    await shards.b.engine.create_queue("b_dead")
    shards.b.rig.runner.is_held = True
    origin = Transfer("b_dead", "nexo.transfer.1.0", [0, 2], bodies("x", "y"))
    first = asyncio.create_task(shards.b.engine.transfers.accept(origin))
    again = asyncio.create_task(shards.b.engine.transfers.accept(origin))
    await asyncio.sleep(1)
    assert not first.done()
    assert not again.done()
    shards.b.rig.runner.release()
    await asyncio.gather(first, again)
    assert await peeked(shards.b.engine.queue("b_dead")) == ["x", "y"]


async def test_a_former_owner_that_still_pushes(rig: Rig, other: Rig) -> None:
    """It slept, and pushes what its successor has brought over and behind it more."""
    shards = await Shards.started(rig, other)
    await shards.a.engine.create_queue("a", FAILING)
    await fail_all(shards, 20)
    await shards.quiet()
    old = list(shards.pushes)
    await fail_all(shards, 20)
    await shards.quiet()
    for transfer in old:
        await shards.push(transfer)
    assert len(await peeked(shards.b.engine.queue("b_dead"))) == 40


async def test_what_the_target_knows_lives_through_its_restart_and_idle_weeks(
    rig: Rig, other: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producers, "PRODUCER_IDLE_MS", 10_000)
    shards = await Shards.started(rig, other)
    await shards.b.engine.create_queue("b_dead")
    await shards.a.engine.create_queue("a", FAILING)
    await fail_all(shards, 20)
    await shards.quiet()
    await asyncio.sleep(60)
    letters = shards.b.engine.queue("b_dead")
    for number in range(20):
        await letters.push(bodies("x"), producer=f"client {number}", number=1)
    await shards.b.restart()
    for transfer in shards.pushes[:]:
        await shards.push(transfer)
    assert shards.b.engine.queue("b_dead").info().depth == 40


def test_neither_clients_nor_transfers_take_room_from_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(producers, "PRODUCERS_MAX", 50)
    known = producers.Producers()
    transfers = [f"nexo.transfer.moved.{each}.0" for each in range(70)]
    for at in range(500):
        if at < len(transfers):
            known.remember(transfers[at], 7, at, [0, 1])
        known.remember(f"client {at}", 1, at, [at, at + 1])
        assert known.answer(f"client {max(0, at - 40)}", 1) is not None  # one of the last fifty
    assert {known.highest(name) for name in transfers} == {7}
    assert len(known.by_name) <= 70 + 51


async def test_a_target_that_reloads_in_the_middle(rig: Rig, other: Rig) -> None:
    shards = await Shards.started(rig, other)
    await shards.a.engine.create_queue("a", FAILING)
    await fail_all(shards, 10)
    await shards.quiet()
    refusals = [NotReady("fenced"), NotReady("fenced"), None]
    shards.b.rig.journal.refuse_commit = lambda _: refusals.pop(0) if refusals else None
    await fail_all(shards, 10)
    await asyncio.sleep(60)
    assert len(await peeked(shards.b.engine.queue("b_dead"))) == 20


async def test_planted_a_transfer_that_is_acked_before_it_was_stored(
    rig: Rig, other: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tests above would notice: here a message is lost."""
    shards = await Shards.started(rig, other)
    await shards.a.engine.create_queue("a", FAILING)
    inside = Transfers.load

    async def hasty(self: Transfers, actor: object) -> Load | None:
        load = await inside(self, actor)  # type: ignore[arg-type]
        if load is not None:
            load.arrived()
            load.give_back = load.arrived = lambda: None  # type: ignore[method-assign]
        return load

    monkeypatch.setattr(Transfers, "load", hasty)
    shards.on_push = never
    await fail_all(shards, 10)
    shards.on_push = None
    await asyncio.sleep(60)
    assert "b_dead" not in shards.b.engine.queues


async def test_planted_a_transfer_that_is_stored_twice(
    rig: Rig, other: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A target that forgets what it has doubles it when an answer is lost."""
    shards = await Shards.started(rig, other)
    await shards.a.engine.create_queue("a", FAILING)
    monkeypatch.setattr(producers.Producers, "highest", lambda self, name: 0)
    answers = [NotReady("the answer is lost")]

    async def lose(transfer: Transfer) -> None:
        if answers:
            raise answers.pop()

    shards.on_answer = lose
    await fail_all(shards, 10)
    await asyncio.sleep(60)
    assert len(await peeked(shards.b.engine.queue("b_dead"))) == 20


async def test_nobody_else_pushes_under_such_a_name(rig: Rig) -> None:
    queue = await (await rig.start()).create_queue("q")
    with pytest.raises(InvalidArgument, match="reserved"):
        await queue.push(bodies("x"), producer="nexo.transfer.1.0", number=1)


# -- Targets that are not there ---------------------------------------------------------------


async def test_one_target_that_does_not_answer_holds_up_no_other(rig: Rig, other: Rig) -> None:
    shards = await Shards.started(rig, other)
    await shards.a.engine.create_queue("a", FAILING)
    await shards.a.engine.create_queue("a.2", QueueSettings(max_attempts=1, dead_letter="b_two"))

    async def refuse_one(transfer: Transfer) -> None:
        if transfer.queue == "b_dead":
            raise NotReady("nobody answers")

    shards.on_push = refuse_one
    await fail_all(shards, 10)
    await fail_all(shards, 10, "a.2")
    await asyncio.sleep(60)
    assert await peeked(shards.b.engine.queue("b_two")) == texts_of(10)
    assert len(shards.pushes) < 40  # it is not tried all the time
    shards.on_push = None
    await asyncio.sleep(10)
    assert await peeked(shards.b.engine.queue("b_dead")) == texts_of(10)


async def test_a_dead_letter_queue_that_was_deleted(rig: Rig, other: Rig) -> None:
    """As in one shard the messages stay and are delivered again; one that had left comes back. It
    is not created anew behind the back of who deleted it."""
    shards = await Shards.started(rig, other)
    await shards.a.engine.create_queue("a", FAILING)
    await fail_all(shards, 1)
    await shards.quiet()
    await shards.b.engine.delete_queue("b_dead")
    await fail_all(shards, 1)
    await asyncio.sleep(1)
    queue = shards.a.engine.queue("a")
    assert shards.a.engine.transfers.backlog().messages == 0
    assert "b_dead" not in shards.b.engine.queues
    (found,) = await queue.peek()
    assert (found.body, found.dead_letter) == (b"0", None)
    await nack(queue, await queue.pop())
    await asyncio.sleep(1)
    assert queue.info().ready == 1
    await shards.b.restart()
    await shards.b.engine.create_queue("b_dead")
    await asyncio.sleep(10)
    await nack(queue, await queue.pop())
    await shards.quiet()
    assert queue.info().depth == 0
    assert await peeked(shards.b.engine.queue("b_dead")) == ["0"]


async def test_a_bound_queue_that_was_deleted_may_get_dead_letters_later(
    rig: Rig, other: Rig
) -> None:
    """Nobody has named it as a dead-letter queue before."""
    shards = await Shards.started(rig, other)
    topic = await shards.a.engine.create_topic("a.news")
    await shards.a.engine.bind("a.news", "b_dead", create=True)
    await topic.publish(bodies("x"))
    await shards.quiet()
    await shards.b.engine.delete_queue("b_dead")
    await shards.a.engine.create_queue("a", FAILING)
    await fail_all(shards, 1)
    await shards.quiet()
    assert await peeked(shards.b.engine.queue("b_dead")) == ["0"]


# -- Redrive ----------------------------------------------------------------------------------


async def test_a_redrive_to_a_queue_elsewhere(rig: Rig, other: Rig) -> None:
    shards = await Shards.started(rig, other)
    source = await shards.a.engine.create_queue("a")
    await shards.b.engine.create_queue("b")
    await source.push(numbered(2_500))
    task = await shards.a.engine.redrive("a", "b")
    assert await task.finished == 2_500
    await shards.quiet()
    found = await shards.b.engine.queue("b").pop(3_000)
    assert texts(found) == texts_of(2_500)
    with pytest.raises(QueueNotFound):
        await shards.a.engine.redrive("a", "b_none")


async def test_a_redrive_of_letters_that_came_from_elsewhere(rig: Rig, other: Rig) -> None:
    """Each goes back to its source, with a clean history and the same id; if that is not there any
    more, it stays."""
    shards = await Shards.started(rig, other)
    source = await shards.a.engine.create_queue("a", FAILING)
    await shards.a.engine.create_queue("a.2", FAILING)
    await fail_all(shards, 3)
    await fail_all(shards, 1, "a.2")
    await shards.quiet()
    letters = shards.b.engine.queue("b_dead")
    ids = [message.id for message in await letters.peek()]
    await shards.a.engine.delete_queue("a.2")
    task = await shards.b.engine.redrive("b_dead")
    assert await task.finished == 3
    assert task.progress().skipped == 1
    await shards.quiet()
    found = await source.peek()
    assert [message.id for message in found] == ids[:3]
    assert [message.dead_letter for message in found] == [None] * 3
    (first,) = source.messages(await source.pop(1))
    assert first.attempts == 1
    assert letters.info().depth == 1


async def test_a_letter_is_sent_again_to_a_queue_elsewhere(rig: Rig, other: Rig) -> None:
    shards = await Shards.started(rig, other)
    source = await shards.a.engine.create_queue("a")
    await shards.b.engine.create_queue("b")
    await source.push(bodies("x"))
    (message,) = await source.peek()
    sent = await shards.a.engine.hands.resend("a", message.id, Changes(body=b"y"), "b")
    await shards.quiet()
    (found,) = await shards.b.engine.queue("b").peek()
    assert (("b", found.id), found.body) == (sent, b"y")
    assert source.info().depth == 0


async def test_chosen_letters_go_back_to_where_they_came_from(rig: Rig, other: Rig) -> None:
    shards = await Shards.started(rig, other)
    source = await shards.a.engine.create_queue("a", FAILING)
    await fail_all(shards, 5)
    await shards.quiet()
    letters = shards.b.engine.queue("b_dead")
    task = await shards.b.engine.hands.redrive("b_dead", None, None, [1, 3])
    assert await task.finished == 2
    redrive, asked = shards.b.engine.redrive, list[str]()

    def may_push(name: str) -> bool:
        asked.append(name)
        return False

    changed = await redrive("b_dead", chosen=Chosen([0], [b"new"]), may_push=may_push)
    assert await changed.finished == 0  # who sends it may not push there
    assert set(asked) == {"a"}
    changed = await redrive("b_dead", chosen=Chosen([2], [b"new"]), may_push=lambda name: True)
    assert await changed.finished == 1
    await shards.quiet()
    assert await peeked(source) == ["1", "3", "new"]
    assert await peeked(letters) == ["0", "4"]


async def test_a_letter_is_sent_back_to_a_source_elsewhere(rig: Rig, other: Rig) -> None:
    """With another body, though nobody says where to: if who does it may push there, and that queue
    still sends its dead letters here."""
    shards = await Shards.started(rig, other)
    source = await shards.a.engine.create_queue("a", FAILING)
    await fail_all(shards, 3)
    await shards.quiet()
    letters, hands = shards.b.engine.queue("b_dead"), shards.b.engine.hands
    first, second, third = await letters.peek()

    def refuse(name: str) -> None:
        raise Forbidden(f"may not push to {name}")

    with pytest.raises(Forbidden, match="may not push to a"):
        await hands.resend("b_dead", first.id, Changes(body=b"y"), check_push=refuse)
    sent = await hands.resend("b_dead", first.id, Changes(body=b"y"))
    await shards.quiet()
    (found,) = await source.peek()
    assert (("a", found.id), found.body) == (sent, b"y")
    assert await peeked(letters) == ["1", "2"]
    too_large = Changes(body=b"x" * (source.settings.max_message_bytes + 1))
    with pytest.raises(MessageTooLarge):
        await hands.resend("b_dead", second.id, too_large)
    await shards.a.engine.edit_queue("a", QueueSettings(dead_letter="other"))
    with pytest.raises(InvalidArgument, match="no source queue"):
        await hands.resend("b_dead", second.id, Changes(body=b"y"))
    await shards.a.engine.delete_queue("a")
    with pytest.raises(InvalidArgument, match="no source queue"):
        await hands.resend("b_dead", third.id, Changes(body=b"y"))
    assert await peeked(letters) == ["1", "2"]


async def test_an_archived_queue_keeps_what_came_from_elsewhere(rig: Rig, other: Rig) -> None:
    shards = await Shards.started(rig, other)
    await shards.b.engine.create_queue("b", QueueSettings(archive=True))
    topic = await shards.a.engine.create_topic("a.news")
    await shards.a.engine.bind("a.news", "b")
    await topic.publish(numbered(5))
    await shards.quiet()
    archive = await shards.b.engine.topic("nexo.archive.b").read(0)
    assert texts(archive) == texts_of(5)


async def test_a_redrive_goes_on_after_a_restart(rig: Rig, other: Rig) -> None:
    shards = await Shards.started(rig, other)
    source = await shards.a.engine.create_queue("a")
    await shards.b.engine.create_queue("b")
    await source.push(numbered(100))
    number = await shards.a.engine.tasks.begin("a", "b", 10.0)
    await asyncio.sleep(3)
    engine = await shards.a.restart()
    progress = await engine.tasks.progress(number, 60_000)
    assert (progress.moved, progress.finished) == (100, True)
    await shards.quiet()
    assert await peeked(shards.b.engine.queue("b")) == texts_of(100)


async def test_a_target_that_is_deleted_ends_the_redrive(rig: Rig, other: Rig) -> None:
    shards = await Shards.started(rig, other)
    source = await shards.a.engine.create_queue("a")
    await shards.b.engine.create_queue("b")
    await source.push(numbered(100))
    task = await shards.a.engine.redrive("a", "b", 10.0)
    await asyncio.sleep(3)
    await shards.b.engine.delete_queue("b")
    with pytest.raises(QueueNotFound):
        await task.finished
    left, waiting = source.info().depth, shards.a.engine.transfers.backlog().messages
    assert left > 50
    await shards.b.engine.create_queue("b")  # what was on its way has waited
    await asyncio.sleep(10)
    assert shards.b.engine.queue("b").info().depth == waiting


# -- Topics -----------------------------------------------------------------------------------


async def test_a_binding_to_a_queue_elsewhere(rig: Rig, other: Rig) -> None:
    shards = await Shards.started(rig, other)
    topic = await shards.a.engine.create_topic("a.news")
    with pytest.raises(QueueNotFound):
        await shards.a.engine.bind("a.news", "b")
    await shards.a.engine.bind("a.news", "b", create=True)
    await shards.b.engine.edit_queue("b", QueueSettings(delay_ms=5_000))
    assert topic.info().bound_queues == ["b"]
    await topic.publish(numbered(10))
    await shards.quiet()
    queue = shards.b.engine.queue("b")
    assert queue.info().scheduled == 10
    await asyncio.sleep(5)
    assert await peeked(queue) == texts_of(10)
    await shards.a.engine.unbind("a.news", "b")
    await topic.publish(bodies("late"))
    await shards.quiet()
    assert queue.info().depth == 10
    assert shards.a.engine.transfers.all() == []


async def test_filters_and_a_start_in_the_past(rig: Rig, other: Rig) -> None:
    shards = await Shards.started(rig, other)
    await shards.b.engine.create_queue("b")
    topic = await shards.a.engine.create_topic("a.news")
    wanted, rest = encode_attributes({"kind": "new"}), encode_attributes({"kind": "old"})
    columns = [wanted if number % 3 == 0 else rest for number in range(60)]
    await topic.publish(msgspec.structs.replace(numbered(60), attributes=columns))
    await shards.a.engine.bind("a.news", "b", {"kind": "new"}, EARLIEST)
    await shards.a.engine.bind("a.news", "b", {"kind": "new"}, EARLIEST)  # once is enough
    await topic.publish(msgspec.structs.replace(numbered(60, 60), attributes=columns))
    await shards.quiet()
    assert await peeked(shards.b.engine.queue("b")) == [str(each) for each in range(0, 120, 3)]
    policy = Subscription(filter_policy='{"kind": ["old"]}')
    await shards.a.engine.bind("a.news", "b", sns=policy)
    await topic.publish(msgspec.structs.replace(numbered(3, 200), attributes=columns[:3]))
    await shards.quiet()
    assert (await peeked(shards.b.engine.queue("b")))[40:] == ["201", "202"]


async def test_a_bound_queue_that_was_deleted(rig: Rig, other: Rig) -> None:
    """The binding goes with it, also if another of the same name has come."""
    shards = await Shards.started(rig, other)
    topic = await shards.a.engine.create_topic("a.news")
    await shards.a.engine.bind("a.news", "b", create=True)
    await topic.publish(bodies("first"))
    await shards.quiet()
    await shards.b.engine.delete_queue("b")
    await shards.b.engine.create_queue("b")
    await topic.publish(bodies("second"))
    await asyncio.sleep(1)
    assert shards.b.engine.queue("b").info().depth == 0
    assert topic.info().bound_queues == []
    await shards.a.engine.bind("a.news", "b")
    await topic.publish(bodies("third"))
    await shards.quiet()
    assert await peeked(shards.b.engine.queue("b")) == ["third"]
    await shards.a.restart()
    assert shards.a.engine.topic("a.news").info().bound_queues == ["b"]
