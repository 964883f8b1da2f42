"""Claims: batches of a queue for Spark, durable and repeatable.

A consumer (a streaming query) takes numbered batches, one after the other. A claimed batch is
promised to it and falls back to the line unless the consumer is heard of in time; a sealed one
(Spark has planned it) is held until Spark has committed it or an operator releases it. Asking
again for the same batch gives the same messages. Opening the claims of a consumer fences whoever
opened them before.

A claim goes by counts and sizes: no content is needed before the batch is read. What cannot be
read then is passed over. It keeps its place in the batch, so that the slices that others read stay
what they are, and the ack of the batch does not remove it: it goes back to the queue, aside.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from nexo.machine import life
from nexo.machine.ack import attach, detach
from nexo.machine.events import add_event
from nexo.machine.fail import come_back, mark_doomed
from nexo.machine.pop import Part, lease_out, part_of
from nexo.machine.span import attempted, by_first, ranges_of
from nexo.machine.unreadable import set_aside
from nexo.vocabulary import limits
from nexo.vocabulary.batch import fitting, size_of
from nexo.vocabulary.changes import (
    ClaimAcked,
    Claimed,
    ClaimEmptied,
    ClaimForgotten,
    ClaimOpened,
    DeadlineSet,
    Removed,
    Sealed,
)
from nexo.vocabulary.errors import Fenced, InvalidArgument, LeaseLost
from nexo.vocabulary.fields import check_allowed
from nexo.vocabulary.identity import priority_of
from nexo.vocabulary.states import Cause, EventKind, State

if TYPE_CHECKING:
    from nexo.machine.chunk import Chunk
    from nexo.machine.queue import Queue
    from nexo.machine.span import Span


_PASSED_OVER_MS = -1  # the deadline of sealed messages that could not be read; others have none


class ClaimedBatch:
    """One numbered batch of a consumer. `lease` 0: it was given back and reads as empty."""

    __slots__ = ("lapsed", "lease", "sealed", "since_ms")

    def __init__(self, lease: int, since_ms: int) -> None:
        self.lease = lease
        self.since_ms = since_ms  # when it was claimed
        self.sealed = False
        self.lapsed = False


class Consumer:
    __slots__ = ("acked_through", "batches", "epoch", "seen_ms")

    def __init__(self) -> None:
        self.epoch = 0
        self.acked_through = 0
        self.seen_ms = 0  # when it last opened, claimed or acked; while it only asks, about a day
        self.batches: dict[int, ClaimedBatch] = {}

    def held(self) -> list[ClaimedBatch]:
        """The batches with messages."""
        return [batch for batch in self.batches.values() if batch.lease]

    def is_over(self, now_ms: int) -> bool:
        """Whether it holds nothing and was not heard of for so long that it can be forgotten."""
        return self.seen_ms <= now_ms - limits.CLAIM_CONSUMER_IDLE_MS and not self.held()


class Claim(msgspec.Struct, frozen=True, gc=False):
    """What a claim got: batch `number` of `count` messages; 0 if there was nothing to claim."""

    number: int
    count: int
    payload_bytes: int  # roughly


class Slice(NamedTuple):
    """Messages of a batch, up to its message `next`; or the runs of it that have to be read back
    first."""

    parts: list[Part]
    next: int
    missing: list[Span]


def open_claims(queue: Queue, name: str, now_ms: int = 0) -> int:
    """Begin as the only driver of this consumer; returns the epoch that proves it. Others that
    were not heard of for very long, and hold nothing, are forgotten."""
    if not 0 < len(name) <= limits.CONSUMER_CHARS_MAX:
        raise InvalidArgument(f"a consumer's name has 1 to {limits.CONSUMER_CHARS_MAX} characters")
    now_ms = queue.advance(now_ms)
    for other in [each for each, known in queue.claims.items() if known.is_over(now_ms)]:
        if other != name:
            forget_claims(queue, other, now_ms)
    if name not in queue.claims and len(queue.claims) >= limits.CLAIM_CONSUMERS_MAX:
        raise InvalidArgument(
            f"queue {queue.name!r} has the maximum of {limits.CLAIM_CONSUMERS_MAX} Spark consumers",
            "reuse the checkpoint of an earlier query, or use another queue",
        )
    consumer = queue.claims.setdefault(name, Consumer())
    consumer.epoch += 1
    _see(queue, name, consumer, now_ms)
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
            "the checkpoint is out of date: start with a new one",
        )
    if count < 1:
        raise InvalidArgument("a claim takes at least one message")
    check_allowed("after", after, 0, limits.INTEGER_MAX - 1)
    check_allowed("timeout_ms", timeout_ms, 0, limits.TIMEOUT_MS_MAX)
    ack_claims(queue, name, epoch, after, now_ms)
    number = after + 1
    known = consumer.batches.get(number)
    if known is not None and not known.lapsed:
        if not known.sealed:
            _keep(queue, known, now_ms + timeout_ms)
        return _view(queue, number, known)
    if len(consumer.batches) >= limits.CLAIM_BATCHES_MAX:
        raise InvalidArgument(f"consumer {name!r} holds too many batches unacked")
    if consumer.seen_ms <= now_ms - limits.CLAIM_SEEN_MS:
        _see(queue, name, consumer, now_ms)
    if queue.paused:
        return Claim(0, 0, 0)
    if queue.settings.max_receive_rate is not None:
        count = min(count, queue.rate.allowed(queue.settings.max_receive_rate, now_ms))
    spans = _select(queue, count, bytes_max) if count else []
    if not spans:
        return Claim(0, 0, 0)
    lease = lease_out(queue, spans, State.CLAIMED, now_ms + timeout_ms, now_ms, name, 0)
    consumer.batches[number] = batch = ClaimedBatch(lease, now_ms)
    consumer.seen_ms = now_ms
    queue.changes.append(Claimed(name, number, lease, now_ms))
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
            "it was acked, or its claim expired: start with a new checkpoint",
        )
    spans = spans_of(queue, batch.lease)
    for span in spans:
        if batch.sealed:
            assert span.history is not None
            span.history = attempted(span.history)
        else:
            assert span.state in life.SEALABLE, f"{span} is sealed"
        span.state = State.SEALED
        span.deadline_ms = 0
    if spans:
        queue.changes.append(
            DeadlineSet(batch.lease, ranges_of(spans), State.SEALED, 0, batch.sealed)
        )
    if not batch.sealed:
        batch.sealed = True
        queue.changes.append(Sealed(name, number))
    return _view(queue, number, batch)


def keep_claims(queue: Queue, name: str, epoch: int, now_ms: int, timeout_ms: int) -> None:
    """The heartbeat of a consumer: what it has claimed but not sealed does not lapse."""
    check_allowed("timeout_ms", timeout_ms, 0, limits.TIMEOUT_MS_MAX)
    now_ms = queue.advance(now_ms)
    for batch in _fenced(queue, name, epoch).batches.values():
        if not batch.sealed:
            _keep(queue, batch, now_ms + timeout_ms)


def ack_claims(queue: Queue, name: str, epoch: int, through: int, now_ms: int) -> int:
    """Spark has committed every batch up to `through`: their messages are gone."""
    check_allowed("number", through, 0, limits.INTEGER_MAX)
    now_ms = queue.advance(now_ms)
    consumer = _fenced(queue, name, epoch)
    numbers = [number for number in consumer.batches if number <= through]
    acked = 0
    for number in numbers:
        batch = consumer.batches.pop(number)
        held = spans_of(queue, batch.lease)
        unread = [span for span in held if span.deadline_ms == _PASSED_OVER_MS]
        spans = [span for span in held if span.deadline_ms != _PASSED_OVER_MS]
        for span in spans:
            assert span.state in life.CLAIM_ACKABLE, f"{span} is acked with its batch"
            count = span.end - span.first
            acked += count
            if queue.events is not None:
                add_event(queue, EventKind.ACKED, span, now_ms)
            queue.totals.acked += count
            queue.end_flight(span)
            queue.remove(span.chunk, count)
        if spans:
            queue.changes.append(Removed(batch.lease, Cause.ACKED, ranges_of(spans)))
        queue.leases.pop(batch.lease, None)
        for span in unread:
            come_back(queue, batch.lease, span, now_ms, Cause.RELEASED, 0)
        for chunk in {span.chunk: None for span in unread if span.chunk.content is None}:
            set_aside(queue, chunk)
    if through > consumer.acked_through:
        consumer.acked_through, consumer.seen_ms = through, now_ms
        queue.changes.append(ClaimAcked(name, through, now_ms))
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
            assert span.state in life.RELEASABLE, f"{span} is released"
            released += span.end - span.first
            if dead_letter:
                mark_doomed(queue, batch.lease, span, now_ms, "released by an operator")
            else:
                come_back(queue, batch.lease, span, now_ms, Cause.RELEASED, 0)
        batch.lease = 0
        queue.changes.append(ClaimEmptied(name, number, False))
    return released


def forget_claims(queue: Queue, name: str, now_ms: int, dead_letter: bool = False) -> int:
    """A query that never comes back: release what it holds and forget its epoch. Returns how many
    messages it held."""
    if name not in queue.claims:
        return 0
    released = release(queue, name, now_ms, dead_letter)
    del queue.claims[name]
    queue.changes.append(ClaimForgotten(name))
    return released


def _see(queue: Queue, name: str, consumer: Consumer, now_ms: int) -> None:
    """Note that a consumer is there; whoever was it before is no longer, if the epoch is new."""
    consumer.seen_ms = now_ms
    queue.changes.append(ClaimOpened(name, consumer.epoch, now_ms))


def lapse(queue: Queue, name: str, lease: int) -> None:
    """Nothing was heard of the consumer: its unsealed batch is no longer promised to it."""
    consumer = queue.claims.get(name)
    for number, batch in consumer.batches.items() if consumer is not None else ():
        if batch.lease == lease:
            batch.lease, batch.lapsed = 0, True
            queue.changes.append(ClaimEmptied(name, number, True))


def held_by(queue: Queue, name: str, epoch: int, number: int) -> list[Span]:
    """The messages of a sealed batch, for a reader: the same ones in the same order each time, the
    highest priority first, also after a restart. Tasks read their slices at different times."""
    batch = _fenced(queue, name, epoch).batches.get(number)
    if batch is None or batch.lapsed:
        raise LeaseLost(f"consumer {name!r} does not hold batch {number}")
    spans = spans_of(queue, batch.lease)
    if spans and priority_of(spans[0].first) != priority_of(spans[-1].first):
        return sorted(spans, key=lambda span: (-priority_of(span.first), span.first))
    return spans


def slice_of(spans: list[Span], start: int, count: int, bytes_max: int) -> Slice:
    """Messages `start` to `start + count` of a batch and about `bytes_max` bytes, but at least
    one; or all the runs that have to be read back first. What was passed over takes no bytes."""
    parts: list[Part] = []
    missing: list[Span] = []
    at = begin = 0  # where the slice ends, and where the span begins
    for span in spans:
        size, begin = span.end - span.first, at
        at += size
        if start >= at:
            continue
        if count <= 0 or bytes_max <= 0:
            return Slice([] if missing else parts, begin, missing)
        skipped = max(0, start - begin)
        piece = span.part(span.first + skipped, span.end) if skipped else span
        taken = min(size - skipped, count)
        if span.deadline_ms != _PASSED_OVER_MS:
            taken = min(taken, _fitting(piece, bytes_max))
            if taken < 1:
                if parts or missing:
                    return Slice([] if missing else parts, begin + skipped, missing)
                taken = 1
            if skipped + taken < size:
                piece = piece.part(piece.first, piece.first + taken)
            if span.chunk.content is None:
                missing.append(piece)
            else:
                parts.append(part_of(piece))
            bytes_max -= _payload_bytes(piece)
        count -= taken
        if skipped + taken < size:  # what follows does not fit any more
            return Slice([] if missing else parts, begin + skipped + taken, missing)
    return Slice([] if missing else parts, max(at, start), missing)


def pass_over(queue: Queue, name: str, number: int, runs: list[Span]) -> None:
    """Messages of a sealed batch cannot be read: whoever reads it goes past them, each time until
    the batch is planned anew, and an ack leaves them in the queue."""
    lease = queue.claims[name].batches[number].lease
    runs = sorted(runs, key=by_first)
    for run in detach(queue, lease, runs):
        run.deadline_ms = _PASSED_OVER_MS
        attach(queue, lease, run)
    queue.changes.append(DeadlineSet(lease, ranges_of(runs), State.SEALED, _PASSED_OVER_MS))


def spans_of(queue: Queue, lease: int) -> list[Span]:
    return queue.leases.get(lease, [])


def detach_all(queue: Queue, lease: int) -> list[Span]:
    spans = spans_of(queue, lease)
    return detach(queue, lease, list(spans)) if spans else []


def _keep(queue: Queue, batch: ClaimedBatch, deadline_ms: int) -> None:
    spans = spans_of(queue, batch.lease)
    for span in spans:
        span.deadline_ms = deadline_ms
    if spans:
        queue.changes.append(DeadlineSet(batch.lease, ranges_of(spans), State.CLAIMED, deadline_ms))
        queue.watch(batch.lease, deadline_ms)


def _select(queue: Queue, count: int, bytes_max: int) -> list[Span]:
    """Take messages out of the line, in the order in which they are due to consumers: up to
    `count` of them and about `bytes_max` bytes, but at least one."""
    spans: list[Span] = []
    for lane in queue.lanes:
        line, settled = lane.line, lane.log.settled
        while line.count and len(spans) < limits.READ_RUNS_MAX:
            head = line.head(settled)
            if head is None:
                break
            size, fits = _payload_bytes(head), head.end - head.first
            if size > bytes_max:
                fits = _fitting(head, bytes_max)
                if fits < 1:
                    if spans:
                        return spans
                    fits = 1  # a message larger than the limit still goes out, alone
            span = line.take(min(fits, count), settled)
            spans.append(span)
            count -= span.end - span.first
            bytes_max -= size if span is head else _payload_bytes(span)
            if count <= 0 or bytes_max <= 0:
                return spans
    return spans


def _fitting(span: Span, bytes_max: int) -> int:
    """How many of its messages fit; where the content is not in memory, by their mean size."""
    chunk, content = span.chunk, span.chunk.content
    if chunk.payload_bytes <= bytes_max:
        return span.end - span.first
    if content is None:
        return int(bytes_max / _mean_bytes(chunk))
    start = chunk.index(span.first)
    return fitting(content, start, start + span.end - span.first, bytes_max)


def _payload_bytes(span: Span) -> int:
    """What its messages take, known in the same way."""
    chunk, count = span.chunk, span.end - span.first
    if count == chunk.end - chunk.first:
        return chunk.payload_bytes
    content = chunk.content
    if content is None:
        return int(count * _mean_bytes(chunk))
    start = chunk.index(span.first)
    return size_of(content, start, start + count)


def _mean_bytes(chunk: Chunk) -> float:
    kept = chunk.end - chunk.first if chunk.seqs is None else len(chunk.seqs)
    return chunk.payload_bytes / kept


def _view(queue: Queue, number: int, batch: ClaimedBatch) -> Claim:
    spans = spans_of(queue, batch.lease)
    count = sum(span.end - span.first for span in spans)
    return Claim(number, count, sum(map(_payload_bytes, spans)))


def _fenced(queue: Queue, name: str, epoch: int) -> Consumer:
    consumer = queue.claims.get(name)
    if consumer is None or consumer.epoch != epoch:
        raise Fenced(
            f"another Spark driver has taken over consumer {name!r} of queue {queue.name!r}",
            "run only one query per checkpoint",
        )
    return consumer
