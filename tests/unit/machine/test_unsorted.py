"""What came in with groups waits as one run until it is sorted by them, some in each step. It is in
the queue meanwhile, and nobody sees what stands behind it."""

from typing import Any

import pytest

from nexo.machine import groups, late_receipts, peek
from nexo.machine.ack import ack
from nexo.machine.apply import apply
from nexo.machine.deadlines import next_ms, run_due
from nexo.machine.discard import discard
from nexo.machine.fail import nack
from nexo.machine.image import decode_image, encode_image, image_of, revive
from nexo.machine.invariants import check
from nexo.machine.move import pick_these
from nexo.machine.purge import purge
from nexo.machine.push import push
from nexo.machine.queue import Queue
from nexo.machine.settle import collect, settle, sort_groups
from nexo.machine.unreadable import bring_back, set_aside
from nexo.vocabulary import limits
from nexo.vocabulary.changes import Pushed, Removed
from tests.unit.machine.orders import batch, bodies, orders, take
from tests.unit.machine.test_cost import Step, cost, hold

STEP = 4  # messages that are sorted at once
KINDS = [pytest.param(False, id="fair"), pytest.param(True, id="fifo")]


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SORTED_STEP_MESSAGES", STEP)
    monkeypatch.setattr(groups, "SORTED_WITH_PUSH", 1)


def put(queue: Queue, count: int, names: Any, now_ms: int = 1_000, **columns: Any) -> None:
    """Push and commit as a broker does: the first are sorted."""
    numbered = [b"%d" % number for number in range(count)]
    push(queue, batch(*numbered, groups=names, **columns), now_ms)
    settle(queue, collect(queue).mark)
    check(queue)


def names(count: int) -> list[str]:
    return [f"group {number}" for number in range(count)]


def numbers(queue: Queue, **wishes: Any) -> list[int]:
    """What a pop gets."""
    return [int(body) for body in bodies(queue, take(queue, **wishes))]


def sort(queue: Queue) -> int:
    """Sort everything; in how many steps."""
    steps = 1
    while sort_groups(queue):
        steps += 1
        check(queue)
    return steps


# -- What it costs ----------------------------------------------------------------------------


@pytest.mark.parametrize("fifo", KINDS)
def test_push_looks_at_no_message_by_itself(fifo: bool) -> None:
    def world(size: int) -> Step:
        queue = orders(fifo=fifo, deduplication="id")
        ids = [str(number) for number in range(size)]
        pushed = batch(*[b"body"] * size, groups=names(size), deduplication_ids=ids)
        return lambda: push(queue, pushed, 1_000)

    less, more = cost(world(500)).lines, cost(world(5_000)).lines
    assert more <= less + 5, f"{less} lines for 500 messages, {more} for 5,000"


@pytest.mark.parametrize("fifo", KINDS)
def test_commit_sorts_some_whatever_came(fifo: bool) -> None:
    def world(size: int) -> Step:
        queue = orders(fifo=fifo)
        push(queue, batch(*[b"body"] * size, groups=names(size)), 1_000)
        mark = collect(queue).mark
        return lambda: settle(queue, mark)

    hold(world)


def test_one_group_for_all_is_sorted_at_once() -> None:
    queue = orders(fifo=True)
    put(queue, 100, "one")
    assert queue.is_sorted
    assert numbers(queue, count=100) == list(range(100))


def test_priorities_share_a_step() -> None:
    queue = orders()
    push(queue, batch(*[b"0"] * 6, groups=names(6), priority=bytes([1, 2] * 3)), 1_000)
    settle(queue, collect(queue).mark)
    assert len(numbers(queue)) == STEP
    assert not sort_groups(queue)
    assert len(numbers(queue)) == 2
    check(queue)


# -- What is seen -----------------------------------------------------------------------------


@pytest.mark.parametrize("fifo", KINDS)
def test_consumers_get_what_is_sorted_and_then_the_rest(fifo: bool) -> None:
    queue = orders(fifo=fifo)
    put(queue, 10, names(10))
    assert queue.ready == 10
    assert numbers(queue) == [0, 1, 2, 3]
    assert not queue.has_ready()
    assert sort_groups(queue)
    assert numbers(queue) == [4, 5, 6, 7]
    assert not sort_groups(queue)
    assert numbers(queue) == [8, 9]
    check(queue)


def test_nothing_is_sorted_before_it_is_on_disk() -> None:
    queue = orders(fifo=True)
    push(queue, batch(b"0", b"1", groups=["a", "b"]), 1_000)
    assert not sort_groups(queue)
    assert queue.is_sorted
    assert numbers(queue) == []
    settle(queue, collect(queue).mark)
    assert numbers(queue) == [0, 1]


def test_what_comes_later_waits_for_what_is_not_sorted() -> None:
    queue = orders(fifo=True)
    put(queue, 6, names(6))
    put(queue, 2, ["group 5", "new"])
    assert sort(queue) == 1, "the second commit has sorted some too"
    assert numbers(queue, count=5) == [0, 1, 2, 3, 4]
    assert numbers(queue) == [5, 0, 1], "group 5 in its order, then the new one"


@pytest.mark.parametrize("fifo", KINDS)
def test_delayed_message_does_not_overtake_its_group(fifo: bool) -> None:
    """Its time comes while a message of its group that came before it is not sorted."""
    queue = orders(fifo=fifo)
    put(queue, 7, [*names(5), "late", "late"], delay_ms=[0] * 6 + [10])
    run_due(queue, 1_010)
    check(queue)
    assert numbers(queue, now_ms=1_010) == [0, 1, 2, 3]
    assert numbers(queue, now_ms=1_010) == [], "message 6 is due, and 5 comes first"
    sort(queue)
    assert numbers(queue, now_ms=1_010) == [4, 5, 6]


def test_locked_group_stays_locked_for_what_is_sorted_later() -> None:
    queue = orders(fifo=True)
    put(queue, 6, ["a", *names(4), "a"])
    delivery = take(queue, 1)
    sort(queue)
    assert numbers(queue) == [1, 2, 3, 4]
    ack(queue, delivery.lease, 0, 1, 1_000)
    settle(queue, collect(queue).mark)
    assert numbers(queue) == [5]


def test_nacked_message_goes_before_what_is_sorted_later() -> None:
    queue = orders(fifo=True)
    put(queue, 6, ["a", *names(4), "a"])
    delivery = take(queue, 1)
    nack(queue, delivery.lease, 0, 1, 1_000, 50)
    settle(queue, collect(queue).mark)
    sort(queue)
    assert numbers(queue) == [1, 2, 3, 4]
    run_due(queue, 1_050)
    assert numbers(queue, now_ms=1_050) == [0, 5]


# -- What else is done with it ----------------------------------------------------------------


@pytest.mark.parametrize("fifo", KINDS)
def test_it_is_found_and_shown(fifo: bool) -> None:
    queue = orders(fifo=fifo)
    put(queue, 10, names(10))
    shown = peek.show(queue, peek.glance(queue, 10))
    assert [(message.seq, message.group_id) for message in shown] == list(enumerate(names(10)))
    found = peek.find(queue, 9)
    assert found is not None
    assert (found.first, found.end, found.span.group) == (9, 10, "group 9")
    assert late_receipts.holds(queue, 9)


@pytest.mark.parametrize("fifo", KINDS)
def test_it_may_be_discarded_or_moved(fifo: bool) -> None:
    queue = orders(fifo=fifo)
    put(queue, 10, ["a", "b"] * 5)
    assert discard(queue, [1, 5, 9], 1_000) == 3
    check(queue)
    picked = pick_these(queue, [2, 6, 7])
    assert [(span.first, span.group) for _, span in picked] == [(2, "a"), (6, "a"), (7, "b")]
    check(queue)
    settle(queue, collect(queue).mark)
    sort(queue)
    assert queue.ready == 4
    got = numbers(queue)
    assert got == ([0, 3] if fifo else [0, 3, 4, 8]), "what was picked locks its group"


@pytest.mark.parametrize("fifo", KINDS)
def test_all_of_it_may_be_discarded(fifo: bool) -> None:
    queue = orders(fifo=fifo)
    put(queue, 6, names(6))
    assert discard(queue, [4, 5], 1_000) == 2
    assert not sort_groups(queue)
    settle(queue, collect(queue).mark)
    put(queue, 1, "after")
    assert numbers(queue) == [0, 1, 2, 3, 0]


@pytest.mark.parametrize("fifo", KINDS)
def test_what_cannot_be_read_stands_aside_with_its_groups(fifo: bool) -> None:
    queue = orders(fifo=fifo)
    put(queue, 10, ["a", "b"] * 5)
    numbers(queue)
    (chunk,) = queue.lanes[0].log.chunks.values()
    assert set_aside(queue, chunk) == 6
    assert queue.is_sorted or not sort_groups(queue)
    check(queue)
    assert [span.group for span in queue.aside[chunk]] == ["a", "b"] * 3
    bring_back(queue, chunk)
    check(queue)
    assert queue.ready == 6


@pytest.mark.parametrize("fifo", KINDS)
def test_it_expires_as_it_lies(fifo: bool) -> None:
    queue = orders(fifo=fifo, retention_ms=5_000)
    put(queue, 10, names(10))
    assert next_ms(queue) == 6_000
    numbers(queue)
    queue.oldest_ms = None
    assert next_ms(queue) == 6_000, "what is not sorted has its time too"
    queue.changes.clear()
    assert not run_due(queue, 6_000)
    assert queue.totals.expired == 6
    removed = [change for change in queue.changes if isinstance(change, Removed)]
    assert [change.ranges for change in removed] == [(4, 10)], "one run, whatever the groups"
    check(queue)


def test_purge_leaves_nothing_of_it() -> None:
    queue = orders(fifo=True)
    put(queue, 10, names(10))
    assert purge(queue, 1_000) == 10
    assert queue.is_sorted
    assert not sort_groups(queue)
    check(queue)
    settle(queue, collect(queue).mark)
    put(queue, 1, "after")
    assert numbers(queue) == [0]


@pytest.mark.parametrize("fifo", KINDS)
def test_restart_finds_all_of_it(fifo: bool) -> None:
    queue = orders(fifo=fifo)
    push(queue, batch(*[b"0"] * 10, groups=["a", "b"] * 5), 1_000)
    collected = collect(queue)
    settle(queue, collected.mark)
    applied, revived = orders(fifo=fifo), orders(fifo=fifo)
    apply(applied, [collected.changes])
    revive(revived, decode_image(encode_image(image_of(queue))))
    for each in (applied, revived):
        check(each)
        assert each.is_sorted, "that is part of the start"
        assert image_of(each) == image_of(queue)


def test_journal_that_tells_of_later_messages_first() -> None:
    """What a topic shares is told of before pushes of the same commit."""
    queue = orders(fifo=True)
    later, before = (
        Pushed(
            row=row,
            row_start=0,
            chunk=first,
            first=first,
            end=first + 2,
            created_first_ms=1_000,
            created_last_ms=1_000,
            due_ms=0,
            groups=["a", "b"],
            payload_bytes=2,
        )
        for row, first in ((1, 2), (2, 0))
    )
    apply(queue, [[later, before]])
    check(queue)
    spans = sorted((span.group or "", span.first, span.end) for span in queue.lanes[0].line.spans())
    assert spans == [("a", 0, 1), ("a", 2, 3), ("b", 1, 2), ("b", 3, 4)]
