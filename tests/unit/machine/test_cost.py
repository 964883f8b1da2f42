"""No rule costs more because a lease is long, a backlog large or a history past.

Work is counted, never timed: the lines of the rules that run, and the memory that is taken for a
moment, which is where a copy or a sort of something large shows. Each step is counted in a small
world and in one ten times as large.
"""

import gc
import sys
import tracemalloc
from collections.abc import Callable
from types import FrameType
from typing import Any, NamedTuple

import pytest

from nexo import machine
from nexo.machine.ack import ack, extend, received
from nexo.machine.expire import expire
from nexo.machine.fail import give_back, nack
from nexo.machine.pop import pop
from nexo.machine.push import push
from nexo.machine.queue import Queue
from nexo.machine.settle import collect, settle
from tests.unit.machine.orders import batch, orders

SMALL, LARGE = 500, 5_000
LINES_SLACK = 40  # a few steps more in a tree of ten times as many leaves
BYTES_SLACK = 16 * 1024  # far below the copy of a list of LARGE
ROOM = next(iter(machine.__path__))

Step = Callable[[], object]
World = Callable[[int], Step]


class Cost(NamedTuple):
    lines: int
    bytes: int


def cost(step: Step) -> Cost:
    """What a step takes. It runs once."""
    lines = 0

    def count(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal lines
        if not frame.f_code.co_filename.startswith(ROOM):
            return None
        lines += event == "line"
        return count

    gc.collect()
    tracemalloc.start()
    before, tracer = tracemalloc.get_traced_memory()[0], sys.gettrace()
    sys.settrace(count)
    try:
        step()
    finally:
        sys.settrace(tracer)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return Cost(lines, peak - before)


def hold(world: World, small: int = SMALL, large: int = LARGE) -> None:
    """A step costs in a large world what it costs in a small one."""
    less, more = cost(world(small)), cost(world(large))
    assert more.lines <= 1.5 * less.lines + LINES_SLACK, f"{less} at {small}, {more} at {large}"
    assert more.bytes <= 1.5 * less.bytes + BYTES_SLACK, f"{less} at {small}, {more} at {large}"


def commit(queue: Queue) -> None:
    """Without the invariants: they look at everything."""
    settle(queue, collect(queue).mark)


def filled(count: int, **settings: Any) -> Queue:
    queue = orders(**settings)
    groups = [f"group {number % 50}" for number in range(count)] if settings.get("fifo") else None
    push(queue, batch(*[b"body"] * count, groups=groups), 1_000)
    commit(queue)
    return queue


# -- Leases -----------------------------------------------------------------------------------

SAY: dict[str, Callable[[Queue, int, int], object]] = {
    "received": lambda queue, lease, seq: received(queue, lease, seq, seq + 1, 1_001),
    "extend": lambda queue, lease, seq: extend(queue, lease, seq, seq + 1, 500, 1_001),
    "ack": lambda queue, lease, seq: ack(queue, lease, seq, seq + 1, 1_001),
    "nack": lambda queue, lease, seq: nack(queue, lease, seq, seq + 1, 1_001),
    "give back": lambda queue, lease, seq: give_back(queue, lease, seq, seq + 1, 1_001),
}


@pytest.mark.parametrize("settings", [{}, {"fifo": True}, {"max_attempts": 1}], ids=str)
@pytest.mark.parametrize("what", SAY)
def test_word_on_one_message_of_a_long_lease(what: str, settings: dict[str, Any]) -> None:
    def world(size: int) -> Step:
        queue = filled(size, **settings)
        lease = pop(queue, size, 1_000, one_ack=what != "received").lease
        # Taken apart first: some are other than the rest, some out of attempts.
        for seq in range(0, size, 3):
            SAY[what if what == "received" else "extend"](queue, lease, seq)
        for seq in range(1, size, 3) if what != "received" else ():
            nack(queue, lease, seq, seq + 1, 1_001)
        commit(queue)

        def step() -> None:
            for seq in (2, size // 6 * 3 + 2, size // 3 * 3 - 1):
                SAY[what](queue, lease, seq)
            commit(queue)

        return step

    hold(world)


def test_one_of_many_deadlines_of_a_lease_passes() -> None:
    def world(size: int) -> Step:
        queue = filled(size)
        lease = pop(queue, size, 1_000, one_ack=True).lease
        for seq in range(size):
            extend(queue, lease, seq, seq + 1, 1_000 + seq, 1_000)
        commit(queue)
        return lambda: expire(queue, 2_000)

    hold(world)
