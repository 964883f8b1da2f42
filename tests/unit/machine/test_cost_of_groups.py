"""A FIFO queue of very many groups: who looks for the next one passes over few of them. Counted as
in `test_cost`, in a world of some groups and one of ten times as many."""

from typing import Any

import pytest

from nexo.machine import discard
from nexo.machine.deadlines import run_due
from nexo.machine.fail import nack
from nexo.machine.image import decode_image, encode_image, image_of, revive
from nexo.machine.invariants import check
from nexo.machine.pop import pop
from nexo.machine.push import push
from nexo.machine.queue import Queue
from nexo.vocabulary import limits
from tests.unit.machine.orders import batch, bodies, orders, put, take
from tests.unit.machine.test_cost import LARGE, Step, commit, cost, hold

AT_ONCE = 50  # messages of a push


def pushed(queue: Queue, size: int, name: str = "group") -> Queue:
    """A message of each group, some at a time."""
    for first in range(0, size, AT_ONCE):
        groups = [f"{name} {number}" for number in range(first, first + AT_ONCE)]
        push(queue, batch(*[b"body"] * AT_ONCE, groups=groups), 1_000)
        commit(queue)
    return queue


def waiting(size: int) -> Queue:
    return pushed(orders(fifo=True), size)


def revived(size: int) -> Queue:
    queue, image = orders(fifo=True), decode_image(encode_image(image_of(waiting(size))))
    revive(queue, image)
    return queue


def locked(size: int) -> Queue:
    """All groups are in flight, and have one more message each; another has one."""
    queue = waiting(size)
    while pop(queue, AT_ONCE, 1_000).parts:
        pass
    pushed(queue, size)
    put(queue, b"body", groups="one more")
    return queue


def discarded(size: int) -> Queue:
    """All groups had their turn, and nothing of them is left; another has one."""
    queue = waiting(size)
    assert queue.has_ready()
    for first in range(0, size, AT_ONCE):
        discard.discard(queue, list(range(first, first + AT_ONCE)), 1_000)
    commit(queue)
    put(queue, b"body", groups="one more")
    return queue


WORLDS = {"waiting": waiting, "revived": revived, "locked": locked, "discarded": discarded}


@pytest.mark.parametrize("what", WORLDS)
def test_look_for_the_next_group(what: str) -> None:
    def world(size: int) -> Step:
        queue = WORLDS[what](size)

        def look() -> None:
            assert queue.has_ready()

        return look

    # Behind the last commit, and of those that have nothing left, a part of all may be passed over.
    hold(world, lines_slack=(LARGE // 8 + AT_ONCE) * 12 if what == "discarded" else AT_ONCE * 12)


def test_those_that_have_nothing_left_are_passed_over_once() -> None:
    queue = discarded(LARGE)
    assert bodies(queue, take(queue)) == [b"body"]
    assert cost(lambda: queue.has_ready()).lines < 20
    check(queue)


def test_groups_that_were_emptied_come_again() -> None:
    queue = orders(fifo=True)
    pushed(queue, 200)
    assert queue.has_ready()
    discard.discard(queue, list(range(200)), 1_000)
    commit(queue)
    pushed(queue, 200)
    check(queue)
    assert sum(map(len, [take(queue, 50).parts for _ in range(4)])) == 200


def test_group_that_was_emptied_while_it_waited_for_a_time_goes_on() -> None:
    """Nobody has looked for the next group between all of this."""
    queue = orders(fifo=True)
    push(queue, batch(b"first", b"second", groups="delayed"), 1_000)
    commit(queue)
    pushed(queue, 500)
    lease = pop(queue, 1, 1_000, one_ack=True).lease
    nack(queue, lease, 0, 1, 1_000, 5_000)
    commit(queue)
    discard.discard(queue, list(range(1, 502)), 1_000)
    commit(queue)
    run_due(queue, 7_000)
    commit(queue)
    assert bodies(queue, take(queue, now_ms=7_000)) == [b"first"]


# -- Retention --------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [{}, {"fifo": True}], ids=str)
def test_retention_takes_so_many_runs_in_one_step(settings: dict[str, Any]) -> None:
    """Every second message is gone, so each is a run, or each has a group of its own."""
    queue = orders(retention_ms=5_000, **settings)
    groups = [f"group {number}" for number in range(600)] if settings else None
    put(queue, *[b"body"] * 600, groups=groups)
    discard.discard(queue, list(range(0, 600, 2)), 1_000)
    commit(queue)
    steps = []
    while queue.depth:
        before = queue.depth
        is_more = run_due(queue, 7_000, 40)
        steps.append(before - queue.depth)
        check(queue)
        assert is_more == (queue.depth > 0)
    assert steps == [40] * 7 + [20]


def test_retention_takes_so_many_runs_of_all_priorities() -> None:
    queue = orders(retention_ms=5_000)
    for priority in range(4):
        put(queue, *[b"body"] * 60, priority=priority)
    discard.discard(queue, [seq for seq in _seqs(queue) if seq % 2], 1_000)
    commit(queue)
    before = queue.depth
    assert run_due(queue, 7_000, 40)
    assert before - queue.depth <= 40 + 3, "each priority may take one more"
    while run_due(queue, 7_000, 40):
        pass
    assert queue.depth == 0


def _seqs(queue: Queue) -> list[int]:
    found = [seq for lane in queue.lanes for seq in range(lane.log.end - 60, lane.log.end)]
    assert len(found) < limits.PEEK_MESSAGES_MAX
    return sorted(found)
