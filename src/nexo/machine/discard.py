"""Discard: an operator removes chosen messages, wherever they are. Those that a claim or a move
holds are left: their owner would go on with what is not there any more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nexo.machine import life
from nexo.machine.events import add_event
from nexo.machine.late_receipts import take_one
from nexo.machine.peek import find
from nexo.machine.span import ranges_of_seqs
from nexo.machine.unreadable import take_aside
from nexo.vocabulary.changes import Removed
from nexo.vocabulary.states import Cause, EventKind

if TYPE_CHECKING:
    from nexo.machine.queue import Queue

REASON = "discarded"  # of the event: a purge has none


def is_discardable(queue: Queue, seq: int) -> bool:
    """Whether a message is there, and no claim or move has it."""
    found = find(queue, seq)
    return found is not None and (not found.lease or found.state in life.CONSUMERS_OWN)


def discard(queue: Queue, seqs: list[int], now_ms: int) -> int:
    """Remove these messages, which are in order; how many it were."""
    now_ms = queue.advance(now_ms)
    removed: dict[int, list[int]] = {}  # by the lease that they were on, 0 for none
    for seq in seqs:
        found = find(queue, seq)
        if found is not None and found.lease and found.state not in life.CONSUMERS_OWN:
            continue
        span = take_one(queue, found, seq) if found is not None else take_aside(queue, seq)
        if span is None:
            continue
        if queue.events is not None:
            add_event(queue, EventKind.PURGED, span, now_ms, REASON)
        queue.remove(span.chunk, 1)
        removed.setdefault(found.lease if found is not None else 0, []).append(seq)
    for lease, gone in removed.items():
        queue.changes.append(Removed(lease, Cause.PURGED, tuple(ranges_of_seqs(gone))))
    return sum(map(len, removed.values()))
