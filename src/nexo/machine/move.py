"""A move: messages leave for another queue (dead letters, redrive).

What moves is picked, its content read back if need be, and then one commit takes it out of here
and puts it into the target. Picking is not journaled: after a crash the messages are where they
were, and the move begins again.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

import msgspec

from nexo.machine import life
from nexo.machine.ack import index_of
from nexo.machine.events import add_event
from nexo.machine.groups import END
from nexo.machine.line import Line
from nexo.vocabulary.batch import Batch, DeadLetter, Origin, batch_of
from nexo.vocabulary.changes import Removed
from nexo.vocabulary.identity import first_seq, message_id, priority_of
from nexo.vocabulary.states import Cause, EventKind, State

if TYPE_CHECKING:
    from nexo.machine.queue import Doomed, Queue
    from nexo.machine.span import Span


def pick(queue: Queue, count: int, runs_max: int = END) -> list[tuple[int, Span]]:
    """Take messages in line aside for a move: (lease, span) pairs, in line order."""
    picked: list[tuple[int, Span]] = []
    while count > 0 and len(picked) < runs_max and (lane := queue.next_lane()) is not None:
        span = lane.line.take(count, lane.log.settled)
        picked.append((lease_for_move(queue, span), span))
        count -= span.end - span.first
    return picked


def pick_these(queue: Queue, seqs: list[int]) -> list[tuple[int, Span]]:
    """Take these messages aside for a move, those of them that are in line. `seqs` is in order."""
    picked: list[tuple[int, Span]] = []
    for lane in queue.lanes:
        low, high = first_seq(lane.priority), lane.log.settled
        wanted = seqs[bisect_left(seqs, low) : bisect_left(seqs, high)]
        if isinstance(lane.line, Line):
            spans = lane.line.cut_all(wanted)
        else:
            chunks = [(seq, lane.log.chunk_of(seq)) for seq in wanted]
            found = [lane.line.cut(seq, chunk.group(seq)) for seq, chunk in chunks if chunk]
            spans = [span for span in found if span is not None]
        picked += [(lease_for_move(queue, span), span) for span in spans]
    return picked


def lease_for_move(queue: Queue, span: Span) -> int:
    """Put messages aside for a move."""
    lease = queue.next_lease
    queue.next_lease += 1
    span.state = State.MOVING
    queue.leases[lease] = [span]
    queue.note_lease(span, lease)
    queue.in_flight += span.end - span.first
    if queue.busy is not None:
        queue.busy.add_in_flight(span)
    return lease


def unpick(queue: Queue, lease: int) -> None:
    """The move was cancelled: back to the old place in line."""
    for span in queue.leases.pop(lease, ()):
        assert span.state in life.CANCELLABLE, f"{span} was picked"
        count = span.end - span.first
        queue.in_flight -= count
        if queue.busy is not None and queue.settings.fifo:  # nothing happened: it opens at once
            queue.busy.remove_in_flight(span.group, range(span.first, span.end))
            queue.calm(span.group)
        elif queue.busy is not None:
            queue.calm(span.group, count)
        queue.enter(span)


def is_picked(queue: Queue, lease: int, span: Span) -> bool:
    """Whether what was picked is still there: a purge may have come first."""
    held = queue.leases.get(lease)
    return held is not None and held[0] is span


def take_out(queue: Queue, lease: int, span: Span, cause: Cause, reason: str, now_ms: int) -> bool:
    """Messages leave this queue, in the commit that puts them into another. False if they are no
    longer there (a purge came first)."""
    now_ms = queue.advance(now_ms)
    held = queue.leases.get(lease)
    if held is None or held[at := index_of(held, span.first)] is not span:
        return False
    del held[at]
    if not held:
        del queue.leases[lease]
    count = span.end - span.first
    dead = cause is Cause.DEAD_LETTERED
    assert span.state in (life.DEAD_LETTERS if dead else life.ARRIVING), f"{span} leaves"
    if dead:
        queue.totals.dead_lettered += count
    if queue.events is not None:
        kind = EventKind.DEAD_LETTERED if dead else EventKind.REDRIVEN
        add_event(queue, kind, span, now_ms, reason)
    queue.end_flight(span)
    queue.remove(span.chunk, count)
    # What a move picked was never delivered as far as the journal knows.
    queue.changes.append(Removed(lease if dead else 0, cause, (span.first, span.end)))
    return True


def dead_letters(queue: Queue, doomed: Doomed) -> Batch:
    """The batch that arrives in the dead-letter queue."""
    history = doomed.span.history
    assert history is not None
    fate = DeadLetter(
        reason=doomed.reason,
        source=queue.name,
        attempts=history.attempts,
        first_failed_ms=history.first_failed_ms or doomed.at_ms,
        last_failed_ms=doomed.at_ms,
        consumer=doomed.span.consumer,
    )
    return _batch(queue, doomed.span, fate)


def redriven(queue: Queue, span: Span) -> Batch:
    """The batch that goes back to work: the same messages, with a clean history."""
    return _batch(queue, span, None)


def carried(queue: Queue, span: Span) -> Batch:
    """The batch that goes on to where it was sent: the same messages with what is known of them.
    When they came is said with each of them."""
    return msgspec.structs.replace(_batch(queue, span, None, keeps_fate=True), created=None)


def with_bodies(batch: Batch, bodies: list[bytes]) -> Batch:
    """The same messages with other bodies."""
    fresh = batch_of(bodies)
    return msgspec.structs.replace(batch, payload=fresh.payload, offsets=fresh.offsets)


def sources(span: Span) -> list[str | None]:
    """Which queue each dead letter came from."""
    content, start = span.chunk.content, span.chunk.index(span.first)
    assert content is not None
    found: list[str | None] = []
    for index in range(start, start + span.end - span.first):
        origin = content.origins[index] if content.origins else None
        fate = origin.dead_letter if origin else None
        found.append(fate.source if fate else None)
    return found


def _batch(queue: Queue, span: Span, fate: DeadLetter | None, keeps_fate: bool = False) -> Batch:
    chunk = span.chunk
    content, start = chunk.content, chunk.index(span.first)
    assert content is not None, "the content is read back before a move"
    count = span.end - span.first
    cut = (
        content.slice(start, start + count)
        if isinstance(content, Batch)
        else content.cut(start, start + count)
    )
    origins: list[Origin | None] = []
    for offset in range(count):
        known = cut.origins[offset] if cut.origins else None
        seq = span.first + offset
        origins.append(
            Origin(known.id, known.created_ms, known.dead_letter if keeps_fate else fate)
            if known
            else Origin(message_id(queue.incarnation, seq), chunk.created_ms(seq), fate)
        )
    return msgspec.structs.replace(
        cut, priority=priority_of(span.first), delay_ms=0, origins=origins
    )


def split(queue: Queue, lease: int, span: Span, end: int) -> tuple[int, Span]:
    """Make the first part of what was picked, up to `end`, a pick of its own."""
    if end == span.end:
        return lease, span
    part = span.part(span.first, end)
    span.first = end
    own = queue.next_lease
    queue.next_lease += 1
    queue.leases[own] = [part]
    queue.note_lease(part, own)
    return own, part
