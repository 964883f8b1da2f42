"""A queue named "orders" and the few words that examples need to speak about it."""

from __future__ import annotations

from itertools import count
from typing import Any

import msgspec

from nexo.machine import invariants
from nexo.machine.pop import Delivery, messages, pop
from nexo.machine.push import push
from nexo.machine.queue import Queue
from nexo.machine.settle import collect, settle, sort_groups
from nexo.vocabulary.batch import Batch, batch_of
from nexo.vocabulary.settings import QueueSettings

INCARNATION = 7
FIRST_LEASE = 1 << 32


def orders(**settings: Any) -> Queue:
    return Queue("orders", QueueSettings(**settings), INCARNATION, count(1), FIRST_LEASE)


def batch(*bodies: bytes, **columns: Any) -> Batch:
    return msgspec.structs.replace(batch_of(list(bodies)), **columns)


def commit(queue: Queue) -> None:
    settle(queue, collect(queue).mark)
    invariants.check(queue)
    while sort_groups(queue):
        invariants.check(queue)


def put(queue: Queue, *bodies: bytes, now_ms: int = 1_000, **columns: Any) -> list[int]:
    """Push and commit; the numbers of the messages."""
    seqs = push(queue, batch(*bodies, **columns), now_ms).seqs()
    commit(queue)
    return seqs


def take(queue: Queue, count: int = 10, now_ms: int = 1_000, **wishes: Any) -> Delivery:
    """Pop for a consumer with one ack."""
    delivery = pop(queue, count, now_ms, **{"one_ack": True, **wishes})
    invariants.check(queue)
    return delivery


def bodies(queue: Queue, delivery: Delivery) -> list[bytes]:
    return [message.body for message in messages(queue, delivery)]
