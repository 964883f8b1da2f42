"""Deadlines: what time does to a queue. Schedules fall due, leases time out, messages expire.

`next_ms` says when the next of these is due; `run_due` does what is due by now.
"""

from __future__ import annotations

from bisect import bisect_right
from heapq import heappop, heappush
from itertools import islice
from typing import TYPE_CHECKING

from nexo.machine import life
from nexo.machine.ack import detach, index_of
from nexo.machine.claims import lapse
from nexo.machine.events import add_event
from nexo.machine.fail import come_back, fail
from nexo.machine.groups import END
from nexo.vocabulary.changes import Removed
from nexo.vocabulary.states import Cause, EventKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nexo.machine.queue import Lane, Queue
    from nexo.machine.span import Span

_CAUSES = (
    dict.fromkeys(life.RETRANSMITTED, Cause.RETRANSMIT_TIMEOUT)
    | dict.fromkeys(life.VISIBLE_AGAIN, Cause.VISIBILITY_TIMEOUT)
    | dict.fromkeys(life.LAPSING, Cause.CLAIM_LAPSED)
)


def next_ms(queue: Queue) -> int | None:
    """When something is due next; None if nothing ever is."""
    times = []
    if queue.scheduled:
        times.append(queue.scheduled[0][0])
    deadline_ms = queue.next_deadline_ms
    if deadline_ms is not None:
        times.append(deadline_ms)
    oldest_ms = _known_oldest_ms(queue)
    if oldest_ms is not None:
        times.append(oldest_ms + queue.settings.retention_ms)
    return min(times) if times else None


def run_due(queue: Queue, now_ms: int, spans_max: int = END) -> bool:
    """What is due by now: schedules, leases, retention, deduplication windows. At most `spans_max`
    spans come back in one step, those that are due first; true if it has to be called again."""
    now_ms = queue.advance(now_ms)
    left = bring_due(queue, now_ms, spans_max)
    if queue.scheduled and queue.scheduled[0][0] <= now_ms:
        return True
    while (deadline_ms := queue.next_deadline_ms) is not None and deadline_ms <= now_ms:
        if not left:
            return True
        entry = queue.take_deadline()
        _, lease, first, end = entry
        timed_out, is_done = _time_out(queue, lease, first, end, now_ms, left)
        left -= max(1, timed_out)  # one that is outdated has to be looked at too
        if not is_done:
            heappush(queue.deadlines, entry)
    if queue.recent is not None:
        queue.recent.forget(now_ms)
    return _expire(queue, now_ms, left)


def bring_due(queue: Queue, now_ms: int, spans_max: int = END) -> int:
    """What was scheduled for now or before goes in line; returns how many spans more might."""
    while spans_max and queue.scheduled and queue.scheduled[0][0] <= now_ms:
        spans_max -= 1
        span = heappop(queue.scheduled)[2]
        if span.first < span.end:  # else it was removed meanwhile
            queue.unschedule(span)
            queue.enter(span)
    return spans_max


def _time_out(
    queue: Queue, lease: int, first: int, end: int, now_ms: int, spans_max: int
) -> tuple[int, bool]:
    """How many spans were looked after, and whether that is all. A claim is over with its first
    messages; the others follow."""
    spans = queue.leases.get(lease, [])
    overdue: list[Span] = []
    for at in range(index_of(spans, first), len(spans)):
        span = spans[at]
        if span.first >= end or len(overdue) > spans_max:
            break
        if span.deadline_ms <= now_ms and span.state in _CAUSES:
            overdue.append(span)
    if not overdue:
        return 0, True
    if overdue[0].state in life.LAPSING:
        lapse(queue, overdue[0].consumer, lease)
    is_done = len(overdue) <= spans_max
    if not is_done:
        overdue = overdue[:spans_max]
    for span in detach(queue, lease, overdue):
        cause = _CAUSES[span.state]
        if cause is Cause.CLAIM_LAPSED:
            come_back(queue, lease, span, now_ms, cause, 0)
        else:
            fail(queue, lease, span, now_ms, cause)
    return len(overdue), is_done


def _expire(queue: Queue, now_ms: int, spans_max: int) -> bool:
    """Retention: what has waited in line for too long goes. What is in flight goes when it comes
    back, and what is scheduled was accepted because its time comes before its end. About
    `spans_max` chunks of a lane are looked at, and so many runs of messages go; true if there are
    more."""
    cutoff_ms = now_ms - queue.settings.retention_ms
    oldest_ms = _known_oldest_ms(queue)
    if oldest_ms is None or oldest_ms > cutoff_ms:
        return False
    is_less = False
    for lane in queue.lanes:
        if not lane.line.count:
            continue
        seq = _first_after(lane, cutoff_ms, max(1, spans_max))
        if seq is None:
            continue
        for span in lane.line.drop_below(seq, max(1, spans_max)):
            _remove_expired(queue, span, now_ms)
            spans_max -= 1
            is_less = True
    queue.oldest_ms = None
    left_ms = _known_oldest_ms(queue)
    return is_less and left_ms is not None and left_ms <= cutoff_ms


def _remove_expired(queue: Queue, span: Span, now_ms: int) -> None:
    count = span.end - span.first
    queue.totals.expired += count
    if queue.events is not None:
        add_event(queue, EventKind.EXPIRED, span, now_ms, "retention")
    queue.changes.append(Removed(0, Cause.RETENTION, (span.first, span.end)))
    queue.remove(span.chunk, count)


def _first_after(lane: Lane, cutoff_ms: int, chunks_max: int) -> int | None:
    """The first message of the lane that came after the cutoff, or where the search for it ends;
    None if that is all of them."""
    found: int | None = None
    head = lane.line.oldest(lane.log.settled)
    if head is None:
        return None
    for chunk in islice(lane.log.chunks_from(head.first), chunks_max):
        if chunk.first >= lane.log.settled:
            break
        if max(chunk.created_first_ms, chunk.arrived_ms) > cutoff_ms:
            break
        if chunk.created_last_ms <= cutoff_ms:
            found = min(chunk.end, lane.log.settled)
            continue
        times = chunk.content.created if chunk.content is not None else None
        if times is not None:  # else the chunk goes as a whole, when its last message is due
            index = bisect_right(times, cutoff_ms)
            if chunk.seqs is None:
                seq = chunk.first + index
            else:  # the messages that came last may be dead and not copied forward
                seq = chunk.seqs[index] if index < len(chunk.seqs) else chunk.end
            found = min(seq, lane.log.settled)
        break
    return found


def _known_oldest_ms(queue: Queue) -> int | None:
    """A time before which nothing in line came: `oldest_in_line_ms`, looked for again only when it
    is over. What comes later is younger, and what comes back is asked when it does (`enter`), as
    are contents."""
    if not queue.ready:
        queue.oldest_ms = None
    if queue.oldest_ms is None:
        queue.oldest_ms = oldest_in_line_ms(queue)
    elif queue.restored.came_ms is not None:
        queue.oldest_ms = min(queue.oldest_ms, queue.restored.came_ms)
    queue.restored.came_ms = None
    return queue.oldest_ms


def oldest_in_line_ms(queue: Queue) -> int | None:
    """When the oldest message in line came in."""
    return min((head.chunk.came_ms(head.first) for head in _heads(queue)), default=None)


def _heads(queue: Queue) -> Iterator[Span]:
    """The oldest in line of each lane: in order of number they came one after the other. A lane
    that sleeps has none, but for a FIFO queue's whose groups are locked, and what is unsorted."""
    for lane in queue.lanes if queue.settings.fifo else [*queue.awake, *queue.unsorted]:
        head = lane.line.oldest(lane.log.settled) if lane.line.count else None
        if head is not None:
            yield head
