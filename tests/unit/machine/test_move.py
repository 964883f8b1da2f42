"""Dead letters tell why they died, and a redrive gives a message its life back, with its id."""

from typing import Any

import pytest

from nexo.machine.ack import ack
from nexo.machine.deadlines import run_due
from nexo.machine.fail import nack
from nexo.machine.move import (
    dead_letters,
    pick,
    redriven,
    sources,
    take_out,
    unpick,
)
from nexo.machine.pop import messages
from nexo.machine.purge import purge
from nexo.machine.push import push_moved
from nexo.machine.queue import Queue
from nexo.vocabulary.batch import DeadLetter
from nexo.vocabulary.identity import message_id
from nexo.vocabulary.limits import REASON_CHARS_MAX, SMALL_PUSH_MESSAGES
from nexo.vocabulary.message import Message
from nexo.vocabulary.states import Cause
from tests.unit.machine.orders import INCARNATION, bodies, commit, orders, put, take


def bury(queue: Queue, target: Queue, now_ms: int) -> None:
    """What the engine does with doomed messages."""
    while queue.doomed:
        doomed = queue.doomed.pop(0)
        push_moved(target, dead_letters(queue, doomed), now_ms)
        cause = Cause.DEAD_LETTERED
        assert take_out(queue, doomed.lease, doomed.span, cause, doomed.reason, now_ms)
    commit(queue)
    commit(target)


def dead_letter(now_ms: int = 5_000, **columns: Any) -> tuple[Queue, Message]:
    """A message that failed twice, in its dead-letter queue, and how it looks there."""
    queue, graveyard = orders(max_attempts=2), orders()
    put(queue, b"one", **columns)
    nack(queue, take(queue, now_ms=2_000).lease, 0, 1, 2_000, reason="first")
    nack(queue, take(queue, now_ms=3_000).lease, 0, 1, 3_000, reason="second")
    bury(queue, graveyard, now_ms)
    assert (queue.depth, queue.totals.dead_lettered) == (0, 1)
    (message,) = messages(graveyard, take(graveyard, now_ms=now_ms))
    return graveyard, message


def test_dead_letter_tells_its_story() -> None:
    _, message = dead_letter()
    assert message.dead_letter == DeadLetter(
        reason="second", source="orders", attempts=2, first_failed_ms=2_000, last_failed_ms=3_000
    )


def test_dead_letter_is_the_same_message() -> None:
    _, message = dead_letter(deduplication_ids=["x"], attributes=b"red")
    assert message.id == message_id(INCARNATION, 0)
    assert (message.body, message.created_ms) == (b"one", 1_000)
    assert (message.deduplication_id, message.attributes) == ("x", b"red")
    assert message.attempts == 1, "in the dead-letter queue it begins anew"


def test_timeouts_are_a_reason_too() -> None:
    queue, graveyard = orders(max_attempts=1, visibility_timeout_ms=100), orders()
    put(queue, b"one")
    take(queue)
    run_due(queue, 1_100)
    bury(queue, graveyard, 1_100)
    (message,) = messages(graveyard, take(graveyard))
    assert message.dead_letter is not None
    assert message.dead_letter.reason == "no processing ack within the visibility timeout"


def test_long_reason_is_cut() -> None:
    queue = orders(max_attempts=1)
    put(queue, b"one")
    nack(queue, take(queue).lease, 0, 1, 1_000, reason="x" * 5_000)
    assert len(queue.doomed[0].reason) == REASON_CHARS_MAX


def test_without_a_limit_nothing_dies() -> None:
    queue = orders(max_attempts=None)
    put(queue, b"one")
    for _ in range(50):
        nack(queue, take(queue).lease, 0, 1, 1_000)
    assert (queue.ready, queue.doomed) == (1, [])


def test_redriven_message_has_its_id_and_no_past() -> None:
    graveyard, buried = dead_letter()
    nack(graveyard, buried.lease, 0, 1, 5_000)
    home = orders()
    ((lease, span),) = pick(graveyard, 10)
    assert sources(span) == ["orders"]
    push_moved(home, redriven(graveyard, span), 6_000)
    assert take_out(graveyard, lease, span, Cause.REDRIVEN, "", 6_000)
    commit(home)
    commit(graveyard)
    (message,) = messages(home, take(home, now_ms=6_000))
    assert (message.id, message.body) == (buried.id, b"one")
    assert (message.attempts, message.dead_letter, message.created_ms) == (1, None, 1_000)
    assert graveyard.depth == 0


def test_moved_messages_are_kept_as_long_as_any_that_come_then() -> None:
    """A batch that becomes a chunk by itself does not bring the times of its former life along."""
    queue, target = orders(max_attempts=1), orders(retention_ms=10_000)
    for _ in range(SMALL_PUSH_MESSAGES):
        put(queue, b"x")
    nack(queue, take(queue, 100).lease, 0, SMALL_PUSH_MESSAGES, 1_000)
    bury(queue, target, 9_000)
    run_due(target, 18_999)
    assert target.depth == SMALL_PUSH_MESSAGES
    run_due(target, 19_000)
    assert target.depth == 0


def test_cancelled_move_goes_back_to_its_place() -> None:
    queue = orders()
    put(queue, b"one", b"two")
    ((lease, _),) = pick(queue, 1)
    assert bodies(queue, take(queue, 1)) == [b"two"]
    unpick(queue, lease)
    assert bodies(queue, take(queue, 1)) == [b"one"]


def test_purge_overtakes_a_move() -> None:
    queue = orders()
    put(queue, b"one")
    ((lease, span),) = pick(queue, 1)
    purge(queue, 1_000)
    assert not take_out(queue, lease, span, Cause.REDRIVEN, "", 1_000)
    unpick(queue, lease)
    assert queue.depth == 0


def test_purge_takes_everything_and_numbers_go_on() -> None:
    queue = orders(max_attempts=1)
    put(queue, b"doomed", b"in flight", b"ready", b"later", delay_ms=[0, 0, 0, 500])
    delivery = take(queue, 2)
    nack(queue, delivery.lease, 0, 1, 1_000)
    assert purge(queue, 1_000) == 4
    assert (queue.depth, queue.in_flight, queue.scheduled_count) == (0, 0, 0)
    assert (queue.doomed, queue.leases, queue.deadlines) == ([], {}, [])
    assert put(queue, b"next") == [4]
    ack(queue, take(queue).lease, 4, 5, 1_000)


@pytest.mark.parametrize("delays", ["one", "each"])
def test_what_moves_does_not_wait_out_its_old_delay_again(delays: str) -> None:
    """Neither that nor the delay of the queue it goes to: it has been waiting long enough."""
    queue, target = orders(max_attempts=1), orders(delay_ms=7_000)
    count = SMALL_PUSH_MESSAGES  # a batch of this size stays as it came, with all its columns
    delay_ms = 500 if delays == "one" else [500] * count
    put(queue, *[b"body"] * count, delay_ms=delay_ms)
    run_due(queue, 1_500)
    nack(queue, take(queue, count, now_ms=1_500).lease, 0, count, 1_500)
    bury(queue, target, 2_000)
    assert (target.ready, target.scheduled_count) == (count, 0)
    ((lease, span),) = pick(target, count)
    back = redriven(target, span)
    assert take_out(target, lease, span, Cause.REDRIVEN, "", 2_000)
    push_moved(queue, back, 2_000)
    assert (queue.ready, queue.scheduled_count) == (count, 0)
