"""Settle: what is on disk becomes visible.

`collect` hands over everything that changed since the last commit, and a mark; when that commit is
on disk, `settle` with the mark lets consumers see what came in with it.
"""

from __future__ import annotations

from bisect import bisect_right
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from nexo.machine.events import add_pushed
from nexo.vocabulary.changes import Pushed

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
    ends = [(lane, lane.log.end) for lane in queue.news]
    for lane in queue.news:
        lane.has_news = False
    queue.news = []
    mark = Mark(ends, queue.released, queue.rewritten)
    collected = Collected(queue.changes, queue.new_rows, flushed, queue.dropped_rows, mark)
    queue.changes, queue.new_rows, queue.dropped_rows = [], [], []
    queue.released, queue.rewritten = [], []
    return collected


def flush(queue: Queue) -> list[Flushed]:
    """Give rows to the messages that came since the last time, and tell of them."""
    flushed: list[Flushed] = []
    for lane in queue.news:
        came = lane.log.flush(queue.row_numbers)
        if lane.priority and queue.settings.archive:
            came = [_with_priority(each, lane.priority) for each in came]
        flushed += came
    dues = sorted(queue.unflushed_due, key=itemgetter(0))
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
                _due(dues, first, end),
                batch.groups,
                batch.size,
            )
        )
        if queue.events is not None:
            add_pushed(queue, first, end, created_last_ms, created_first_ms)
    queue.unflushed_due.clear()
    return flushed


def _with_priority(flushed: Flushed, priority: int) -> Flushed:
    """Here the number of a message tells its priority; the archive has numbers of its own."""
    batch = msgspec.structs.replace(flushed.batch, priority=priority)
    return flushed._replace(batch=batch)


def settle(queue: Queue, mark: Mark) -> None:
    """The commit is on disk: what it brought may be seen, and locked groups go on."""
    for lane, end in mark.ends:
        lane.log.settled = end
        if not lane.is_awake and lane.line.count:
            queue.wake(lane)
    for chunk in mark.rewritten:
        chunk.unsaved -= 1
    if mark.released:
        seqs_by_group: dict[str | None, list[int]] = {}
        for group, seq in mark.released:
            seqs_by_group.setdefault(group, []).append(seq)
        assert queue.busy is not None
        for group, seqs in seqs_by_group.items():
            queue.busy.remove_in_flight(group, seqs)
            queue.calm(group)


def times_of(flushed: Flushed) -> tuple[int, int]:
    """When the first and the last of the messages came."""
    created = flushed.batch.created
    if not created:
        return flushed.chunk.created_first_ms, flushed.chunk.created_last_ms
    return created[0], created[-1]


def _due(dues: list[tuple[int, int, int | list[int]]], first: int, end: int) -> int | list[int]:
    """When each of the messages is due: one number if they agree, 0 for now. `dues` is in order."""
    at = max(0, bisect_right(dues, first, key=itemgetter(0)) - 1)
    by_message: list[int] | None = None
    while at < len(dues) and dues[at][0] < end:
        start, stop, due_ms = dues[at]
        at += 1
        if stop <= first:
            continue
        low, high = max(start, first), min(stop, end)
        cut = due_ms if isinstance(due_ms, int) else due_ms[low - start : high - start]
        if low == first and high == end:
            return cut
        if by_message is None:
            by_message = [0] * (end - first)
        if isinstance(cut, int):
            cut = [cut] * (high - low)
        by_message[low - first : high - first] = cut
    return 0 if by_message is None else by_message
