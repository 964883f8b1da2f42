"""A late consumer of a standard queue may still delete its message, wherever that is now."""

from typing import Any

import pytest

from nexo.machine import late_receipts, peek
from nexo.machine.deadlines import run_due
from nexo.machine.fail import nack
from nexo.machine.pop import pop
from nexo.machine.queue import Queue
from nexo.vocabulary.limits import PIECE_LEASES_MAX
from tests.unit.machine.orders import bodies, commit, orders, put, take

LATE_MS = 40_000


def timed_out(**columns: Any) -> tuple[Queue, int]:
    """Five messages, the middle one of which was delivered with all the others and timed out."""
    queue = orders()
    put(queue, b"0", b"1", b"2", b"3", b"4", **columns)
    lease = take(queue).lease
    run_due(queue, LATE_MS)
    commit(queue)
    return queue, lease


@pytest.mark.parametrize("groups", [None, "a", ["a", "b", "a", "b", "a"]])
def test_message_in_line_is_taken_out_of_it(groups: object) -> None:
    queue, _ = timed_out(groups=groups)
    assert late_receipts.discard(queue, 2, LATE_MS)
    commit(queue)
    assert (queue.depth, queue.totals.acked) == (4, 1)
    assert bodies(queue, take(queue, now_ms=LATE_MS)) == [b"0", b"1", b"3", b"4"]


def test_fresh_messages_find_their_place_behind_a_gap() -> None:
    queue = orders()
    put(queue, b"0", b"1")
    assert late_receipts.discard(queue, 1, 1_000)
    put(queue, b"2")
    assert bodies(queue, take(queue)) == [b"0", b"2"]


def test_message_with_another_consumer_is_taken_from_it() -> None:
    queue, first = timed_out()
    second = take(queue, now_ms=LATE_MS).lease
    assert late_receipts.lease_of(queue, 2) == second != first
    assert late_receipts.discard(queue, 2, LATE_MS)
    commit(queue)
    assert (queue.in_flight, late_receipts.holds(queue, 2), late_receipts.holds(queue, 3)) == (
        4,
        False,
        True,
    )


def test_message_that_waits_out_a_delay_goes_too() -> None:
    queue = orders()
    put(queue, b"0", b"1", b"2")
    nack(queue, take(queue).lease, 0, 3, 1_000, delay_ms=500)
    assert late_receipts.discard(queue, 1, 1_000)
    commit(queue)
    run_due(queue, 1_500)
    assert bodies(queue, take(queue, now_ms=1_500)) == [b"0", b"2"]


def test_what_was_discarded_before_its_time_is_not_the_oldest() -> None:
    queue = orders(delay_ms=5_000)
    put(queue, b"first", now_ms=1_000)
    put(queue, b"second", now_ms=3_000)
    assert peek.info(queue, 4_000).oldest_age_ms == 3_000
    assert late_receipts.discard(queue, 0, 4_000)
    assert peek.info(queue, 4_000).oldest_age_ms == 1_000
    assert late_receipts.discard(queue, 1, 4_000)
    assert peek.info(queue, 4_000).oldest_age_ms == 0


def test_what_is_gone_is_not_discarded_twice() -> None:
    queue, _ = timed_out()
    assert late_receipts.discard(queue, 2, LATE_MS)
    assert not late_receipts.discard(queue, 2, LATE_MS)
    assert not late_receipts.discard(queue, 99, LATE_MS)
    assert not late_receipts.discard(queue, 5 << 48, LATE_MS)  # of a priority that nobody used


def test_who_timed_out_is_known_until_the_next_delivery() -> None:
    queue, lease = timed_out()
    assert late_receipts.has_timed_out(queue, lease, 2)
    assert not late_receipts.has_timed_out(queue, lease + 1, 2)
    again = take(queue, now_ms=LATE_MS)
    assert not late_receipts.has_timed_out(queue, lease, 2)
    nack(queue, again.lease, 0, 5, LATE_MS)
    commit(queue)
    assert not late_receipts.has_timed_out(
        queue, again.lease, 2
    )  # it was given back, which is not late


def test_a_message_is_found_however_often_it_was_delivered() -> None:
    """What is known of earlier deliveries is dropped now and then, never the latest."""
    queue = orders(max_attempts=None)
    put(queue, b"one")
    for _ in range(2 * PIECE_LEASES_MAX):
        lease = pop(queue, 1, 1_000, one_ack=True).lease
        assert late_receipts.lease_of(queue, 0) == lease
        nack(queue, lease, 0, 1, 1_000)
