"""Reception ack, processing ack, extension: what a consumer says of the messages it holds.

A receipt names the lease and the messages. Everything is checked before anything changes: an
outdated delivery is a `StaleReceipt`, an ack out of order a `WrongState`. Of a range that is partly
outdated the rest is applied, and the answer says what was.
"""

from __future__ import annotations

from bisect import bisect_right
from operator import attrgetter
from typing import TYPE_CHECKING

from nexo.machine import life
from nexo.machine.pop import tell
from nexo.machine.span import Span
from nexo.vocabulary import limits
from nexo.vocabulary.changes import Moved, Removed
from nexo.vocabulary.errors import InvalidArgument, StaleReceipt, WrongState
from nexo.vocabulary.states import Cause, EventKind, State

if TYPE_CHECKING:
    from nexo.machine.queue import Queue

RECEIVED = State.RECEIVED
_first = attrgetter("first")
# A claim's lease is not a consumer's to touch, nor is one on its way to another queue.
_CONSUMERS_OWN = frozenset({State.SENT, State.RECEIVED})


def ack(queue: Queue, lease: int, first: int, end: int, now_ms: int) -> list[int]:
    """The work is done: the messages are gone. Returns the ranges that were acked."""
    held = queue.leases.get(lease)
    spans: list[Span]
    if (
        isinstance(held, Span)
        and first == held.first
        and end == held.end
        and held.state in life.ACKABLE
    ):
        del queue.leases[lease]
        spans, applied = [held], [first, end]
    else:
        chosen = holding(queue, lease, first, end, life.ACKABLE, "ack")
        spans = detach(queue, lease, chosen)
        applied = [bound for span in spans for bound in (span.first, span.end)]
    if queue.events is not None:  # while their chunks still know when they came
        _tell_all(queue, EventKind.ACKED, spans, now_ms)
    for span in spans:
        count = span.end - span.first
        queue.totals.acked += count
        queue.land(span)
        queue.bury(span.chunk, count)
    queue.changes.append(Removed(lease, Cause.ACKED, tuple(applied)))
    return applied


def received(queue: Queue, lease: int, first: int, end: int, now_ms: int) -> list[int]:
    """The messages have arrived: the visibility timeout begins. Saying so twice changes nothing."""
    now_ms = queue.advance(now_ms)
    chosen = holding(queue, lease, first, end, _CONSUMERS_OWN, "received")
    fresh = [span for span in chosen if span.state in life.RECEIVABLE]
    if fresh:
        # One delivery, one visibility timeout: the spans of a lease agree on it.
        _receive(queue, lease, fresh, now_ms + fresh[0].visibility_ms)
        if queue.events is not None:
            _tell_all(queue, EventKind.RECEIVED, fresh, now_ms)
    return [bound for span in chosen for bound in (span.first, span.end)]


def extend(
    queue: Queue, lease: int, first: int, end: int, timeout_ms: int, now_ms: int
) -> list[int]:
    """The work takes longer: the messages come back `timeout_ms` from now, not earlier."""
    now_ms = queue.advance(now_ms)
    if not 0 <= timeout_ms <= limits.TIMEOUT_MS_MAX:
        raise InvalidArgument(f"an extension takes 0 to {limits.TIMEOUT_MS_MAX} ms")
    chosen = holding(queue, lease, first, end, life.EXTENDABLE, "extend")
    _receive(queue, lease, chosen, now_ms + timeout_ms)
    return [bound for span in chosen for bound in (span.first, span.end)]


def holding(
    queue: Queue, lease: int, first: int, end: int, allowed: frozenset[State], action: str
) -> list[Span]:
    """The part of a lease that lies in the range, as parts of its spans; nothing changes yet."""
    held = queue.leases.get(lease)
    spans = held if isinstance(held, list) else [held] if held is not None else []
    if end - first == 1:
        spans = _around(spans, first)
    chosen = []
    for span in spans:
        low, high = max(first, span.first), min(end, span.end)
        if low < high and span.state < State.CLAIMED:
            if span.state not in allowed:
                raise _wrong(queue, span, action)
            whole = low == span.first and high == span.end
            chosen.append(span if whole else span.part(low, high))
    if not chosen:
        raise StaleReceipt(
            f"queue {queue.name!r} no longer holds this delivery: "
            "it was acked, gave up waiting, or is from before a crash",
            "do nothing: if the message is still there it is delivered again",
        )
    return chosen


def detach(queue: Queue, lease: int, chosen: list[Span]) -> list[Span]:
    """Take messages off a lease; what is left of it stays."""
    held = queue.leases[lease]
    spans = held if isinstance(held, list) else [held]
    if len(chosen) == 1 and _cut_out(spans, chosen[0]):
        queue.leases[lease] = spans[0] if len(spans) == 1 else spans
        return chosen
    left: list[Span] = []
    picks = iter(chosen)
    pick = next(picks, None)
    for span in spans:
        at = span.first
        while pick is not None and pick.chunk is span.chunk and at <= pick.first < span.end:
            if pick is not span and at < pick.first:
                left.append(span.part(at, pick.first))
            at = pick.end
            pick = next(picks, None)
        if at == span.first:
            left.append(span)
        elif at < span.end:
            left.append(span.part(at, span.end))
    if not left:
        del queue.leases[lease]
    else:
        queue.leases[lease] = left[0] if len(left) == 1 else left
    return chosen


def _around(spans: list[Span], seq: int) -> list[Span]:
    """The span that holds a message, where that can be told at a glance: a message is in one
    place only, and most leases are in order. Else all of them."""
    if len(spans) > 1:
        at = bisect_right(spans, seq, key=_first) - 1
        if at >= 0 and spans[at].first <= seq < spans[at].end:
            return [spans[at]]
    return spans


def _cut_out(spans: list[Span], pick: Span) -> bool:
    """Take a run out of the middle of a long lease in place: acking a lease message by message
    must not walk through all of it each time. False: it has to be looked for."""
    at = bisect_right(spans, pick.first, key=_first) - 1
    if len(spans) < 3 or at < 0:
        return False
    span = spans[at]
    if not (span.chunk is pick.chunk and span.first <= pick.first and pick.end <= span.end):
        return False
    spans[at : at + 1] = [
        span.part(low, high)
        for low, high in ((span.first, pick.first), (pick.end, span.end))
        if low < high
    ]
    return True


def _receive(queue: Queue, lease: int, chosen: list[Span], deadline_ms: int) -> None:
    """Give messages of a lease another deadline; they stay on the lease, in their place."""
    held = queue.leases[lease]
    spans: list[Span] = []
    picks = iter(chosen)
    pick = next(picks, None)
    for span in held if isinstance(held, list) else [held]:
        if pick is None or pick.chunk is not span.chunk or not span.first <= pick.first < span.end:
            spans.append(span)
            continue
        if span.first < pick.first:
            spans.append(span.part(span.first, pick.first))
        spans.append(pick)
        if pick.end < span.end:
            spans.append(span.part(pick.end, span.end))
        pick = next(picks, None)
    queue.leases[lease] = spans[0] if len(spans) == 1 else spans
    ranges: list[int] = []
    for span in chosen:
        span.state = RECEIVED
        span.deadline_ms = deadline_ms
        ranges += (span.first, span.end)
    queue.watch(lease, deadline_ms)
    queue.changes.append(Moved(lease, tuple(ranges), RECEIVED, deadline_ms))


def _tell_all(queue: Queue, kind: EventKind, spans: list[Span], now_ms: int) -> None:
    for span in spans:
        tell(queue, kind, span, now_ms)


def _wrong(queue: Queue, span: Span, action: str) -> WrongState:
    if span.state is State.SENT:
        return WrongState(
            f"{action} before the reception ack of a message of queue {queue.name!r}",
            "call received() first, or pop with auto_received",
        )
    return WrongState(f"a message that is {span.state.name} takes no {action}")
