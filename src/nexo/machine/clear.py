"""Purge, pause and resume: what an operator does to a whole queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nexo.machine.settle import flush
from nexo.vocabulary.changes import PauseSet, Purged
from nexo.vocabulary.events import Event
from nexo.vocabulary.states import EventKind

if TYPE_CHECKING:
    from nexo.machine.queue import Queue


def purge(queue: Queue, now_ms: int) -> int:
    """Everything is gone, also what is in flight. Numbers go on where they were."""
    now_ms = queue.advance(now_ms)
    count = queue.depth
    flush(queue)  # what came just before has a record before this one
    for lane in queue.lanes:
        lane.line.clear()
        lane.scheduled.clear()
        queue.dropped_rows += lane.log.drop_all()
    queue.scheduled.clear()
    queue.aside.clear()
    queue.leases.clear()
    queue.deadlines.clear()
    queue.unswept.clear()
    queue.doomed.clear()
    queue.released.clear()
    queue.recent = None  # what was purged may be pushed again
    for consumer in queue.claims.values():
        for batch in consumer.batches.values():
            batch.lease = 0
    if queue.busy is not None:
        queue.busy.clear()
    queue.oldest_ms = None
    queue.depth = queue.in_flight = queue.scheduled_count = queue.aside_count = 0
    queue.changes.append(Purged(now_ms))
    if queue.events is not None and count:
        kind = EventKind.PURGED
        queue.events.append(Event(kind, queue.name, 0, count, now_ms, now_ms, 0, "", ""))
    return count


def set_paused(queue: Queue, paused: bool) -> None:
    """A paused queue accepts messages and delivers none."""
    if queue.paused != paused:
        queue.paused = paused
        queue.changes.append(PauseSet(paused))
