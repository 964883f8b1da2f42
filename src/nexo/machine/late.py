"""Late words: what a consumer says with the receipt of an earlier delivery.

To the native client that is a stale receipt. SQS is more forgiving on standard queues: the message
may still be deleted, wherever it is. To find one message costs what the queue has in flight, and
in line in pieces; it is for the rare consumer that is late.
"""

from __future__ import annotations

from heapq import heapify
from typing import TYPE_CHECKING

from nexo.machine.ack import detach
from nexo.machine.pop import tell
from nexo.machine.unreadable import take_aside
from nexo.vocabulary.changes import Removed
from nexo.vocabulary.limits import SEQUENCE_BITS
from nexo.vocabulary.states import Cause, EventKind, State

if TYPE_CHECKING:
    from nexo.machine.queue import Queue
    from nexo.machine.span import Span


def lease_of(queue: Queue, seq: int) -> int | None:
    """The lease on which a consumer holds the message now."""
    for lease, held in queue.leases.items():
        for span in held if isinstance(held, list) else (held,):
            if span.first <= seq < span.end:
                return lease if span.state < State.CLAIMED else None
    return None


def holds(queue: Queue, seq: int) -> bool:
    """Whether the message is in the queue, whatever its state."""
    return (
        any(span.first <= seq < span.end for _, _, span in queue.scheduled)
        or _in_line(queue, seq) is not None
        or any(span.first <= seq < span.end for spans in queue.aside.values() for span in spans)
        or any(
            span.first <= seq < span.end
            for held in queue.leases.values()
            for span in (held if isinstance(held, list) else (held,))
        )
    )


def discard(queue: Queue, seq: int, now_ms: int) -> bool:
    """The work is done after all: the message is gone, in line or with another consumer as it may
    be. False if there is nothing to remove, or a claim or a move has it."""
    queue.advance(now_ms)
    lease = lease_of(queue, seq)
    if lease is not None:
        held = queue.leases[lease]
        spans = held if isinstance(held, list) else [held]
        (span,) = [each.part(seq, seq + 1) for each in spans if each.first <= seq < each.end]
        detach(queue, lease, [span])
        queue.land(span)
    else:
        found = _take(queue, seq)
        if found is None:
            return False
        span, lease = found, 0
    queue.totals.acked += 1
    if queue.events is not None:
        tell(queue, EventKind.ACKED, span, now_ms)
    queue.bury(span.chunk, 1)
    queue.changes.append(Removed(lease, Cause.ACKED, (seq, seq + 1)))
    return True


def has_timed_out(queue: Queue, lease: int, seq: int) -> bool:
    """Whether the message waits in line because this delivery of it timed out."""
    waiting = _in_line(queue, seq)
    return waiting is not None and waiting.timed_out_lease == lease


def _in_line(queue: Queue, seq: int) -> Span | None:
    lane = queue.lanes_by_priority.get(seq >> SEQUENCE_BITS)
    if lane is None or seq >= lane.log.settled:
        return None
    return next((s for s in lane.line.spans() if s.first <= seq < s.end), None)


def _take(queue: Queue, seq: int) -> Span | None:
    """Take a message out of the line, off the schedule, or from those that cannot be read."""
    if _in_line(queue, seq) is not None:
        return queue.lane_of(seq).line.cut(seq)
    for index, (due_ms, _, span) in enumerate(queue.scheduled):
        if span.first <= seq < span.end:
            rest = [span.part(*r) for r in ((span.first, seq), (seq + 1, span.end)) if r[0] < r[1]]
            queue.scheduled[index : index + 1] = [(due_ms, each.first, each) for each in rest]
            heapify(queue.scheduled)
            queue.scheduled_count -= 1
            return span.part(seq, seq + 1)
    return take_aside(queue, seq)
