"""What a push is refused for, and that a refusal changes nothing."""

from itertools import count

import pytest

from nexo.machine.apply import apply
from nexo.machine.log import Place
from nexo.machine.pop import messages
from nexo.machine.push import push, push_one, push_shared
from nexo.machine.queue import Queue
from nexo.machine.settle import collect
from nexo.vocabulary import limits
from nexo.vocabulary.changes import decode_queue_changes, encode_changes
from nexo.vocabulary.errors import InvalidArgument, MessageTooLarge, QueueFull
from tests.unit.machine.orders import FIRST_LEASE, INCARNATION, batch, bodies, orders, put, take


def test_highest_priority_goes_first_in_order_inside_it() -> None:
    queue = orders()
    put(queue, b"low 1", b"high 1", b"low 2", b"high 2", priority=bytes([1, 9, 1, 9]))
    assert bodies(queue, take(queue)) == [b"high 1", b"high 2", b"low 1", b"low 2"]


def test_unsettled_messages_are_invisible() -> None:
    queue = orders()
    push_one(queue, b"one", 1_000)
    collect(queue)
    assert bodies(queue, take(queue)) == []
    assert not queue.has_ready()


def test_full_queue_refuses_a_batch_whole() -> None:
    queue = orders(max_depth=3)
    put(queue, b"1", b"2")
    with pytest.raises(QueueFull, match="2 of at most 3"):
        push(queue, batch(b"3", b"4"), 1_000)
    assert queue.depth == 2
    push_one(queue, b"3", 1_000)
    with pytest.raises(QueueFull):
        push_one(queue, b"4", 1_000)


def test_large_message_is_refused() -> None:
    queue = orders(max_message_bytes=3)
    with pytest.raises(MessageTooLarge, match="4 bytes"):
        push(queue, batch(b"a", b"1234"), 1_000)
    with pytest.raises(MessageTooLarge, match="4 bytes"):
        push_one(queue, b"1234", 1_000)
    assert put(queue, b"123", b"123") == [0, 1]


@pytest.mark.parametrize("priority", [-1, 256])
def test_priority_has_a_range(priority: int) -> None:
    for push_it in (
        lambda queue: push(queue, batch(b"a", priority=priority), 1_000),
        lambda queue: push_one(queue, b"a", 1_000, priority),
    ):
        queue = orders(max_depth=5)
        with pytest.raises(InvalidArgument, match="priority"):
            push_it(queue)
        assert queue.lanes == []


def test_fifo_queue_takes_no_priorities() -> None:
    queue = orders(fifo=True)
    with pytest.raises(InvalidArgument, match="FIFO"):
        push(queue, batch(b"a", b"b", priority=bytes([0, 1])), 1_000)
    with pytest.raises(InvalidArgument, match="FIFO"):
        push_one(queue, b"a", 1_000, priority=1)


def test_delay_must_end_before_the_retention() -> None:
    queue = orders(retention_ms=5_000)
    with pytest.raises(InvalidArgument, match="retention"):
        push(queue, batch(b"a", delay_ms=5_000), 1_000)
    put(queue, b"a", delay_ms=4_999)
    assert queue.scheduled_count == 1


def test_delay_of_a_message_goes_before_the_queues() -> None:
    queue = orders(delay_ms=100)
    put(queue, b"now", b"later", delay_ms=[0, 50])
    put(queue, b"as the queue says")
    assert (queue.ready, sorted(due for due, _, _ in queue.scheduled)) == (1, [1_050, 1_100])


def test_times_never_go_back() -> None:
    queue = orders()
    put(queue, b"one", now_ms=2_000)
    put(queue, b"two", now_ms=1_000)
    created = [message.created_ms for message in messages(queue, take(queue))]
    assert created == [2_000, 2_000]


def test_numbers_go_on_after_a_crash_also_behind_shared_messages() -> None:
    """A shared batch is told to the journal before the small pushes that came before it."""
    queue = orders()
    push_one(queue, b"own", 1_000)
    push_shared(queue, batch(b"shared", b"shared"), Place(next(queue.row_numbers)), 1_000)
    record = decode_queue_changes(encode_changes(collect(queue).changes))
    revived = Queue("orders", queue.settings, INCARNATION, count(9), FIRST_LEASE)
    apply(revived, [record])
    assert put(revived, b"next") == [3]


@pytest.mark.parametrize("wrong", ["", "x" * (limits.GROUP_ID_CHARS_MAX + 1)])
def test_one_wrong_id_among_many(wrong: str) -> None:
    queue = orders()
    given = ["a", "b", "c", "d", "e", None, wrong]
    with pytest.raises(InvalidArgument, match=rf"group id has .* not {len(wrong)}$"):
        push(queue, batch(*[b"x"] * 7, groups=given), 1_000)
    with pytest.raises(InvalidArgument, match=rf"deduplication id has .* not {len(wrong)}$"):
        push(queue, batch(*[b"x"] * 7, deduplication_ids=given), 1_000)
    assert queue.depth == 0
