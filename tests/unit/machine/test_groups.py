"""FIFO groups keep their order, and noisy tenants of a fair queue go after the quiet ones."""

import pytest

from nexo.machine import late_receipts
from nexo.machine.ack import ack
from nexo.machine.apply import apply
from nexo.machine.deadlines import run_due
from nexo.machine.discard import discard
from nexo.machine.fail import nack
from nexo.machine.invariants import check
from nexo.machine.purge import purge
from nexo.machine.push import push
from nexo.machine.settle import collect, settle
from nexo.vocabulary.changes import Pushed, Removed
from nexo.vocabulary.limits import NOISY_IN_FLIGHT_MIN
from nexo.vocabulary.states import Cause
from tests.unit.machine.orders import batch, bodies, commit, orders, put, take


def test_group_in_flight_is_locked_and_others_are_not() -> None:
    queue = orders(fifo=True)
    put(queue, b"a1", b"b1", b"a2", groups=["a", "b", "a"])
    assert bodies(queue, take(queue, 1)) == [b"a1"]
    assert bodies(queue, take(queue)) == [b"b1"]
    assert bodies(queue, take(queue)) == []


def test_one_pop_takes_many_of_a_group_in_order() -> None:
    queue = orders(fifo=True)
    put(queue, b"a1", b"b1", b"a2", groups=["a", "b", "a"])
    assert bodies(queue, take(queue)) == [b"a1", b"a2", b"b1"]


def test_group_opens_when_the_ack_is_on_disk_and_not_before() -> None:
    queue = orders(fifo=True)
    put(queue, b"a1", b"a2", groups="a")
    first = take(queue, 1)
    ack(queue, first.lease, 0, 1, 1_000)
    assert bodies(queue, take(queue)) == []
    collected = collect(queue)
    assert bodies(queue, take(queue)) == []
    settle(queue, collected.mark)
    assert bodies(queue, take(queue)) == [b"a2"]


def test_nacked_message_goes_before_those_behind_it() -> None:
    queue = orders(fifo=True)
    put(queue, b"a1", b"a2", groups="a")
    delivery = take(queue, 1)
    nack(queue, delivery.lease, 0, 1, 1_000)
    commit(queue)
    assert bodies(queue, take(queue)) == [b"a1", b"a2"]


def test_delayed_message_holds_its_group() -> None:
    queue = orders(fifo=True)
    put(queue, b"a1", b"a2", b"b1", groups=["a", "a", "b"], delay_ms=[500, 0, 0])
    assert bodies(queue, take(queue)) == [b"b1"]
    run_due(queue, 1_500)
    assert bodies(queue, take(queue, now_ms=1_500)) == [b"a1", b"a2"]


def test_what_stands_before_the_first_in_flight_may_go() -> None:
    queue = orders(fifo=True)
    put(queue, b"a1", b"a2", b"a3", groups="a")
    delivery = take(queue, 2)
    nack(queue, delivery.lease, 0, 1, 1_000)
    commit(queue)
    assert bodies(queue, take(queue)) == [b"a1"]  # a2 is in flight, and a3 behind it
    nack(queue, delivery.lease, 1, 2, 1_000)
    commit(queue)
    assert bodies(queue, take(queue)) == []  # a1 is in flight again


def test_partly_acked_delivery_still_locks_its_group() -> None:
    queue = orders(fifo=True)
    put(queue, b"a1", b"a2", b"a3", groups="a")
    delivery = take(queue, 2)
    ack(queue, delivery.lease, 0, 1, 1_000)
    commit(queue)
    assert bodies(queue, take(queue)) == []


def test_group_that_comes_back_waits_for_the_others() -> None:
    queue = orders(fifo=True)
    put(queue, b"a1", b"b1", b"c1", groups=["a", "b", "c"])
    for _ in range(2):
        delivery = take(queue, 1)
        assert bodies(queue, delivery) == [b"a1"] or bodies(queue, delivery) == [b"b1"]
        nack(queue, delivery.lease, delivery.parts[0].first, delivery.parts[0].first + 1, 1_000)
        commit(queue)
    assert bodies(queue, take(queue)) == [b"c1", b"a1", b"b1"]


def test_group_not_on_disk_holds_nobody_up() -> None:
    queue = orders(fifo=True)
    push(queue, batch(b"a1", groups="a"), 1_000)
    under_way = collect(queue)
    assert bodies(queue, take(queue)) == []
    settle(queue, under_way.mark)
    push(queue, batch(b"b1", groups="b"), 1_000)
    assert bodies(queue, take(queue)) == [b"a1"]
    commit(queue)
    assert bodies(queue, take(queue)) == [b"b1"]


def test_messages_without_a_group_are_one_group() -> None:
    queue = orders(fifo=True)
    put(queue, b"1", b"2")
    assert bodies(queue, take(queue, 1)) == [b"1"]
    assert bodies(queue, take(queue)) == []


def test_purge_opens_groups_also_while_a_commit_is_under_way() -> None:
    queue = orders(fifo=True)
    put(queue, b"a1", groups="a")
    delivery = take(queue)
    ack(queue, delivery.lease, 0, 1, 1_000)
    under_way = collect(queue)
    purge(queue, 1_000)
    push(queue, batch(b"a2", groups="a"), 1_000)
    settle(queue, under_way.mark)
    commit(queue)
    assert bodies(queue, take(queue)) == [b"a2"]


def test_quiet_tenant_goes_before_a_noisy_one() -> None:
    queue = orders()
    loud = [b"loud"] * (NOISY_IN_FLIGHT_MIN + 2)
    put(queue, *loud, groups="loud")
    put(queue, b"quiet", groups="quiet")
    take(queue, NOISY_IN_FLIGHT_MIN)
    assert bodies(queue, take(queue)) == [b"quiet", b"loud", b"loud"]


def test_a_noisy_tenant_gets_nothing_that_is_not_on_disk() -> None:
    """What came last was first in line until a message before it was due."""
    queue = orders()
    put(queue, *[b"loud"] * NOISY_IN_FLIGHT_MIN, groups="loud")
    take(queue, NOISY_IN_FLIGHT_MIN)
    put(queue, b"later", groups="loud", delay_ms=500)
    push(queue, batch(b"new", b"quiet", groups=["loud", "quiet"]), 1_000)
    run_due(queue, 1_500)
    assert bodies(queue, take(queue, now_ms=1_500)) == [b"later"]
    commit(queue)
    assert bodies(queue, take(queue, now_ms=1_500)) == [b"quiet", b"new"]


def test_tenant_that_has_calmed_down_waits_in_order_again() -> None:
    queue = orders()
    loud = [b"loud"] * (NOISY_IN_FLIGHT_MIN + 1)
    put(queue, *loud, groups="loud")
    put(queue, b"quiet", groups="quiet")
    delivery = take(queue, NOISY_IN_FLIGHT_MIN)
    assert queue.has_ready()
    ack(queue, delivery.lease, 0, NOISY_IN_FLIGHT_MIN, 1_000)
    assert bodies(queue, take(queue)) == [b"loud", b"quiet"]


def test_groups_may_come_late_to_a_queue() -> None:
    queue = orders()
    put(queue, b"plain", b"plain")
    take(queue, 1)
    put(queue, b"grouped", groups="a")
    assert bodies(queue, take(queue)) == [b"plain", b"grouped"]


@pytest.mark.parametrize("is_late", [False, True])
def test_group_goes_on_when_the_message_it_waits_for_is_discarded(is_late: bool) -> None:
    """Not before that is on disk: a crash would bring the first back behind the second."""
    queue = orders(fifo=True)
    put(queue, b"a1", b"a2", groups="a")
    delivery = take(queue, 1)
    nack(queue, delivery.lease, 0, 1, 1_000, 60_000)
    commit(queue)
    assert bodies(queue, take(queue)) == []  # a1 waits for its time, and a2 behind it
    if is_late:
        assert late_receipts.discard(queue, 0, 1_000)
    else:
        assert discard(queue, [0], 1_000) == 1
    under_way = collect(queue)
    assert bodies(queue, take(queue)) == []
    settle(queue, under_way.mark)
    assert bodies(queue, take(queue)) == [b"a2"]


def test_journal_that_tells_that_a_delayed_message_is_gone() -> None:
    """Those behind it in its group go on."""
    queue = orders(fifo=True)
    pushed = Pushed(
        row=1,
        row_start=0,
        chunk=0,
        first=0,
        end=2,
        created_first_ms=1_000,
        created_last_ms=1_000,
        due_ms=[1_500, 0],
        groups="a",
        payload_bytes=2,
    )
    apply(queue, [[pushed], [Removed(0, Cause.RETENTION, (0, 1))]])
    check(queue)
    assert queue.has_ready()
