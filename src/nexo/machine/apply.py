"""Recovery: bring a queue or topic forward by what the journal says happened since its snapshot.

No rule is run: a change says what was decided, and here it is done again, by the same small steps
that the rules take (`put_on_lease`, `come_back`, `purge` …). So there is one way from changes to
state, and no second representation of it. That the result equals the queue that lived through it
is a property test.
"""

from __future__ import annotations

from array import array
from itertools import groupby
from typing import TYPE_CHECKING, Any

from nexo.machine.ack import attach, detach, set_deadline
from nexo.machine.claims import ClaimedBatch, Consumer
from nexo.machine.deadlines import bring_due, oldest_in_line_ms
from nexo.machine.deduplication import recent_of
from nexo.machine.fail import TIMED_OUT, come_back
from nexo.machine.groups import END
from nexo.machine.line import Line
from nexo.machine.pop import put_on_lease
from nexo.machine.producers import Producers
from nexo.machine.purge import purge
from nexo.machine.push import place
from nexo.machine.settle import collect, settle, sort_groups
from nexo.machine.span import Span, attempted
from nexo.machine.topic import drop_before
from nexo.vocabulary import changes as c
from nexo.vocabulary.batch import TIME_TYPE
from nexo.vocabulary.errors import DataCorrupt
from nexo.vocabulary.identity import priority_of
from nexo.vocabulary.states import Cause

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from nexo.machine.queue import Queue
    from nexo.machine.topic import Topic


def apply(queue: Queue, records: Iterable[Sequence[c.QueueChange]]) -> None:
    """Bring a queue that was revived from its snapshot forward by these records."""
    for record in records:
        for change in record:
            try:
                step = _STEPS[type(change)]
            except KeyError:
                raise _unknown(change) from None
            step(queue, change)
        settle(queue, collect(queue).mark)  # it is on disk: locked groups go on
    _finish(queue)


def apply_to_topic(topic: Topic, records: Iterable[Sequence[c.TopicChange]]) -> None:
    """The same for a topic. What retention has passed goes at the end: a chunk that was open then
    may have grown since."""
    start, log = topic.start, topic.log
    for record in records:
        for change in record:
            if isinstance(change, c.Published):
                log.recall(change)
                topic.kept_bytes += change.payload_bytes
                topic.advance(change.created_last_ms)
            elif isinstance(change, c.Trimmed):
                start = change.start
            elif isinstance(change, c.Produced):
                _produced(topic, change)
            elif isinstance(change, c.Remembered):
                _remembered(topic, change)
    log.recover(log.chunks.values(), log.end)
    topic.firsts = []
    drop_before(topic, start)
    topic.dropped_rows = []  # the record that told of it dropped them


def _finish(queue: Queue) -> None:
    """What is gone and what is over by now goes, and consumers see the rest."""
    for lane in queue.lanes:
        chunks = lane.log.chunks
        lane.log.recover([chunk for chunk in chunks.values() if chunk.live], lane.log.end)
        if lane.line.count:
            queue.wake(lane)
    while sort_groups(queue):
        pass
    bring_due(queue, queue.now_ms)
    if queue.recent is not None:
        queue.recent.forget(queue.now_ms)
    queue.oldest_ms = oldest_in_line_ms(queue)  # part of the start, not of the first step


# -- Messages ---------------------------------------------------------------------------------


def _pushed(queue: Queue, change: c.Pushed) -> None:
    queue.advance(max(change.created_last_ms, change.arrived_ms))
    if change.groups is not None and queue.busy is None:
        queue.begin_groups()
    log = queue.lane(priority_of(change.first)).log
    is_last = change.first >= log.end  # what a topic shares is told of before earlier pushes
    chunk = log.recall(change, change.groups)
    dues = change.due_ms
    runs = [(change.first, change.end, dues)] if isinstance(dues, int) else _by_due(change, dues)
    for first, end, due_ms in runs:
        if is_last or due_ms or queue.busy is not None:
            place(queue, chunk, first, end, due_ms)
        else:
            queue.depth += end - first
            queue.totals.pushed += end - first
            queue.enter(Span(chunk, first, end, None, None))


def _delivered(queue: Queue, change: c.Delivered) -> None:
    now_ms = queue.advance(change.at_ms)
    bring_due(queue, now_ms)  # what was delivered was in line by then
    spans = [span for bounds in _pairs(change.ranges) for span in _take(queue, *bounds)]
    # A snapshot in pieces has some of the messages of a lease before it tells of the others.
    others = queue.on_lease(change.lease, 0, END)
    put_on_lease(
        queue,
        change.lease,
        spans,
        change.state,
        change.deadline_ms,
        change.at_ms,
        change.consumer,
        change.visibility_ms,
    )
    for span in others:
        attach(queue, change.lease, span)


def _deadline_set(queue: Queue, change: c.DeadlineSet) -> None:
    for first, end in _pairs(change.ranges):
        parts = _on_lease(queue, change.lease, first, end)
        set_deadline(queue, change.lease, parts, change.state, change.deadline_ms)
        for span in parts if change.attempt else ():
            assert span.history is not None
            span.history = attempted(span.history)
        if change.failed is Cause.NACKED:
            queue.totals.nacked += end - first
        elif change.failed in TIMED_OUT:
            queue.totals.timed_out += end - first


def _removed(queue: Queue, change: c.Removed) -> None:
    totals, lease = queue.totals, change.lease
    for first, end in _pairs(change.ranges):
        if lease:
            spans = _take_off(queue, lease, first, end)
            for span in spans:
                queue.end_flight(span)
        else:
            spans = _take(queue, first, end)
            if queue.settings.fifo:  # if they waited for a time, so did those behind them
                for span in spans:
                    queue.calm(span.group)
        for span in spans:
            # Dead chunks go at the end, since one that is open may still grow in this commit.
            queue.depth -= span.end - span.first
            span.chunk.live -= span.end - span.first
        if change.cause is Cause.ACKED:
            totals.acked += end - first
        elif change.cause is Cause.RETENTION:
            totals.expired += end - first
        elif change.cause is Cause.DEAD_LETTERED:
            totals.dead_lettered += end - first


def _returned(queue: Queue, change: c.Returned) -> None:
    queue.advance(change.at_ms)
    for first, end in _pairs(change.ranges):
        for span in _take_off(queue, change.lease, first, end):
            come_back(queue, change.lease, span, change.at_ms, change.cause, change.due_ms)


def _purged(queue: Queue, change: c.Purged) -> None:
    purge(queue, change.at_ms)


def _rewritten(queue: Queue, change: c.Rewritten) -> None:
    chunk = queue.lane_of(change.first).log.chunks[change.first]
    chunk.rows, chunk.row_start = [change.row], 0
    chunk.payload_bytes = change.payload_bytes
    chunk.seqs = array(TIME_TYPE, change.seqs)


# -- What is remembered -----------------------------------------------------------------------


def _remembered(owner: Queue | Topic, change: c.Remembered) -> None:
    recent_of(owner).add(change.until_ms, change.keys, change.seqs)


def _produced(owner: Queue | Topic, change: c.Produced) -> None:
    if owner.producers is None:
        owner.producers = Producers()
    owner.producers.remember(
        change.producer, change.number, change.at_ms, change.seqs, change.checksum
    )


def _claim_opened(queue: Queue, change: c.ClaimOpened) -> None:
    consumer = queue.claims.setdefault(change.consumer, Consumer())
    consumer.epoch, consumer.seen_ms = change.epoch, change.at_ms or queue.now_ms


def _claimed(queue: Queue, change: c.Claimed) -> None:
    consumer, at_ms = queue.claims[change.consumer], change.at_ms or queue.now_ms
    consumer.batches[change.number] = ClaimedBatch(change.lease, at_ms)
    consumer.seen_ms = at_ms


def _sealed(queue: Queue, change: c.Sealed) -> None:
    queue.claims[change.consumer].batches[change.number].sealed = True


def _claim_acked(queue: Queue, change: c.ClaimAcked) -> None:
    consumer = queue.claims[change.consumer]
    consumer.acked_through, consumer.seen_ms = change.through, change.at_ms or queue.now_ms
    for number in [number for number in consumer.batches if number <= change.through]:
        del consumer.batches[number]


def _claim_emptied(queue: Queue, change: c.ClaimEmptied) -> None:
    batch = queue.claims[change.consumer].batches[change.number]
    batch.lease, batch.lapsed = 0, change.lapsed


def _claim_forgotten(queue: Queue, change: c.ClaimForgotten) -> None:
    del queue.claims[change.consumer]


def _pause_set(queue: Queue, change: c.PauseSet) -> None:
    queue.paused = change.paused


_STEPS: dict[type[Any], Callable[[Queue, Any], None]] = {
    c.Pushed: _pushed,
    c.Delivered: _delivered,
    c.DeadlineSet: _deadline_set,
    c.Removed: _removed,
    c.Returned: _returned,
    c.Purged: _purged,
    c.Rewritten: _rewritten,
    c.Remembered: _remembered,
    c.Produced: _produced,
    c.ClaimOpened: _claim_opened,
    c.Claimed: _claimed,
    c.Sealed: _sealed,
    c.ClaimAcked: _claim_acked,
    c.ClaimEmptied: _claim_emptied,
    c.ClaimForgotten: _claim_forgotten,
    c.PauseSet: _pause_set,
}


def _by_due(change: c.Pushed, dues: list[int]) -> Iterator[tuple[int, int, int]]:
    """The runs of messages that are due at the same time: first, end, due."""
    first = change.first
    for due_ms, run in groupby(dues):
        end = first + sum(1 for _ in run)
        yield first, end, due_ms
        first = end


def _take(queue: Queue, first: int, end: int) -> list[Span]:
    """Take messages out of the line, or off the schedule."""
    lane = queue.lane_of(first)
    line = lane.line
    before, taken = line.count, []
    if isinstance(line, Line):
        taken = line.cut_run(first, end)
    else:
        for chunk in lane.log.chunks_from(first):
            if chunk.first >= end:
                break
            taken += line.cut_in_chunk(chunk, max(first, chunk.first), min(end, chunk.end))
    if before - line.count == end - first:
        return taken
    if lane.scheduled:
        for span in list(lane.scheduled.between(first, end)):
            low, high = max(first, span.first), min(end, span.end)
            taken.append(span.part(low, high))
            queue.cut_scheduled(span, low, high)
    return _checked(taken, first, end)


def _take_off(queue: Queue, lease: int, first: int, end: int) -> list[Span]:
    """Take messages off their lease."""
    held = queue.leases.get(lease)
    if held is not None and len(held) == 1 and held[0].first == first and held[0].end == end:
        del queue.leases[lease]
        return held
    return detach(queue, lease, _on_lease(queue, lease, first, end))


def _on_lease(queue: Queue, lease: int, first: int, end: int) -> list[Span]:
    """The messages of a range as parts of the spans of their lease."""
    parts = [
        span
        if first <= span.first and span.end <= end
        else span.part(max(first, span.first), min(end, span.end))
        for span in queue.on_lease(lease, first, end)
    ]
    return _checked(parts, first, end)


def _checked(spans: list[Span], first: int, end: int) -> list[Span]:
    if sum(span.end - span.first for span in spans) != end - first:
        raise DataCorrupt(
            f"the journal tells of messages {first} to {end}, which are not where it says",
            "run nexo doctor --data DIR to see what else is wrong, or restore a backup",
        )
    return spans


def _pairs(ranges: c.Ranges) -> Iterator[tuple[int, int]]:
    return ((ranges[at], ranges[at + 1]) for at in range(0, len(ranges), 2))


def _unknown(change: object) -> DataCorrupt:
    return DataCorrupt(f"the journal has a change that this version does not know: {change}")
