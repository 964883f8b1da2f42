"""Settle: what is on disk becomes visible.

`collect` hands over everything that changed since the last commit, and a mark; when that commit is
on disk, `settle` with the mark lets consumers see what came in with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from nexo.vocabulary.changes import Pushed
from nexo.vocabulary.events import Event
from nexo.vocabulary.states import EventKind

if TYPE_CHECKING:
    from nexo.machine.chunk import Chunk
    from nexo.machine.log import Flushed
    from nexo.machine.queue import Lane, Queue
    from nexo.vocabulary.batch import Batch
    from nexo.vocabulary.changes import QueueChange


class Mark(NamedTuple):
    ends: list[tuple[Lane, int]]
    released: list[tuple[str | None, int]]
    rewritten: list[Chunk]


class Collected(NamedTuple):
    changes: list[QueueChange]
    rows: list[tuple[int, Batch]]
    flushed: list[Flushed]
    dropped_rows: list[int]
    mark: Mark


def collect(queue: Queue) -> Collected:
    """Everything that the next commit has to write for this queue."""
    flushed = flush(queue)
    ends = [(lane, lane.log.end) for lane in queue.lanes if lane.log.settled != lane.log.end]
    mark = Mark(ends, queue.released, queue.rewritten)
    collected = Collected(queue.changes, queue.new_rows, flushed, queue.dropped_rows, mark)
    queue.changes, queue.new_rows, queue.dropped_rows = [], [], []
    queue.released, queue.rewritten = [], []
    return collected


def flush(queue: Queue) -> list[Flushed]:
    """Give rows to the messages that came since the last time, and tell of them."""
    flushed: list[Flushed] = []
    for lane in queue.lanes:
        if lane.log.end != lane.log.settled:
            came = lane.log.flush(queue.row_numbers)
            if lane.priority and queue.settings.archive:
                came = [_with_priority(each, lane.priority) for each in came]
            flushed += came
    for each in flushed:
        row, chunk, first, end, batch = each
        queue.new_rows.append((row, batch))
        created_first_ms, created_last_ms = times_of(each)
        queue.changes.append(
            Pushed(
                row,
                0,
                chunk.first,
                first,
                end,
                created_first_ms,
                created_last_ms,
                _due(queue, first, end),
                batch.groups,
                batch.size,
            )
        )
        if queue.events is not None:
            tell_pushed(queue, first, end, created_last_ms, created_first_ms)
    queue.unflushed_due.clear()
    return flushed


def _with_priority(flushed: Flushed, priority: int) -> Flushed:
    """Here the number of a message tells its priority; the archive has numbers of its own."""
    batch = msgspec.structs.replace(flushed.batch, priority=priority)
    return flushed._replace(batch=batch)


def tell_pushed(queue: Queue, first: int, end: int, at_ms: int, created_ms: int) -> None:
    """Add to the queue's events that these messages came."""
    assert queue.events is not None
    queue.events.append(
        Event(EventKind.PUSHED, queue.name, first, end - first, at_ms, created_ms, 0, "", "")
    )


def settle(queue: Queue, mark: Mark) -> None:
    """The commit is on disk: what it brought may be seen, and locked groups go on."""
    for lane, end in mark.ends:
        lane.log.settled = end
    for chunk in mark.rewritten:
        chunk.unsaved -= 1
    if mark.released:
        seqs_by_group: dict[str | None, list[int]] = {}
        for group, seq in mark.released:
            seqs_by_group.setdefault(group, []).append(seq)
        assert queue.busy is not None
        for group, seqs in seqs_by_group.items():
            queue.busy.land(group, seqs)
            queue.calm(group)


def times_of(flushed: Flushed) -> tuple[int, int]:
    """When the first and the last of the messages came."""
    created = flushed.batch.created
    if not created:
        return flushed.chunk.created_first_ms, flushed.chunk.created_last_ms
    return created[0], created[-1]


def _due(queue: Queue, first: int, end: int) -> int | list[int]:
    """When each of the messages is due: one number if they agree, 0 for now."""
    dues = [entry for entry in queue.unflushed_due if entry[0] < end and entry[1] > first]
    if not dues:
        return 0
    if len(dues) == 1 and dues[0][0] <= first and dues[0][1] >= end:
        return dues[0][2]
    by_message = [0] * (end - first)
    for start, stop, due_ms in dues:
        for seq in range(max(start, first), min(stop, end)):
            by_message[seq - first] = due_ms
    return by_message
