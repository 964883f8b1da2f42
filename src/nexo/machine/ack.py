"""Reception ack, processing ack, extension: what a consumer says of the messages it holds.

A receipt names the lease and the messages. Everything is checked before anything changes: an
outdated delivery is a `StaleReceipt`, an ack out of order a `WrongState`. Of a range that is partly
outdated the rest is applied, and the answer says what was.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from typing import TYPE_CHECKING

from nexo.machine import life
from nexo.machine.events import add_event
from nexo.machine.span import Span, by_first
from nexo.vocabulary import limits
from nexo.vocabulary.changes import DeadlineSet, Removed
from nexo.vocabulary.errors import InvalidArgument, StaleReceipt, WrongState
from nexo.vocabulary.states import Cause, EventKind, State

if TYPE_CHECKING:
    from nexo.machine.queue import Queue

RECEIVED, ACKED = State.RECEIVED, Cause.ACKED


def ack(queue: Queue, lease: int, first: int, end: int, now_ms: int) -> list[int]:
    """The work is done: the messages are gone. Returns the ranges that were acked."""
    held = queue.leases.get(lease)
    if (
        held is not None
        and len(held) == 1
        and (span := held[0]).first == first
        and span.end == end
        and span.state in life.ACKABLE
    ):
        del queue.leases[lease]
        spans, applied = held, [first, end]
    else:
        chosen = holding(queue, lease, first, end, life.ACKABLE, "ack")
        spans = detach(queue, lease, chosen)
        applied = [bound for span in spans for bound in (span.first, span.end)]
    if queue.events is not None:  # while their chunks still know when they came
        _add_events(queue, EventKind.ACKED, spans, now_ms)
    totals = queue.totals
    for span in spans:
        count = span.end - span.first
        totals.acked += count
        queue.end_flight(span)
        queue.remove(span.chunk, count)
    queue.changes.append(Removed(lease, ACKED, tuple(applied)))
    return applied


def received(queue: Queue, lease: int, first: int, end: int, now_ms: int) -> list[int]:
    """The messages have arrived: the visibility timeout begins. Saying so twice changes nothing."""
    now_ms = queue.advance(now_ms)
    held = queue.leases.get(lease)
    if (
        held is not None
        and len(held) == 1
        and (span := held[0]).first == first
        and span.end == end
        and span.state in life.RECEIVABLE
    ):  # all of a lease, as most often: nothing is to be cut
        span.state = RECEIVED
        span.deadline_ms = deadline_ms = now_ms + span.visibility_ms
        queue.watch(lease, deadline_ms, first, end)
        queue.changes.append(DeadlineSet(lease, (first, end), RECEIVED, deadline_ms))
        if queue.events is not None:
            add_event(queue, EventKind.RECEIVED, span, now_ms)
        return [first, end]
    chosen = holding(queue, lease, first, end, life.CONSUMERS_OWN, "received")
    fresh = [span for span in chosen if span.state in life.RECEIVABLE]
    if fresh:
        # One delivery, one visibility timeout: the spans of a lease agree on it.
        _receive(queue, lease, fresh, now_ms + fresh[0].visibility_ms)
        if queue.events is not None:
            _add_events(queue, EventKind.RECEIVED, fresh, now_ms)
    return [bound for span in chosen for bound in (span.first, span.end)]


def extend(
    queue: Queue, lease: int, first: int, end: int, timeout_ms: int, now_ms: int
) -> list[int]:
    """The work takes longer: the messages come back `timeout_ms` from now, not earlier."""
    now_ms = queue.advance(now_ms)
    if not 0 <= timeout_ms <= limits.TIMEOUT_MS_MAX:
        raise InvalidArgument(f"a timeout must be 0 to {limits.TIMEOUT_MS_MAX} ms")
    chosen = holding(queue, lease, first, end, life.EXTENDABLE, "extend")
    _receive(queue, lease, chosen, now_ms + timeout_ms)
    return [bound for span in chosen for bound in (span.first, span.end)]


def holding(
    queue: Queue, lease: int, first: int, end: int, allowed: frozenset[State], action: str
) -> list[Span]:
    """The part of a lease that lies in the range, as parts of its spans; nothing changes yet."""
    spans = queue.leases.get(lease, [])
    chosen = []
    for at in range(index_of(spans, first), len(spans)):
        span = spans[at]
        if span.first >= end:
            break
        low, high = max(first, span.first), min(end, span.end)
        if low < high and span.state in life.CONSUMERS_OWN:
            if span.state not in allowed:
                raise _wrong(queue, span, action)
            whole = low == span.first and high == span.end
            chosen.append(span if whole else span.part(low, high))
    if not chosen:
        raise StaleReceipt(
            f"queue {queue.name!r} no longer holds this delivery: "
            "it was acked, timed out, or was lost in a restart of the broker",
            "nothing to do: a message that was not acked is delivered again",
        )
    return chosen


def detach(queue: Queue, lease: int, chosen: list[Span]) -> list[Span]:
    """Take messages off a lease; what is left of it stays."""
    _cut(queue, lease, chosen, kept=False)
    return chosen


def attach(queue: Queue, lease: int, span: Span) -> None:
    """Put messages on a lease, at the place of their numbers."""
    held = queue.leases.get(lease)
    if held is None:
        queue.leases[lease] = [span]
    else:
        insort(held, span, key=by_first)


def index_of(spans: list[Span], seq: int) -> int:
    """Where the span stands that holds a message, or else where the search for it ends. The spans
    of a lease are in order, so that one message of many is found without a walk."""
    return max(0, bisect_right(spans, seq, key=by_first) - 1)


def _cut(queue: Queue, lease: int, chosen: list[Span], kept: bool) -> None:
    """Cut the chosen runs out of their spans. Kept, they are spans of the lease by themselves. Only
    what lies between the first and the last of them is looked at: whoever speaks of a long lease
    message by message must not pay for all of it each time."""
    spans = queue.leases[lease]
    low = at = index_of(spans, chosen[0].first)
    recut: list[Span] = []
    span = spans[at]
    start = span.first  # what comes before is done
    for pick in chosen:
        while span.end <= pick.first:
            _keep(recut, span, start)
            at += 1
            span = spans[at]
            start = span.first
        if start < pick.first:
            recut.append(span.part(start, pick.first))
        if kept:
            recut.append(pick)
        start = pick.end
    _keep(recut, span, start)
    spans[low : at + 1] = recut
    if not spans:
        del queue.leases[lease]


def _keep(recut: list[Span], span: Span, start: int) -> None:
    """The rest of a span stays as it is."""
    if start == span.first:
        recut.append(span)
    elif start < span.end:
        recut.append(span.part(start, span.end))


def _receive(queue: Queue, lease: int, chosen: list[Span], deadline_ms: int) -> None:
    set_deadline(queue, lease, chosen, RECEIVED, deadline_ms)
    ranges = tuple([bound for span in chosen for bound in (span.first, span.end)])
    queue.changes.append(DeadlineSet(lease, ranges, RECEIVED, deadline_ms))


def set_deadline(
    queue: Queue, lease: int, chosen: list[Span], state: State, deadline_ms: int
) -> None:
    """Give messages of a lease another deadline, or none; they stay on it, in their place."""
    _cut(queue, lease, chosen, kept=True)
    for span in chosen:
        span.state = state
        span.deadline_ms = deadline_ms
    if deadline_ms:
        queue.watch(lease, deadline_ms, chosen[0].first, chosen[-1].end)


def _add_events(queue: Queue, kind: EventKind, spans: list[Span], now_ms: int) -> None:
    for span in spans:
        add_event(queue, kind, span, now_ms)


def _wrong(queue: Queue, span: Span, action: str) -> WrongState:
    if span.state in life.RECEIVABLE:
        return WrongState(
            f"{action} before received() on a message of queue {queue.name!r}",
            "call received() first, or pop with auto_received=True",
        )
    return WrongState(f"{action} is not possible for a message in the state {span.state.name}")
