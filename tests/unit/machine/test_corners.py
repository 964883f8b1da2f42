"""Corners that nobody looked at until a bug was planted there."""

from nexo.machine.depart import dead_letters, depart
from nexo.machine.expire import expire
from nexo.machine.fail import nack
from nexo.machine.push import push_moved
from nexo.vocabulary.identity import priority_of
from nexo.vocabulary.states import Cause
from tests.unit.machine.orders import commit, orders, put, take


def test_a_pop_takes_what_its_bytes_allow_and_no_message_more() -> None:
    queue = orders()
    put(queue, *[b"0123456789"] * 5)
    assert take(queue, 10, bytes_max=29).count == 2
    assert take(queue, 10, bytes_max=30).count == 3


def test_what_is_moved_to_a_fifo_queue_leaves_its_priority_behind() -> None:
    queue, target = orders(max_attempts=1), orders(fifo=True)
    put(queue, b"one", priority=7)
    lease = take(queue).lease
    first = queue.lanes_by_priority[7].log.end - 1
    nack(queue, lease, first, first + 1, 2_000)
    (doomed,) = queue.doomed
    push_moved(target, dead_letters(queue, doomed), 3_000)
    assert depart(queue, doomed.lease, doomed.span, Cause.DEAD_LETTERED, doomed.reason, 3_000)
    commit(target)
    assert [priority_of(part.first) for part in take(target).parts] == [0]


def test_time_alone_forgets_the_keys_whose_window_is_over() -> None:
    queue = orders(deduplication="id", deduplication_window_ms=1_000)
    put(queue, b"one", deduplication_ids=["k"], now_ms=1_000)
    expire(queue, 1_999)
    assert queue.recent is not None
    assert list(queue.recent.seqs_by_key) == ["k"]
    expire(queue, 2_000)
    assert not queue.recent.seqs_by_key
