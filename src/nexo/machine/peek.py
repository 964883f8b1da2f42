"""Looking without taking: the messages of a queue, whatever their state, and its figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from nexo.machine.chunk import Chunk
from nexo.machine.deadlines import oldest_in_line_ms
from nexo.machine.pop import message_at
from nexo.machine.span import Span
from nexo.vocabulary import limits
from nexo.vocabulary.errors import InvalidArgument
from nexo.vocabulary.identity import priority_of
from nexo.vocabulary.states import State

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nexo.machine.queue import Lane, Queue
    from nexo.vocabulary.batch import Batch
    from nexo.vocabulary.message import Message


class Glance(msgspec.Struct, frozen=True):
    """A span and what is to be said of it; `chunk` content may have to be read back."""

    first: int
    end: int
    chunk: Chunk
    span: Span
    state: State
    due_ms: int
    lease: int


class Info(msgspec.Struct, frozen=True):
    """The figures of a queue."""

    depth: int
    ready: int
    scheduled: int
    in_flight: int
    oldest_age_ms: int
    paused: bool
    pushed: int
    delivered: int
    acked: int
    nacked: int
    timed_out: int
    expired: int
    dead_lettered: int
    claimed: dict[str, int]  # messages held by each Spark consumer …
    unsealed: int = 0  # … and how many of all those fall back unless it is heard of
    unreadable: int = 0  # the disk could not give them: they stand aside
    claimed_age_ms: dict[str, int] = {}  # how long each of those who hold some has held the first


def glance(queue: Queue, limit: int) -> list[Glance]:
    """The first messages of the queue in the order of their numbers, ready, scheduled or in
    flight; the highest priority first. Only what is on disk is shown."""
    if not 0 < limit <= limits.PEEK_MESSAGES_MAX:
        raise InvalidArgument(f"a peek shows 1 to {limits.PEEK_MESSAGES_MAX} messages")
    shown = []
    for each in everything(queue):
        end = min(each.end, each.first + limit)
        shown.append(msgspec.structs.replace(each, end=end))
        limit -= end - each.first
        if limit <= 0:
            break
    return shown


def everything(queue: Queue, after: int | None = None) -> Iterator[Glance]:
    """All messages of the queue that are on disk, or those behind number `after`, in the order of
    their numbers, the highest priority first. What is not asked for is not looked at."""
    last: Glance | None = None
    for lane in queue.lanes:
        low = 0 if after is None else after + 1
        if after is not None and lane.priority != priority_of(after):
            if lane.priority > priority_of(after):
                continue
            low = 0
        for chunk in lane.log.chunks_from(low):
            for each in _in_chunk(queue, lane, chunk, low):
                if last is not None and last.span is each.span and last.end == each.first:
                    last = msgspec.structs.replace(last, end=each.end)
                    continue
                if last is not None:
                    yield last
                last = each
    if last is not None:
        yield last


def in_chunk(queue: Queue, chunk: Chunk) -> Iterator[Glance]:
    """The messages of one chunk, in order."""
    return _in_chunk(queue, queue.lane_of(chunk.first), chunk, chunk.first)


def find(queue: Queue, seq: int) -> Glance | None:
    """Where a message is: the span that holds it. None if it is gone, or not on disk yet."""
    lane = queue.lanes_by_priority.get(seq >> limits.SEQUENCE_BITS)
    chunk = lane.log.chunk_of(seq) if lane is not None and seq < lane.log.settled else None
    if lane is None or chunk is None:
        return None
    span = lane.line.find(seq, chunk.group(seq) if queue.busy is not None else None)
    if span is not None:
        return Glance(span.first, span.end, chunk, span, State.READY, 0, 0)
    span = lane.scheduled.find(seq)
    if span is not None:
        return Glance(span.first, span.end, chunk, span, State.SCHEDULED, span.deadline_ms, 0)
    for lease in reversed((chunk.leases or {}).get(chunk.piece(seq), ())):
        for span in queue.on_lease(lease, seq, seq + 1):
            return Glance(span.first, span.end, chunk, span, span.state, 0, lease)
    return None


def _in_chunk(queue: Queue, lane: Lane, chunk: Chunk, low: int) -> Iterator[Glance]:
    """The messages of a chunk from a number on, looked for a piece at a time: a peek needs few, and
    a chunk may have very many."""
    first, end = max(low, chunk.first), min(chunk.end, lane.log.settled)
    while first < end:
        piece = chunk.piece(first)
        stop = min(end, chunk.first + (piece + 1 << limits.PIECE_BITS))
        found: list[tuple[Span, State, int, int]] = [
            (span, State.READY, 0, 0) for span in lane.line.in_chunk(chunk, first, stop)
        ]
        found += [
            (span, State.SCHEDULED, span.deadline_ms, 0)
            for span in lane.scheduled.between(first, stop)
        ]
        for lease in dict.fromkeys((chunk.leases or {}).get(piece, ())):
            spans = queue.on_lease(lease, first, stop)
            found += [(span, span.state, 0, lease) for span in spans]
        found.sort(key=_by_first)
        for span, state, due_ms, lease in found:
            start, until = max(first, span.first), min(stop, span.end)
            yield Glance(start, until, chunk, span, state, due_ms, lease)
        first = stop


def _by_first(place: tuple[Span, State, int, int]) -> int:
    return place[0].first


def show(queue: Queue, glances: list[Glance]) -> list[Message]:
    """The messages of a glance; their contents are in memory."""
    return [shown(queue, each, seq) for each in glances for seq in range(each.first, each.end)]


def shown(queue: Queue, seen: Glance, seq: int, alone: Batch | None = None) -> Message:
    """One message of a glance. `alone` is the batch of it alone, where not all of it is shown."""
    chunk, span = seen.chunk, seen.span
    content = alone if alone is not None else chunk.content
    assert content is not None
    return message_at(
        queue.incarnation,
        content,
        0 if alone is not None else chunk.index(seq),
        seq,
        chunk.created_ms(seq),
        seen.state,
        span.history,
        visible_ms=span.deadline_ms if seen.lease else 0,
        lease=seen.lease,
        delayed_until_ms=seen.due_ms,
    )


def info(queue: Queue, now_ms: int) -> Info:
    totals = queue.totals
    oldest_ms = _oldest_ms(queue)
    claimed: dict[str, int] = {}
    ages_ms: dict[str, int] = {}
    unsealed = 0
    for name, consumer in queue.claims.items():
        if consumer.is_over(now_ms):
            continue  # it is forgotten when the next one opens
        held = consumer.held()
        if held:
            ages_ms[name] = max(0, now_ms - min(batch.since_ms for batch in held))
        claimed[name] = sum(_messages(queue.leases[batch.lease]) for batch in held)
        unsealed += sum(_messages(queue.leases[b.lease]) for b in held if not b.sealed)
    return Info(
        depth=queue.depth,
        ready=queue.ready,
        scheduled=queue.scheduled_count,
        in_flight=queue.in_flight,
        oldest_age_ms=max(0, now_ms - oldest_ms) if oldest_ms is not None else 0,
        paused=queue.paused,
        pushed=totals.pushed,
        delivered=totals.delivered,
        acked=totals.acked,
        nacked=totals.nacked,
        timed_out=totals.timed_out,
        expired=totals.expired,
        dead_lettered=totals.dead_lettered,
        claimed=claimed,
        unsealed=unsealed,
        claimed_age_ms=ages_ms,
        unreadable=queue.aside_count,
    )


def _messages(spans: list[Span]) -> int:
    return sum(span.end - span.first for span in spans)


def _oldest_ms(queue: Queue) -> int | None:
    """When the oldest message came: the head of the line, the longest lease, the next schedule.
    One of these is the oldest unless messages overtook each other, which is near enough."""
    times = []
    in_line = oldest_in_line_ms(queue)
    if in_line is not None:
        times.append(in_line)
    candidates = next(iter(queue.leases.values()), [])
    if queue.scheduled_count:
        next_due = next(span for _, _, span in queue.scheduled if span.first < span.end)
        candidates = [*candidates, next_due]
    times += [span.chunk.created_ms(span.first) for span in candidates]
    return min(times) if times else None
