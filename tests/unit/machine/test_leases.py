"""What a consumer may say of a delivery, and what a lease leaves behind."""

from random import Random

import pytest

from nexo.machine import queue as queue_module
from nexo.machine.ack import ack, extend, received
from nexo.machine.deadlines import next_ms, run_due
from nexo.machine.fail import give_back, nack
from nexo.machine.invariants import check
from nexo.machine.pop import messages, pop
from nexo.machine.settle import collect, settle
from nexo.vocabulary import limits
from nexo.vocabulary.errors import InvalidArgument, StaleReceipt, WrongState
from nexo.vocabulary.states import State
from tests.unit.machine.orders import FIRST_LEASE, bodies, orders, put, take

SETTINGS = {"visibility_timeout_ms": 500, "retransmit_timeout_ms": 100}


def test_delivery_counts_as_an_attempt() -> None:
    queue = orders()
    put(queue, b"one")
    for attempt in (1, 2):
        delivery = take(queue)
        (message,) = messages(queue, delivery)
        assert message.attempts == attempt
        nack(queue, delivery.lease, 0, 1, 1_000)


@pytest.mark.parametrize("visibility_ms", [-1, limits.TIMEOUT_MS_MAX + 1, 2**63 - 1])
def test_a_delivery_does_not_last_for_ever(visibility_ms: int) -> None:
    queue = orders()
    put(queue, b"one")
    with pytest.raises(InvalidArgument, match="visibility_ms"):
        pop(queue, 1, 1_000, visibility_ms=visibility_ms)
    assert (queue.ready, queue.in_flight) == (1, 0)


def test_ack_before_received_is_out_of_order() -> None:
    queue = orders()
    put(queue, b"one")
    delivery = pop(queue, 1, 1_000)
    with pytest.raises(WrongState, match="received"):
        ack(queue, delivery.lease, 0, 1, 1_000)
    received(queue, delivery.lease, 0, 1, 1_000)
    assert ack(queue, delivery.lease, 0, 1, 1_000) == [0, 1]
    assert queue.depth == 0


def test_received_twice_changes_nothing() -> None:
    queue = orders(**SETTINGS)
    put(queue, b"one")
    delivery = pop(queue, 1, 1_000)
    received(queue, delivery.lease, 0, 1, 1_050)
    changes = len(queue.changes)
    assert received(queue, delivery.lease, 0, 1, 1_200) == [0, 1]
    assert len(queue.changes) == changes
    run_due(queue, 1_550)
    assert queue.ready == 1


def test_reception_ack_begins_the_visibility_timeout() -> None:
    queue = orders(**SETTINGS)
    put(queue, b"one")
    delivery = pop(queue, 1, 1_000)
    assert next_ms(queue) == 1_100
    received(queue, delivery.lease, 0, 1, 1_090)
    run_due(queue, 1_589)
    assert queue.in_flight == 1
    run_due(queue, 1_590)
    assert (queue.in_flight, queue.ready) == (0, 1)


def test_visibility_timeout_of_a_pop_survives_received() -> None:
    queue = orders(**SETTINGS)
    put(queue, b"one")
    delivery = pop(queue, 1, 1_000, visibility_ms=9_000)
    received(queue, delivery.lease, 0, 1, 1_000)
    run_due(queue, 9_999)
    assert queue.in_flight == 1


def test_extension_counts_from_now() -> None:
    queue = orders(**SETTINGS)
    put(queue, b"one")
    delivery = take(queue)
    extend(queue, delivery.lease, 0, 1, 300, 1_400)
    run_due(queue, 1_699)
    assert queue.in_flight == 1
    run_due(queue, 1_700)
    assert queue.in_flight == 0
    with pytest.raises(InvalidArgument):
        extend(queue, delivery.lease, 0, 1, -1, 1_700)


def test_outdated_delivery_is_stale() -> None:
    queue = orders(**SETTINGS)
    put(queue, b"one")
    first = take(queue)
    run_due(queue, 1_500)
    second = take(queue, now_ms=1_500)
    with pytest.raises(StaleReceipt):
        ack(queue, first.lease, 0, 1, 1_500)
    assert ack(queue, second.lease, 0, 1, 1_500) == [0, 1]


@pytest.mark.parametrize("wanted", [(0, 1), (0, 5)])
def test_doomed_message_is_stale_to_its_consumer(wanted: tuple[int, int]) -> None:
    queue = orders(max_attempts=1)
    put(queue, b"one")
    delivery = take(queue)
    nack(queue, delivery.lease, 0, 1, 1_000)
    with pytest.raises(StaleReceipt):
        ack(queue, delivery.lease, *wanted, 1_000)


def test_partly_stale_range_is_applied_where_it_holds() -> None:
    queue = orders()
    put(queue, b"0", b"1", b"2", b"3")
    delivery = take(queue)
    ack(queue, delivery.lease, 1, 2, 1_000)
    assert ack(queue, delivery.lease, 0, 3, 1_000) == [0, 1, 2, 3]
    assert queue.depth == 1
    assert bodies(queue, delivery)[3] == b"3"


def test_range_with_one_message_out_of_order_is_refused_whole() -> None:
    queue = orders()
    put(queue, b"0", b"1")
    delivery = pop(queue, 2, 1_000)
    received(queue, delivery.lease, 0, 1, 1_000)
    with pytest.raises(WrongState):
        ack(queue, delivery.lease, 0, 2, 1_000)
    assert queue.depth == 2


def test_given_back_message_was_never_delivered() -> None:
    queue = orders()
    put(queue, b"one", b"two")
    delivery = pop(queue, 1, 1_000)
    give_back(queue, delivery.lease, 0, 1, 1_000)
    again = take(queue)
    assert bodies(queue, again) == [b"one", b"two"]
    assert [message.attempts for message in messages(queue, again)] == [1, 1]


def test_acked_leases_leave_nothing_behind() -> None:
    queue = orders()
    for number in range(1_000):
        put(queue, b"one")
        ack(queue, take(queue).lease, number, number + 1, 1_000)
    assert len(queue.deadlines) < 100
    assert queue.leases == {}


def test_no_deadline_is_lost_while_others_are_swept(monkeypatch: pytest.MonkeyPatch) -> None:
    """With many in flight that takes a while, and everything else goes on."""
    monkeypatch.setattr(queue_module, "SWEPT_AT_ONCE", 10)
    monkeypatch.setattr(queue_module, "DEADLINES_SWEPT", 2)
    queue, random, swept = orders(max_attempts=None), Random(7), 0
    put(queue, *[b""] * 400)
    leases: dict[int, int] = {}
    for now_ms in range(1_000, 9_000, 2):
        delivery = pop(queue, random.choice([1, 1, 9]), now_ms, one_ack=True, visibility_ms=3_000)
        for part in delivery.parts:
            leases |= dict.fromkeys(range(part.first, part.first + part.count), delivery.lease)
        for seq in random.sample(sorted(leases), min(3, len(leases))):
            lease = leases[seq]
            if random.random() < 0.1:
                nack(queue, lease, seq, seq + 1, now_ms)
                del leases[seq]
            else:
                extend(queue, lease, seq, seq + 1, random.choice([500, 5_000]), now_ms)
        run_due(queue, now_ms)
        leases = {
            seq: lease for seq, lease in leases.items() if queue.on_lease(lease, seq, seq + 1)
        }
        settle(queue, collect(queue).mark)
        swept += bool(queue.unswept)
        if now_ms % 20 == 0:
            check(queue)
    assert swept > 100
    assert len(queue.deadlines) + len(queue.unswept) < 4_000
    run_due(queue, 100_000)
    assert (queue.in_flight, queue.deadlines, queue.unswept) == (0, [], [])


def test_extending_one_by_one_stays_quick_and_tidy() -> None:
    """One lease with a deadline a message: none may be swept out, and none kept twice."""
    queue = orders()
    put(queue, *[b""] * 1_000)
    delivery = take(queue, 1_000)
    for round_ms in (40_000, 50_000):
        for seq in range(1_000):
            extend(queue, delivery.lease, seq, seq + 1, round_ms + seq, 1_000)
    assert len(queue.deadlines) <= 3_000
    run_due(queue, 51_500)
    assert queue.in_flight == 499


@pytest.mark.timeout(20)
def test_lease_over_many_groups_is_received_and_buried_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each message is a span of its own here; none of the steps may look at all the others."""
    monkeypatch.setattr(limits, "POP_RUNS_MAX", 10_000)
    queue = orders(fifo=True, max_attempts=1)
    put(queue, *[b""] * 10_000, groups=[str(number) for number in range(10_000)])
    delivery = pop(queue, 10_000, 1_000)
    received(queue, delivery.lease, 0, 10_000, 1_000)
    run_due(queue, 100_000)
    assert sum(doomed.span.end - doomed.span.first for doomed in queue.doomed) == 10_000


def test_lease_numbers_go_on() -> None:
    queue = orders()
    put(queue, b"one", b"two")
    leases = [take(queue, 1).lease for _ in range(2)]
    assert leases == [FIRST_LEASE, FIRST_LEASE + 1]


def test_empty_pop_is_no_lease() -> None:
    queue = orders()
    delivery = take(queue)
    assert (delivery.lease, delivery.parts, delivery.state) == (0, [], State.READY)


@pytest.mark.parametrize("count", [0, -1, 10_001])
def test_pop_takes_a_sensible_number(count: int) -> None:
    with pytest.raises(InvalidArgument, match="10000"):
        pop(orders(), count, 1_000)
