"""The rules alone: no journal, no event loop. What a batch and what a single message costs."""

from __future__ import annotations

from itertools import count
from time import perf_counter

from bench.result import Result
from nexo.engine.process import tune_process
from nexo.machine.ack import ack
from nexo.machine.pop import pop
from nexo.machine.push import push, push_one
from nexo.machine.queue import Queue
from nexo.machine.settle import collect, settle
from nexo.vocabulary.batch import batch_of
from nexo.vocabulary.settings import QueueSettings

BODY = bytes(100)
ROUND = 500  # operations between two commits, as an engine under load would have them


def run() -> list[Result]:
    tune_process()
    return [*_batches(1_000, 4_000), *_singles(400_000), *_backlog()]


def new_queue() -> Queue:
    return Queue("bench", QueueSettings(), 1, count(1), 1 << 32)


def commit(queue: Queue) -> None:
    settle(queue, collect(queue).mark)


def _batches(size: int, rounds: int) -> list[Result]:
    queue, batch = new_queue(), batch_of([BODY] * size)
    started = perf_counter()
    for number in range(rounds):
        push(queue, batch, number)
    pushed = perf_counter()
    commit(queue)
    taking = perf_counter()
    for number in range(rounds):
        delivery = pop(queue, size, number, one_ack=True)
        part = delivery.parts[0]
        ack(queue, delivery.lease, part.first, part.first + part.count, number)
    acked = perf_counter()
    assert queue.depth == 0
    total = size * rounds
    return [
        Result(f"rules: push, batches of {size}", total / (pushed - started), "msg/s", 50e6),
        Result(f"rules: pop and ack, batches of {size}", total / (acked - taking), "msg/s", 20e6),
    ]


def _singles(total: int) -> list[Result]:
    queue = new_queue()
    pushing = popping = acking = 0.0
    for _ in range(total // ROUND):
        started = perf_counter()
        for _ in range(ROUND):
            push_one(queue, BODY, 1)
        pushing += perf_counter() - started
        commit(queue)
    for _ in range(total // ROUND):
        started = perf_counter()
        taken = [pop(queue, 1, 1, one_ack=True) for _ in range(ROUND)]
        popped = perf_counter()
        for delivery in taken:
            first = delivery.parts[0].first
            ack(queue, delivery.lease, first, first + 1, 1)
        acking += perf_counter() - popped
        popping += popped - started
        commit(queue)
    assert queue.depth == 0
    return [
        Result(f"rules: {what}, one at a time", total / seconds, "msg/s", 250e3)
        for what, seconds in (("push", pushing), ("pop", popping), ("ack", acking))
    ]


def _backlog() -> list[Result]:
    """What a pop costs must not depend on how much waits behind it."""
    costs = {}
    for backlog in (1_000, 10_000_000):
        queue, batch = new_queue(), batch_of([BODY] * 1_000)
        for _ in range(backlog // 1_000):
            push(queue, batch, 1)
        commit(queue)
        fastest = float("inf")
        for _ in range(20):
            started = perf_counter()
            for _ in range(50):
                pop(queue, 1, 1, one_ack=True)
            fastest = min(fastest, perf_counter() - started)
            commit(queue)
        costs[backlog] = fastest / 50
    ratio = costs[10_000_000] / costs[1_000]
    return [Result("rules: cost of a pop, backlog of 10M over 1k", ratio, "ratio", 1.3, "most")]
