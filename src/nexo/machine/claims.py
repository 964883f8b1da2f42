"""Claims: batches of a queue for Spark, durable and repeatable.

A consumer (a streaming query) takes numbered batches, one after the other. A claimed batch is
promised to it and falls back to the line unless the consumer is heard of in time; a sealed one
(Spark has planned it) is held until Spark has committed it or an operator releases it. Asking
again for the same batch gives the same messages. Opening the claims of a consumer fences whoever
opened them before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from nexo.machine.ack import detach
from nexo.machine.chunk import Chunk
from nexo.machine.fail import come_back, doom
from nexo.machine.pop import Part, grant, part_of, select, tell
from nexo.machine.span import attempted
from nexo.vocabulary import limits
from nexo.vocabulary.batch import fitting, size_of
from nexo.vocabulary.changes import (
    ClaimAcked,
    Claimed,
    ClaimEmptied,
    ClaimForgotten,
    ClaimOpened,
    Moved,
    Removed,
    Sealed,
)
from nexo.vocabulary.errors import Fenced, InvalidArgument, LeaseLost
from nexo.vocabulary.states import Cause, EventKind, State

if TYPE_CHECKING:
    from nexo.machine.queue import Queue
    from nexo.machine.span import Span


class ClaimedBatch:
    """One numbered batch of a consumer. `lease` 0: it was given back and reads as empty."""

    __slots__ = ("lapsed", "lease", "sealed")

    def __init__(self, lease: int) -> None:
        self.lease = lease
        self.sealed = False
        self.lapsed = False


class Consumer:
    __slots__ = ("acked_through", "batches", "epoch")

    def __init__(self) -> None:
        self.epoch = 0
        self.acked_through = 0
        self.batches: dict[int, ClaimedBatch] = {}


class Claim(msgspec.Struct, frozen=True, gc=False):
    """What a claim got: batch `number` of `count` messages; 0 if there was nothing to claim."""

    number: int
    count: int
    payload_bytes: int
    missing: Chunk | None = None


def open_claims(queue: Queue, name: str) -> int:
    """Begin as the only driver of this consumer; returns the epoch that proves it."""
    if not 0 < len(name) <= limits.CONSUMER_CHARS_MAX:
        raise InvalidArgument(f"a consumer's name has 1 to {limits.CONSUMER_CHARS_MAX} characters")
    consumer = queue.claims.setdefault(name, Consumer())
    consumer.epoch += 1
    queue.changes.append(ClaimOpened(name, consumer.epoch))
    return consumer.epoch


def claim(
    queue: Queue,
    name: str,
    epoch: int,
    after: int,
    count: int,
    now_ms: int,
    timeout_ms: int,
    bytes_max: int = limits.POP_BYTES_MAX,
) -> Claim:
    """The batch after `after`, whose predecessors Spark has committed: they are acked first."""
    now_ms = queue.advance(now_ms)
    consumer = _fenced(queue, name, epoch)
    if after < consumer.acked_through:
        raise LeaseLost(
            f"batch {after + 1} of consumer {name!r} was acked already",
            "the checkpoint is older than what was committed: start with a new one",
        )
    if count < 1:
        raise InvalidArgument("a claim takes at least one message")
    ack_claims(queue, name, epoch, after, now_ms)
    number = after + 1
    known = consumer.batches.get(number)
    if known is not None and not known.lapsed:
        if not known.sealed:
            _keep(queue, known, now_ms + timeout_ms)
        return _view(queue, number, known)
    if len(consumer.batches) >= limits.CLAIM_BATCHES_MAX:
        raise InvalidArgument(f"consumer {name!r} holds too many batches unacked")
    if queue.paused:
        return Claim(0, 0, 0)
    if queue.settings.max_receive_rate is not None:
        count = min(count, queue.rate.allowed(queue.settings.max_receive_rate, now_ms))
    spans, missing = select(queue, count, bytes_max) if count else ([], None)
    if not spans:
        return Claim(0, 0, 0, missing)
    lease = grant(queue, spans, State.CLAIMED, now_ms + timeout_ms, now_ms, name, 0)
    consumer.batches[number] = batch = ClaimedBatch(lease)
    queue.changes.append(Claimed(name, number, lease))
    return _view(queue, number, batch)


def seal(queue: Queue, name: str, epoch: int, number: int, now_ms: int) -> Claim:
    """Spark has planned the batch: it is held from now on. Sealing again is a replay, which
    counts as an attempt."""
    now_ms = queue.advance(now_ms)
    consumer = _fenced(queue, name, epoch)
    batch = consumer.batches.get(number)
    if batch is None or batch.lapsed:
        raise LeaseLost(
            f"consumer {name!r} does not hold batch {number}",
            "it was acked, or lapsed before it was planned: start with a new checkpoint",
        )
    for span in spans_of(queue, batch.lease):
        if batch.sealed:
            assert span.history is not None
            span.history = attempted(span.history)
        span.state = State.SEALED
        span.deadline_ms = 0
        queue.changes.append(
            Moved(batch.lease, (span.first, span.end), State.SEALED, 0, batch.sealed)
        )
    if not batch.sealed:
        batch.sealed = True
        queue.changes.append(Sealed(name, number))
    return _view(queue, number, batch)


def keep_claims(queue: Queue, name: str, epoch: int, now_ms: int, timeout_ms: int) -> None:
    """The heartbeat of a consumer: what it has claimed but not sealed does not lapse."""
    now_ms = queue.advance(now_ms)
    for batch in _fenced(queue, name, epoch).batches.values():
        if not batch.sealed:
            _keep(queue, batch, now_ms + timeout_ms)


def ack_claims(queue: Queue, name: str, epoch: int, through: int, now_ms: int) -> int:
    """Spark has committed every batch up to `through`: their messages are gone."""
    now_ms = queue.advance(now_ms)
    consumer = _fenced(queue, name, epoch)
    numbers = [number for number in consumer.batches if number <= through]
    acked = 0
    for number in numbers:
        batch = consumer.batches.pop(number)
        for span in spans_of(queue, batch.lease):
            count = span.end - span.first
            acked += count
            if queue.events is not None:
                tell(queue, EventKind.ACKED, span, now_ms)
            queue.totals.acked += count
            queue.land(span)
            queue.bury(span.chunk, count)
            queue.changes.append(Removed(batch.lease, Cause.ACKED, (span.first, span.end)))
        queue.leases.pop(batch.lease, None)
    if through > consumer.acked_through:
        consumer.acked_through = through
        queue.changes.append(ClaimAcked(name, through))
    return acked


def release(queue: Queue, name: str, now_ms: int, dead_letter: bool = False) -> int:
    """An operator gives back what a consumer holds, or sends it to the dead letters. The
    batches read as empty from now on, so the query can go on."""
    now_ms = queue.advance(now_ms)
    consumer = queue.claims.get(name)
    released = 0
    for number, batch in consumer.batches.items() if consumer is not None else ():
        if not batch.lease:
            continue  # given back before
        for span in detach_all(queue, batch.lease):
            released += span.end - span.first
            if dead_letter:
                doom(queue, batch.lease, span, now_ms, "released by an operator")
            else:
                come_back(queue, batch.lease, span, now_ms, Cause.RELEASED, 0)
        batch.lease = 0
        queue.changes.append(ClaimEmptied(name, number, False))
    return released


def forget_claims(queue: Queue, name: str, now_ms: int) -> None:
    """A query that never comes back: release what it holds and forget its epoch."""
    if queue.claims.get(name) is not None:
        release(queue, name, now_ms)
        del queue.claims[name]
        queue.changes.append(ClaimForgotten(name))


def lapse(queue: Queue, lease: int) -> None:
    """Nothing was heard of the consumer: its unsealed batch is no longer promised to it."""
    for name, consumer in queue.claims.items():
        for number, batch in consumer.batches.items():
            if batch.lease == lease:
                batch.lease, batch.lapsed = 0, True
                queue.changes.append(ClaimEmptied(name, number, True))


def held_by(queue: Queue, name: str, epoch: int, number: int) -> list[Span]:
    """The messages of a sealed batch, for a reader; the same ones each time."""
    batch = _fenced(queue, name, epoch).batches.get(number)
    if batch is None or batch.lapsed:
        raise LeaseLost(f"consumer {name!r} does not hold batch {number}")
    return spans_of(queue, batch.lease)


def slice_of(
    spans: list[Span], start: int, count: int, bytes_max: int
) -> tuple[list[Part], Chunk | None]:
    """Messages `start` to `start + count` of a batch and about `bytes_max` bytes, but at least
    one; or the chunk that has to be read back first."""
    parts: list[Part] = []
    for span in spans:
        size = span.end - span.first
        if start >= size:
            start -= size
            continue
        if count <= 0 or bytes_max <= 0:
            break
        if span.chunk.content is None:
            return [], span.chunk
        whole = part_of(span)
        index, content = whole.index + start, whole.content
        stop = index + min(size - start, count)
        taken = max(fitting(content, index, stop, bytes_max), 0 if parts else 1)
        if taken:
            bytes_max -= size_of(content, index, index + taken)
            parts.append(
                msgspec.structs.replace(whole, first=span.first + start, count=taken, index=index)
            )
        if start + taken < size:
            break  # what follows does not fit any more
        count -= taken
        start = 0
    return parts, None


def spans_of(queue: Queue, lease: int) -> list[Span]:
    held = queue.leases.get(lease)
    return held if isinstance(held, list) else [held] if held is not None else []


def detach_all(queue: Queue, lease: int) -> list[Span]:
    spans = spans_of(queue, lease)
    return detach(queue, lease, list(spans)) if spans else []


def _keep(queue: Queue, batch: ClaimedBatch, deadline_ms: int) -> None:
    for span in spans_of(queue, batch.lease):
        span.deadline_ms = deadline_ms
        queue.changes.append(Moved(batch.lease, (span.first, span.end), State.CLAIMED, deadline_ms))
    if batch.lease:
        queue.watch(batch.lease, deadline_ms)


def _view(queue: Queue, number: int, batch: ClaimedBatch) -> Claim:
    spans = spans_of(queue, batch.lease)
    count = sum(span.end - span.first for span in spans)
    size = sum(
        span.chunk.payload_bytes * (span.end - span.first) // max(1, span.chunk.live)
        for span in spans
    )
    return Claim(number, count, size)


def _fenced(queue: Queue, name: str, epoch: int) -> Consumer:
    consumer = queue.claims.get(name)
    if consumer is None or consumer.epoch != epoch:
        raise Fenced(
            f"another driver has taken over consumer {name!r} of queue {queue.name!r}",
            "run one query for each checkpoint",
        )
    return consumer
