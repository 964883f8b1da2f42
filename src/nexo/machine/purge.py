"""Purge: an operator removes every message of a queue, in flight or not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nexo.machine.chunk import Chunk
from nexo.machine.events import add_purged
from nexo.machine.line import Row
from nexo.machine.push import flush
from nexo.vocabulary.changes import Purged

if TYPE_CHECKING:
    from nexo.machine.queue import Queue


def prepare(queue: Queue, count: int) -> bool:
    """Look at so many chunks ahead of a purge, so that it finds their rows at hand; true if there
    are more to look at. The queue lives on meanwhile."""
    return any(lane.log.note_rows(count) for lane in queue.lanes)


def purge(queue: Queue, now_ms: int) -> int:
    """Everything is gone, also what is in flight. Numbers go on where they were. What it was is
    taken apart later, by `take_apart`: that takes longer than a step may."""
    now_ms = queue.advance(now_ms)
    count = queue.depth
    flush(queue)  # what came just before has a record before this one
    purged = queue.purged
    for lane in queue.lanes:
        rows, held = lane.log.drop_all()
        queue.dropped_rows += rows
        purged += [*held, *lane.line.clear(), *lane.scheduled.clear()]
    purged += [queue.scheduled, queue.aside, queue.leases, queue.deadlines, queue.unswept]
    queue.scheduled, queue.deadlines, queue.unswept, queue.emptied = [], [], [], 0
    queue.aside, queue.leases = {}, {}
    queue.doomed.clear()
    queue.unsorted.clear()
    queue.released.clear()
    if queue.recent is not None:
        purged += queue.recent.clear()
        queue.recent = None  # what was purged may be pushed again
    for consumer in queue.claims.values():
        for batch in consumer.batches.values():
            batch.lease = 0
    if queue.busy is not None:
        purged += queue.busy.clear()
    queue.oldest_ms = None
    queue.depth = queue.in_flight = queue.scheduled_count = queue.aside_count = 0
    queue.changes.append(Purged(now_ms))
    if queue.events is not None and count:
        add_purged(queue, count, now_ms)
    return count


def take_apart(queue: Queue, count: int) -> bool:
    """Take so many things apart of what a purge has left; true if there is more."""
    piles = queue.purged
    while piles and count > 0:
        pile = piles[-1]
        count -= 1
        if not pile:
            piles.pop()
            continue
        thing = pile.popitem()[1] if isinstance(pile, dict) else pile.pop()
        if isinstance(thing, Chunk):
            thing.content = None  # others may hold on to the chunk
        elif isinstance(thing, Row):
            piles += thing.clear()
        elif isinstance(thing, list):
            piles.append(thing)
    return bool(piles)
