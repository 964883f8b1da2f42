"""Looking without taking: the messages of a queue, whatever their state, and its figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from nexo.machine.chunk import Chunk
from nexo.machine.expire import oldest_in_line_ms
from nexo.machine.pop import message_at
from nexo.machine.span import Span
from nexo.vocabulary import limits
from nexo.vocabulary.errors import InvalidArgument
from nexo.vocabulary.states import State

if TYPE_CHECKING:
    from nexo.machine.queue import Queue
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
    expired: int
    dead_lettered: int
    claimed: dict[str, int]  # messages held by each Spark consumer …
    unsealed: int = 0  # … and how many of all those fall back unless it is heard of
    unreadable: int = 0  # the disk could not give them: they stand aside


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


def everything(queue: Queue) -> list[Glance]:
    """All messages of the queue that are on disk, in the order of their numbers, the highest
    priority first."""
    seen = [
        Glance(span.first, span.end, span.chunk, span, State.READY, 0, 0)
        for lane in queue.lanes
        for span in lane.line.spans()
    ]
    seen += [
        Glance(span.first, span.end, span.chunk, span, State.SCHEDULED, due_ms, 0)
        for due_ms, _, span in queue.scheduled
    ]
    for lease, held in queue.leases.items():
        for span in held if isinstance(held, list) else (held,):
            seen.append(Glance(span.first, span.end, span.chunk, span, span.state, 0, lease))
    settled = {lane.priority: lane.log.settled for lane in queue.lanes}
    order = {lane.priority: rank for rank, lane in enumerate(queue.lanes)}
    seen.sort(key=lambda each: (order[queue.lane_of(each.first).priority], each.first))
    shown = []
    for each in seen:
        end = min(each.end, settled[queue.lane_of(each.first).priority])
        if each.first < end:
            shown.append(each if end == each.end else msgspec.structs.replace(each, end=end))
    return shown


def show(queue: Queue, glances: list[Glance]) -> list[Message]:
    """The messages of a glance; their contents are in memory."""
    return [_message(queue, each, seq) for each in glances for seq in range(each.first, each.end)]


def _message(queue: Queue, seen: Glance, seq: int) -> Message:
    chunk, span = seen.chunk, seen.span
    assert chunk.content is not None
    return message_at(
        queue.incarnation,
        chunk.content,
        chunk.index(seq),
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
    unsealed = 0
    for name, consumer in queue.claims.items():
        held = [b for b in consumer.batches.values() if b.lease]
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
        expired=totals.expired,
        dead_lettered=totals.dead_lettered,
        claimed=claimed,
        unsealed=unsealed,
        unreadable=queue.aside_count,
    )


def _messages(lease: Span | list[Span]) -> int:
    spans = lease if isinstance(lease, list) else [lease]
    return sum(span.end - span.first for span in spans)


def _oldest_ms(queue: Queue) -> int | None:
    """When the oldest message came: the head of the line, the longest lease, the next schedule.
    One of these is the oldest unless messages overtook each other, which is near enough."""
    times = []
    in_line = oldest_in_line_ms(queue)
    if in_line is not None:
        times.append(in_line)
    held = next(iter(queue.leases.values()), None)
    candidates = held if isinstance(held, list) else [held] if held is not None else []
    if queue.scheduled:
        candidates = [*candidates, queue.scheduled[0][2]]
    times += [span.chunk.created_ms(span.first) for span in candidates]
    return min(times) if times else None
