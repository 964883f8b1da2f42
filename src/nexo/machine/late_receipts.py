"""Late receipts: those that are used after their lease ended.

To the native client such a receipt is stale. SQS is more forgiving on standard queues: the message
may still be deleted, wherever it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nexo.machine import life
from nexo.machine.ack import detach, index_of
from nexo.machine.events import add_event
from nexo.machine.peek import find
from nexo.machine.unreadable import stands_aside, take_aside
from nexo.vocabulary.changes import Removed
from nexo.vocabulary.states import Cause, EventKind, State

if TYPE_CHECKING:
    from nexo.machine.peek import Glance
    from nexo.machine.queue import Queue
    from nexo.machine.span import Span


def lease_of(queue: Queue, seq: int) -> int | None:
    """The lease on which a consumer holds the message now."""
    found = find(queue, seq)
    return found.lease if found is not None and found.lease and _is_consumers(found) else None


def holds(queue: Queue, seq: int) -> bool:
    """Whether the message is in the queue, whatever its state."""
    return find(queue, seq) is not None or stands_aside(queue, seq)


def discard(queue: Queue, seq: int, now_ms: int) -> bool:
    """The work is done after all: the message is gone, in line or with another consumer as it may
    be. False if there is nothing to remove, or a claim or a move has it."""
    queue.advance(now_ms)
    found = find(queue, seq)
    if found is not None and found.lease and not _is_consumers(found):
        return False
    span = take_one(queue, found, seq) if found is not None else take_aside(queue, seq)
    if span is None:
        return False
    queue.totals.acked += 1
    if queue.events is not None:
        add_event(queue, EventKind.ACKED, span, now_ms)
    queue.remove(span.chunk, 1)
    lease = found.lease if found is not None else 0
    queue.changes.append(Removed(lease, Cause.ACKED, (seq, seq + 1)))
    return True


def delivered_ms(queue: Queue, lease: int, seq: int) -> int | None:
    """When a delivery began of which the message is part. None if it is on this lease no more, or
    if that is not known: snapshots of earlier versions have only the time of the first one."""
    held = queue.leases.get(lease)
    if not held:
        return None
    span = held[index_of(held, seq)]
    if not span.first <= seq < span.end:
        return None
    if not span.delivered_ms and span.history is not None and span.history.attempts == 1:
        return span.history.first_delivered_ms
    return span.delivered_ms or None


def has_timed_out(queue: Queue, lease: int, seq: int) -> bool:
    """Whether the message waits in line because this delivery of it timed out."""
    found = find(queue, seq)
    is_in_line = found is not None and found.state is State.READY
    return found is not None and is_in_line and found.span.timed_out_lease == lease


def _is_consumers(found: Glance) -> bool:
    return found.state in life.CONSUMERS_OWN


def take_one(queue: Queue, found: Glance, seq: int) -> Span:
    """Take a message off its lease, out of the line, or off the schedule."""
    part = found.span.part(seq, seq + 1)
    if found.lease:
        detach(queue, found.lease, [part])
        queue.end_flight(part)
    elif found.state is State.READY:
        queue.lane_of(seq).line.cut(seq, part.group)
    else:
        queue.cut_scheduled(found.span, seq, seq + 1)
        queue.lock_until_durable(part)
    return part
