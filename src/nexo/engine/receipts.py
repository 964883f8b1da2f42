"""What consumers say of many deliveries at once. Each range is taken for itself: what cannot be
applied is told, and the rest is done."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nexo.machine import ack as acks
from nexo.machine import fail, life
from nexo.vocabulary.errors import NexoError, StaleReceipt

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable

    from nexo.engine.queue_actor import QueueActor

    Ranges = Iterable[tuple[int, int, int]]  # lease, first, end
    Refused = list[tuple[int, int, int, str]]  # the same, and the code of the error


def ack(actor: QueueActor, ranges: Ranges) -> asyncio.Future[Refused]:
    """Processing acks; the future has what was refused, once the rest is on disk."""
    queue, now_ms = actor.queue, actor.now_ms()
    refused = _each(ranges, lambda lease, first, end: acks.ack(queue, lease, first, end, now_ms))
    return actor.acked(refused)


def received(actor: QueueActor, ranges: Ranges) -> Refused:
    """Reception acks; they wait for nothing."""
    queue, now_ms = actor.queue, actor.now_ms()
    refused = _each(
        ranges, lambda lease, first, end: acks.received(queue, lease, first, end, now_ms)
    )
    actor.changed_lazily()
    return refused


def nack(
    actor: QueueActor, ranges: Ranges, delay_ms: int | None, reason: str
) -> asyncio.Future[Refused]:
    queue, now_ms = actor.queue, actor.now_ms()
    return actor.changed(
        _each(
            ranges,
            lambda lease, first, end: fail.nack(queue, lease, first, end, now_ms, delay_ms, reason),
        )
    )


def extend(actor: QueueActor, ranges: Ranges, timeout_ms: int) -> asyncio.Future[Refused]:
    queue, now_ms = actor.queue, actor.now_ms()
    return actor.changed(
        _each(
            ranges,
            lambda lease, first, end: acks.extend(queue, lease, first, end, timeout_ms, now_ms),
        )
    )


def give_back(actor: QueueActor, ranges: Ranges) -> asyncio.Future[Refused]:
    queue, now_ms = actor.queue, actor.now_ms()
    return actor.changed(
        _each(ranges, lambda lease, first, end: fail.give_back(queue, lease, first, end, now_ms))
    )


def take_back(actor: QueueActor, lease: int) -> None:
    """Nobody will say anything of a delivery: it goes back, unless its reception was acked."""
    spans = actor.queue.leases.get(lease, ())
    unseen = [(lease, span.first, span.end) for span in spans if span.state in life.RECEIVABLE]
    if unseen:
        returned = give_back(actor, unseen)
        returned.add_done_callback(lambda done: done.cancelled() or done.exception())


def _each(ranges: Ranges, apply: Callable[[int, int, int], list[int]]) -> Refused:
    refused: Refused = []
    for lease, first, end in ranges:
        try:
            applied = apply(lease, first, end)
        except NexoError as error:
            refused.append((lease, first, end, error.code))
            continue
        if len(applied) != 2 or applied[0] != first or applied[1] != end:
            refused += _rest(lease, first, end, applied)
    return refused


def _rest(lease: int, first: int, end: int, applied: list[int]) -> Refused:
    """What of a range was not applied: it was outdated."""
    rest: Refused = []
    for low, high in sorted(zip(applied[::2], applied[1::2], strict=True)):
        if first < low:
            rest.append((lease, first, low, StaleReceipt.code))
        first = high
    if first < end:
        rest.append((lease, first, end, StaleReceipt.code))
    return rest
