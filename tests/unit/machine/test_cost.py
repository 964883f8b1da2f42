"""No rule costs more because a lease is long, a backlog large or a history past.

Work is counted, never timed: the lines of the rules that run, and the memory that is taken for a
moment, which is where a copy or a sort of something large shows. Each step is counted in a small
world and in one ten times as large.
"""

import gc
import random
import sys
import tracemalloc
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any, NamedTuple

import pytest

from nexo import machine
from nexo.machine import late_receipts, log, peek
from nexo.machine.ack import ack, extend, received
from nexo.machine.compact import copy_forward, is_sparse
from nexo.machine.deadlines import next_ms, run_due
from nexo.machine.fail import give_back, nack
from nexo.machine.image import decode_image, encode_image, image_of, revive
from nexo.machine.invariants import check
from nexo.machine.log import Place
from nexo.machine.pop import Delivery, pop
from nexo.machine.purge import prepare, purge, take_apart
from nexo.machine.push import push, push_one, push_shared
from nexo.machine.queue import Queue
from nexo.machine.settle import collect, settle, sort_groups
from nexo.vocabulary import limits
from nexo.vocabulary.limits import SMALL_PUSH_MESSAGES
from tests.unit.machine.orders import batch, orders
from tests.work import steps_of

SMALL, LARGE = 500, 5_000
LINES_SLACK = 40  # a few steps more in a tree of ten times as many leaves
SWEEP_LINES = 300  # of outdated deadlines that are looked at along the way
BYTES_SLACK = 16 * 1024  # far below the copy of a list of LARGE
ROOM = next(iter(machine.__path__))

Step = Callable[[], object]
World = Callable[[int], Step]


MEASURED_AGAIN = 2


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


def hold(
    world: World, small: int = SMALL, large: int = LARGE, lines_slack: int = LINES_SLACK
) -> None:
    """A step costs in a large world what it costs in a small one. Other threads of the process (the
    brokers of other tests) may take memory meanwhile, but not each time."""
    less, more = cost(world(small)), cost(world(large))
    for _ in range(MEASURED_AGAIN):
        if more.bytes <= 1.5 * less.bytes + BYTES_SLACK:
            break
        less, more = cost(world(small)), cost(world(large))
    assert more.lines <= 1.5 * less.lines + lines_slack, f"{less} at {small}, {more} at {large}"
    assert more.bytes <= 1.5 * less.bytes + BYTES_SLACK, f"{less} at {small}, {more} at {large}"


def test_a_single_message_takes_the_short_way() -> None:
    """What a consumer of one message at a time costs: a lease that is one run needs no cutting, and
    a message without columns none of them cut."""
    queue = orders()
    for _ in range(3_000):
        push_one(queue, b"x" * 100, 1)
    settle(queue, collect(queue).mark)
    deliveries: list[Delivery] = []

    def of(step: Callable[[int], object]) -> float:
        return steps_of(lambda: [step(number) for number in range(1_000)]) / 1_000

    def ends(number: int) -> tuple[int, int, int]:
        part = deliveries[number].parts[0]
        return deliveries[number].lease, part.first, part.first + 1

    took = {
        "pop": of(lambda _: deliveries.append(pop(queue, 1, 1))),
        "batch": of(lambda number: deliveries[number].parts[0].batch()),
        "received": of(lambda number: received(queue, *ends(number), 1)),
        "ack": of(lambda number: ack(queue, *ends(number), 1)),
    }
    most = {"pop": 650, "batch": 180, "received": 300, "ack": 250}
    assert all(took[step] <= most[step] for step in most), took


def commit(queue: Queue) -> None:
    """Without the invariants: they look at everything. All that came is sorted by group."""
    settle(queue, collect(queue).mark)
    while sort_groups(queue):
        pass


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
def test_word_on_one_message_of_a_long_lease(
    what: str, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "POP_RUNS_MAX", LARGE)

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

    hold(world, lines_slack=SWEEP_LINES)


def test_one_of_many_deadlines_of_a_lease_passes() -> None:
    def world(size: int) -> Step:
        queue = filled(size)
        lease = pop(queue, size, 1_000, one_ack=True).lease
        for seq in range(size):
            extend(queue, lease, seq, seq + 1, 1_000 + seq, 1_000)
        commit(queue)
        return lambda: run_due(queue, 2_000)

    hold(world)


def test_deadline_after_which_many_are_swept() -> None:
    def world(size: int) -> Step:
        queue = filled(size)
        leases = [pop(queue, 1, 1_000, one_ack=True).lease for _ in range(size)]
        first, number = queue.lanes[0].log.settled - size, 0
        while queue.unswept or len(queue.deadlines) < queue.deadlines_max:
            seq = first + number % size
            extend(queue, leases[number % size], seq, seq + 1, 1_000 + number, 1_000)
            number += 1
        commit(queue)
        return lambda: extend(queue, leases[0], first, first + 1, 500, 1_001)

    hold(world, 1_500, 6_000)


def test_many_outdated_deadlines_pass() -> None:
    def world(size: int) -> Step:
        queue = filled(size)
        for _ in range(size):
            lease = pop(queue, 1, 1_000, one_ack=True).lease
            extend(queue, lease, 0, 1 << 62, 500_000, 1_000)
        commit(queue)
        return lambda: run_due(queue, 100_000, 50)

    hold(world, 1_500, 6_000)


# -- Backlogs ---------------------------------------------------------------------------------


def backlog(size: int, **settings: Any) -> Queue:
    """Each message is a span by itself: it came at a time of its own, and waits for another."""
    queue = orders(**settings)
    for number in range(size):
        push(queue, batch(b"body", delay_ms=size - number), 1_000 + number)
        if number % 100 == 99:
            commit(queue)
    commit(queue)
    return queue


def in_flight(size: int) -> Queue:
    queue = backlog(size)
    run_due(queue, 100_000)
    for number in range(size):
        pop(queue, 1, 100_000 + number, one_ack=True)
    commit(queue)
    return queue


def failed(size: int) -> Queue:
    """Each message in line has a history of its own."""
    queue = in_flight(size)
    run_due(queue, 1_000_000)
    commit(queue)
    return queue


PLACES: dict[str, Callable[[int], Queue]] = {
    "scheduled": backlog,
    "in line": failed,
    "in flight": in_flight,
    "grouped": lambda size: filled(size, fifo=True),
}


@pytest.mark.parametrize("place", PLACES)
def test_peek_at_the_first_of_many(place: str) -> None:
    def world(size: int) -> Step:
        queue = PLACES[place](size)
        return lambda: peek.glance(queue, 3)

    hold(world, 1_500, 15_000 if place == "grouped" else 6_000)


@pytest.mark.parametrize("place", ["scheduled", "in line", "in flight"])
def test_late_word_on_one_of_many(place: str) -> None:
    def world(size: int) -> Step:
        queue = PLACES[place](size)
        first = queue.lanes[0].log.settled - size

        def step() -> None:
            for seq in (first, first + size // 2, first + size - 1):
                assert late_receipts.discard(queue, seq, 1_000_000)
            commit(queue)

        return step

    hold(world, 1_500, 6_000)


def test_message_of_one_of_many_priorities() -> None:
    def world(size: int) -> Step:
        queue = orders()
        for priority in range(size):
            push(queue, batch(b"body", b"body", priority=priority), 1_000)
        commit(queue)

        def step() -> None:
            push_one(queue, b"body", 1_001, 3)
            commit(queue)
            next_ms(queue)
            delivery = pop(queue, 1, 1_001, one_ack=True)
            first = delivery.parts[0].first
            ack(queue, delivery.lease, first, first + 1, 1_001)
            nack(queue, pop(queue, 1, 1_001, one_ack=True).lease, 0, 1 << 62, 1_001)
            queue.has_ready()
            next_ms(queue)
            commit(queue)

        next_ms(queue)
        return step

    hold(world, 8, 256)


def test_commit_of_many_delays_costs_what_it_holds() -> None:
    """Ten times as many batches may cost ten times as much, not a hundred times."""

    def world(size: int) -> Step:
        queue = orders()
        for number in range(size):
            delays = [1_000 + 32 * number + each for each in range(32)]
            push(queue, batch(*[b"body"] * 32, delay_ms=delays), 1_000)
        return lambda: commit(queue)

    less, more = cost(world(20)), cost(world(200))
    assert more.lines <= 12 * less.lines, f"{less} for 20 batches, {more} for 200"


def test_commit_of_many_delays_looks_at_batches_not_at_messages() -> None:
    def world(size: int) -> Step:
        queue = orders()
        for number in range(20):
            delays = [1_000 + size * number + each for each in range(size)]
            push(queue, batch(*[b"body"] * size, delay_ms=delays), 1_000)
        return lambda: commit(queue)

    less, more = cost(world(40)), cost(world(400))
    assert more.lines <= less.lines, f"{less} for 40 messages a batch, {more} for 400"


def test_look_at_retention_behind_many_locked_groups() -> None:
    def world(size: int) -> Step:
        queue = filled(size, fifo=True, retention_ms=5_000)
        pop(queue, 50, 1_000, one_ack=True)
        next_ms(queue)

        def step() -> None:
            push_one(queue, b"body", 2_000)
            commit(queue)
            next_ms(queue)
            run_due(queue, 3_000)

        return step

    hold(world)


# -- Purge ------------------------------------------------------------------------------------

PURGED = {**PLACES, "keys": lambda size: keyed(size), "chunks": lambda size: chunked(size)}


@pytest.mark.parametrize("what", PURGED)
def test_purge_leaves_what_was_there_to_be_taken_apart_later(what: str) -> None:
    def world(size: int) -> Step:
        queue = PURGED[what](size)
        return lambda: purge(queue, 2_000_000)

    less, more = cost(world(600)), cost(world(1_800))
    assert more.lines <= less.lines + LINES_SLACK, f"{less} at 600, {more} at 1,800"


@pytest.mark.parametrize("what", PURGED)
def test_purge_looks_at_no_chunk_that_it_was_prepared_for(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of very many chunks a look at each is too long for one step, whatever language it is in."""
    queue = PURGED[what](600)
    rows = Counter(
        row for lane in queue.lanes for chunk in lane.log.chunks.values() for row in chunk.rows
    )
    while prepare(queue, 7):
        pass
    commit(queue)
    monkeypatch.setattr(log, "_rows", lambda chunk: pytest.fail("a chunk is looked at"))
    purge(queue, 2_000_000)
    assert Counter(queue.dropped_rows) == rows


@pytest.mark.parametrize("seed", range(30))
def test_purge_that_was_prepared_drops_what_is_there_then(seed: int) -> None:
    """Whatever came, went or was copied forward while it was prepared."""
    chance = random.Random(seed)
    queue = orders()
    times = iter(range(1_000, 2_000_000))

    def live() -> None:
        now_ms = next(times)
        for _ in range(chance.randrange(4)):
            kind = chance.choice(["push", "shared", "shared", "pop", "pop"])
            if kind == "push":
                push(queue, batch(*[b"x" * 3_000] * chance.choice([1, 33, 40])), now_ms)
            elif kind == "shared":  # of one row, as a filtered binding takes them
                row = next(queue.row_numbers)
                for start in range(9):
                    push_shared(queue, batch(b"x" * 40_000), Place(row, 2 * start, False), now_ms)
            else:
                delivery = pop(queue, chance.choice([1, 3, 30]), now_ms, one_ack=True)
                for part in delivery.parts:
                    ack(queue, delivery.lease, part.first, part.first + part.count, now_ms)
        commit(queue)
        for lane in queue.lanes:
            for chunk in list(lane.log.chunks.values()):
                if chunk.content is not None and is_sparse(lane, chunk):
                    copy_forward(queue, chunk)
        commit(queue)

    for _ in range(20):
        live()
    most = chance.choice([2, 1_000, 1_000])  # it may also be purged before it is prepared whole
    while most and prepare(queue, 2):
        live()
        most -= 1
    live()
    commit(queue)
    held = sorted(
        row for lane in queue.lanes for chunk in lane.log.chunks.values() for row in chunk.rows
    )
    purge(queue, next(times))
    assert sorted(queue.dropped_rows) == held
    check(queue)


def test_a_chunk_that_goes_unseen_takes_nothing_from_another_of_its_row() -> None:
    queue = orders()
    for start in range(4):
        push_shared(queue, batch(b"x" * 40_000), Place(7, 2 * start, False), 1_000)
    commit(queue)
    assert prepare(queue, 2), "the last two of four are looked at"
    delivery = pop(queue, 1, 1_000, one_ack=True)
    ack(queue, delivery.lease, 0, 1, 1_000)
    commit(queue)
    assert not prepare(queue, 2)
    purge(queue, 1_000)
    assert queue.dropped_rows == [7, 7, 7]


@pytest.mark.parametrize("what", PURGED)
def test_what_a_purge_left_is_taken_apart_some_at_a_time(what: str) -> None:
    queue = PURGED[what](200)  # ten steps: each is counted behind a collection of garbage
    chunks = [chunk for lane in queue.lanes for chunk in lane.log.chunks.values()]
    purge(queue, 2_000_000)
    push_one(queue, b"later", 2_000_000)
    commit(queue)
    while True:
        most = cost(lambda: take_apart(queue, 20))
        assert most.lines < 20 * 20, f"{most} for 20 things"
        if not take_apart(queue, 20):
            break
    assert not queue.purged
    assert not any(chunk.content for chunk in chunks), "a content is held on to"
    assert pop(queue, 10, 2_000_000).count == 1
    check(queue)


# -- Memory -----------------------------------------------------------------------------------


def held_bytes(make: Callable[[], object]) -> int:
    """What is kept of something, besides contents: those leave memory when they are too much."""
    gc.collect()
    tracemalloc.start()
    kept = make()
    gc.collect()
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert kept is not None
    return held


def evicted(queue: Queue) -> Queue:
    for lane in queue.lanes:
        for chunk in list(lane.log.resident.values()):
            if lane.log.evictable(chunk):
                lane.log.evict(chunk)
    return queue


@pytest.mark.parametrize("fifo", [True, False])
@pytest.mark.parametrize("is_revived", [False, True])
def test_backlog_of_groups_is_little_more_than_its_numbers(fifo: bool, is_revived: bool) -> None:
    count, groups = 20_000, 200

    def make() -> Queue:
        queue = orders(fifo=fifo)
        for number in range(0, count, 100):
            names = [f"group {each % groups}" for each in range(number, number + 100)]
            push(queue, batch(*[b""] * 100, groups=names), 1_000)
            commit(queue)
        if is_revived:
            image = decode_image(encode_image(image_of(queue)))
            queue = orders(fifo=fifo)
            revive(queue, image)
        return evicted(queue)

    assert held_bytes(make) < 60 * count


def keyed(size: int) -> Queue:
    queue = orders(deduplication="id")
    keys = [f"an id of usual length {number:06}" for number in range(size)]
    push(queue, batch(*[b""] * size, deduplication_ids=keys), 1_000)
    commit(queue)
    return queue


def chunked(size: int) -> Queue:
    queue = orders()
    for number in range(size):
        push(queue, batch(*[b""] * SMALL_PUSH_MESSAGES), 1_000 + number)
        commit(queue)
    return queue


HELD = {**PLACES, "keys": keyed, "chunks": chunked}


@pytest.mark.parametrize("what", HELD)
def test_bookkeeping_is_about_what_it_says(what: str) -> None:
    known: list[int] = []

    def make() -> Queue:
        queue = evicted(HELD[what](2_000))
        known.append(queue.bookkeeping_bytes)
        return queue

    held = held_bytes(make)
    assert 0.6 * held < known[0] < 1.5 * held, f"{known[0]} told, {held} held"
