"""Retention takes what has waited in line for too long, and nothing else."""

from array import array

import msgspec

from nexo.machine.ack import ack
from nexo.machine.bind import push_kept
from nexo.machine.compact import copy_forward
from nexo.machine.deadlines import next_ms, run_due
from nexo.machine.fail import nack
from nexo.machine.image import image_of
from nexo.machine.log import Piece, Place
from nexo.machine.push import push_shared
from nexo.machine.snapshot import load_snapshot
from nexo.vocabulary.batch import TIME_TYPE, Batch
from tests.unit.machine.orders import batch, bodies, commit, orders, put, take

KEEP = {"retention_ms": 10_000}


def test_message_goes_when_its_time_is_over() -> None:
    queue = orders(**KEEP)
    put(queue, b"old", now_ms=1_000)
    put(queue, b"young", now_ms=2_000)
    assert next_ms(queue) == 11_000
    run_due(queue, 10_999)
    assert queue.depth == 2
    run_due(queue, 11_000)
    assert bodies(queue, take(queue, now_ms=11_000)) == [b"young"]
    assert queue.totals.expired == 1


def test_message_in_flight_goes_when_it_comes_back() -> None:
    queue = orders(**KEEP, visibility_timeout_ms=60_000)
    put(queue, b"old")
    delivery = take(queue)
    run_due(queue, 30_000)
    assert queue.in_flight == 1
    nack(queue, delivery.lease, 0, 1, 30_000)
    run_due(queue, 30_000)
    assert queue.depth == 0


def test_chunk_whose_last_messages_are_gone_expires_like_any_other() -> None:
    """Copied forward, a chunk holds fewer messages than its times reach."""
    queue = orders(**KEEP)
    put(queue, b"old", now_ms=1_000)
    put(queue, *[b"x"] * 20, now_ms=5_000)
    lane = queue.lanes[0]
    lane.log.close_open()
    delivery = take(queue, 21, now_ms=5_000)
    ack(queue, delivery.lease, 1, 21, 5_000)
    nack(queue, delivery.lease, 0, 1, 5_000)
    copy_forward(queue, next(iter(lane.log.chunks.values())))
    commit(queue)
    run_due(queue, 11_000)
    assert queue.depth == 0


def test_shared_messages_do_not_ring_before_their_time() -> None:
    """What a topic shares was published earlier; the alarm counts from its arrival."""
    queue = orders(**KEEP)
    published = Batch(b"ab", array("i", [0, 1, 2]), created=array(TIME_TYPE, [400, 500]))
    push_shared(queue, published, Place(1), 1_000)
    commit(queue)
    assert next_ms(queue) == 11_000
    run_due(queue, 10_999)
    assert queue.depth == 2
    run_due(queue, 11_000)
    assert queue.depth == 0


def test_content_on_disk_is_kept_until_the_last_of_its_chunk_is_old() -> None:
    queue = orders(**KEEP)
    put(queue, b"old", now_ms=1_000)
    put(queue, b"young", now_ms=3_000)
    log = queue.lanes[0].log
    log.close_open()
    log.evict(log.chunks[0])
    run_due(queue, 12_999)
    assert queue.depth == 2
    run_due(queue, 13_000)
    assert queue.depth == 0


def test_what_stands_behind_a_locked_group_grows_old_too() -> None:
    queue = orders(fifo=True, retention_ms=10_000, visibility_timeout_ms=60_000)
    put(queue, b"0", b"1", b"2", groups=["a", "a", "b"])
    take(queue, 1)
    put(queue, b"3", groups="a", now_ms=5_000)
    assert next_ms(queue) == 11_000
    run_due(queue, 11_000)
    commit(queue)
    assert (queue.depth, queue.in_flight, queue.totals.expired) == (2, 1, 2)
    assert next_ms(queue) == 15_000


def test_what_a_topic_had_kept_counts_from_when_it_came_to_the_queue() -> None:
    """Published before the message that stands in front of it, it does not go with that."""
    queue = orders(**KEEP)
    put(queue, b"old", now_ms=1_000)
    push_kept(queue, Piece([77], 0, 2, 4, None, 100, 500, batch(b"ke", b"pt")), 5_000)
    commit(queue)
    assert next_ms(queue) == 11_000
    run_due(queue, 11_000)
    assert (queue.depth, next_ms(queue)) == (2, 15_000)
    run_due(queue, 15_000)
    assert queue.depth == 0


def test_a_lease_that_timed_out_has_not_expired() -> None:
    queue = orders(**KEEP, visibility_timeout_ms=1_000)
    put(queue, b"a", b"b")
    take(queue)
    run_due(queue, 2_000)
    assert (queue.totals.timed_out, queue.totals.expired) == (2, 0)
    run_due(queue, 11_000)
    assert (queue.totals.timed_out, queue.totals.expired) == (2, 2)


def test_a_snapshot_from_before_timeouts_had_a_total_of_their_own() -> None:
    queue = orders(**KEEP)
    stored = msgspec.to_builtins(image_of(queue))
    stored["totals"] = [7, 6, 1, 1, 4, 0]  # the fifth counted both
    load_snapshot(queue, msgspec.msgpack.encode(stored))
    assert (queue.totals.timed_out, queue.totals.expired, queue.totals.pushed) == (0, 4, 7)
