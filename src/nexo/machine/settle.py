"""The two ends of a commit: `collect` before it is written, `settle` when it is on disk.

`collect` hands over everything that changed since the last commit, and a mark; when that commit is
on disk, `settle` with the mark lets consumers see what came in with it. What belongs to groups is
sorted first; of very much that takes more than one step, and `sort_groups` goes on with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from nexo.machine.groups import GroupedLine
from nexo.machine.push import flush
from nexo.vocabulary import limits

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


def settle(queue: Queue, mark: Mark) -> None:
    """The commit is on disk: what it brought may be seen, and locked groups go on."""
    for lane, end in mark.ends:
        lane.log.settled = end
        if isinstance(lane.line, GroupedLine) and not lane.line.is_sorted:
            queue.unsorted[lane] = None
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
    if queue.unsorted:
        sort_groups(queue)


def sort_groups(queue: Queue) -> bool:
    """Give messages that came in to their groups, as many as one step may; true if there are more
    of them. Until then those are in the queue, and no consumer gets them."""
    left = limits.SORTED_STEP_MESSAGES
    for lane in list(queue.unsorted):
        assert isinstance(lane.line, GroupedLine)
        left -= lane.line.sort(left)
        queue.wake(lane)
        if not lane.line.is_sorted:
            break
        del queue.unsorted[lane]
    return not queue.is_sorted
