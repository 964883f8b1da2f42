"""Corners that nobody looked at until a bug was planted there."""

from array import array
from itertools import count

import msgspec

from nexo.machine.ack import ack
from nexo.machine.apply import apply
from nexo.machine.compact import is_sparse
from nexo.machine.deadlines import run_due
from nexo.machine.fail import nack
from nexo.machine.image import image_of
from nexo.machine.move import dead_letters, take_out
from nexo.machine.pop import pop
from nexo.machine.purge import purge, take_apart
from nexo.machine.push import push, push_moved, push_one
from nexo.machine.settle import collect, settle
from nexo.machine.topic import Topic, collect_topic, flush_topic, publish, settle_topic, trim
from nexo.vocabulary.batch import TIME_TYPE
from nexo.vocabulary.identity import priority_of
from nexo.vocabulary.settings import TopicSettings
from nexo.vocabulary.states import Cause
from tests.unit.machine.orders import batch, bodies, commit, orders, put, take


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
    assert take_out(queue, doomed.lease, doomed.span, Cause.DEAD_LETTERED, doomed.reason, 3_000)
    commit(target)
    assert [priority_of(part.first) for part in take(target).parts] == [0]


def test_time_alone_forgets_the_keys_whose_window_is_over() -> None:
    queue = orders(deduplication="id", deduplication_window_ms=1_000)
    put(queue, b"one", deduplication_ids=["k"], now_ms=1_000)
    run_due(queue, 1_999)
    assert list(image_of(queue).recent) == ["k"]
    run_due(queue, 2_500)  # not to the millisecond: they may be dropped some at a time
    assert not image_of(queue).recent


def test_each_message_of_a_row_falls_due_at_its_own_time_after_a_restart() -> None:
    queue = orders()
    delays = array(TIME_TYPE, [500, 0, 300, 300])
    push(queue, batch(b"a", b"b", b"c", b"d", delay_ms=delays), 1_000)
    push(queue, batch(b"e", delay_ms=700), 1_000)
    collected = collect(queue)
    settle(queue, collected.mark)
    recovered = orders()
    apply(recovered, [collected.changes])
    assert image_of(recovered) == image_of(queue)
    dues = {free.first: free.due_ms for free in image_of(queue).free}
    assert dues == {0: 1_500, 1: 0, 2: 1_300, 4: 1_700}


def test_retention_by_count_drops_nothing_for_what_is_not_on_disk_yet() -> None:
    topic = Topic("news", TopicSettings(retention_messages=2), count(1))
    publish(topic, batch(b"a", b"b", b"c"), 1_000)
    flush_topic(topic)
    settle_topic(topic, collect_topic(topic).end)
    publish(topic, batch(b"d", b"e"), 1_000)
    trim(topic, 1_000)
    assert (topic.start, topic.log.settled) == (1, 3)


def test_a_tenant_with_little_in_flight_is_never_noisy() -> None:
    queue = orders()
    put(queue, b"a1", b"a2", b"a3", b"b1", groups=["a", "a", "a", "b"])
    taken = [bodies(queue, take(queue, 1))[0] for _ in range(4)]
    assert taken == [b"a1", b"a2", b"a3", b"b1"]


def test_a_fifo_group_goes_on_with_what_came_while_its_last_message_expired() -> None:
    queue = orders(fifo=True, retention_ms=1_000)
    put(queue, b"old", groups="g", now_ms=1_000)
    assert queue.has_ready()  # it is the group's turn
    push(queue, batch(b"new", groups="g"), 2_500)
    run_due(queue, 2_500)
    assert not queue.has_ready()  # the old one is gone, the new one not on disk
    commit(queue)
    assert bodies(queue, take(queue, now_ms=2_500)) == [b"new"]


def test_a_key_that_was_renewed_outlives_its_first_window() -> None:
    queue = orders(deduplication="id", deduplication_window_ms=10_000)
    put(queue, b"long", deduplication_ids=["long"], now_ms=0)
    queue.settings = msgspec.structs.replace(queue.settings, deduplication_window_ms=1_000)
    put(queue, b"first", deduplication_ids=["k"], now_ms=100)
    put(queue, b"again", deduplication_ids=["k"], now_ms=9_500)
    put(queue, b"other", deduplication_ids=["other"], now_ms=10_001)
    before = queue.depth
    put(queue, b"too soon", deduplication_ids=["k"], now_ms=10_200)
    assert queue.depth == before


def test_a_chunk_is_not_copied_forward_before_all_of_it_is_on_disk() -> None:
    queue = orders()
    for _ in range(10):
        push_one(queue, bytes(20_000), 1_000)
    commit(queue)
    ack(queue, take(queue, 9).lease, 0, 9, 1_000)
    for _ in range(2):
        push_one(queue, bytes(32_000), 1_000)  # the chunk is full, and has no row for these yet
    (lane,) = queue.lanes
    (chunk,) = lane.log.chunks.values()
    assert not is_sparse(lane, chunk)
    commit(queue)
    assert is_sparse(lane, chunk)


def test_what_was_purged_is_neither_evicted_nor_copied_forward() -> None:
    """Until it is taken apart its contents are still there, and others may know its chunks."""
    queue = orders()
    put(queue, *[b"x" * 200] * 1_000)
    lane = queue.lanes[0]
    (chunk,) = lane.log.chunks.values()
    ack(queue, pop(queue, 999, 1_000, one_ack=True).lease, 0, 999, 1_000)
    commit(queue)
    assert lane.log.evictable(chunk)
    assert is_sparse(lane, chunk)
    purge(queue, 1_000)
    assert chunk.content is not None
    assert not lane.log.evictable(chunk)
    assert not is_sparse(lane, chunk)
    assert not take_apart(queue, 100)
    assert chunk.content is None
