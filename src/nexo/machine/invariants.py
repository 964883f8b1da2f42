"""What must hold of a queue after every step, checked from scratch. For tests and simulation."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from nexo.machine.fifo import FifoLine
from nexo.machine.groups import GroupedLine
from nexo.machine.life import IN_FLIGHT, TIMED
from nexo.vocabulary.states import State

if TYPE_CHECKING:
    from nexo.machine.chunk import Chunk
    from nexo.machine.queue import Queue
    from nexo.machine.span import Span


def check(queue: Queue) -> None:
    """Every message is in exactly one place, and every count agrees with what it counts."""
    ready = [(span, State.READY) for lane in queue.lanes for span in lane.line.spans()]
    scheduled = [(span, State.SCHEDULED) for lane in queue.lanes for span in lane.scheduled.spans()]
    leased: list[tuple[Span, State]] = []
    for held in queue.leases.values():
        assert held, "an empty lease"
        firsts = [span.first for span in held]
        assert firsts == sorted(firsts), f"a lease out of order: {held}"
        for span in held:
            assert span.state in IN_FLIGHT, f"{span} on a lease"
            assert span.history is not None or span.state is State.MOVING
            leased.append((span, span.state))
    aside = [(span, State.READY) for spans in queue.aside.values() for span in spans]
    places = ready + scheduled + leased + aside
    _check_disjoint([span for span, _ in places])
    counts = [
        sum(span.end - span.first for span, _ in place)
        for place in (ready, scheduled, leased, aside)
    ]
    assert counts[0] == queue.ready, f"{counts[0]} in line, counted {queue.ready}"
    assert counts[1] == queue.scheduled_count, f"{counts[1]} != {queue.scheduled_count} scheduled"
    assert counts[2] == queue.in_flight, f"{counts[2]} != {queue.in_flight} in flight"
    assert counts[3] == queue.aside_count, f"{counts[3]} != {queue.aside_count} aside"
    assert sum(counts) == queue.depth, f"{sum(counts)} messages, depth {queue.depth}"
    _check_chunks(queue, [span for span, _ in places])
    _check_deadlines(queue)
    _check_found(queue)
    _check_claims(queue)
    if queue.busy is not None:
        _check_groups(queue)


def _check_disjoint(spans: list[Span]) -> None:
    spans = sorted(spans, key=lambda span: span.first)
    for one, other in itertools.pairwise(spans):
        assert one.end <= other.first, f"{one} and {other} overlap"
    for span in spans:
        assert span.first < span.end, f"{span} is empty"
        chunk = span.chunk
        assert chunk.first <= span.first, f"{span} lies before its chunk"
        assert span.end <= chunk.end, f"{span} lies behind its chunk"


def _check_chunks(queue: Queue, spans: list[Span]) -> None:
    live: dict[Chunk, int] = {}
    for span in spans:
        live[span.chunk] = live.get(span.chunk, 0) + span.end - span.first
    for lane in queue.lanes:
        log, resident = lane.log, 0
        assert log.settled <= log.end
        assert lane.line.count == sum(span.end - span.first for span in lane.line.spans())
        for first, chunk in log.chunks.items():
            assert chunk.first == first
            assert chunk.live == live.pop(chunk, 0), f"chunk {first} counts its live wrong"
            assert chunk.live > 0, f"chunk {first} is dead and still there"
            assert chunk.content is not None or chunk.flushed == chunk.end
            resident += chunk.memory_bytes if chunk.content is not None else 0
        assert log.resident_bytes == resident, f"{log.resident_bytes} != {resident} resident"
    assert not live, f"spans of chunks that are gone: {live}"


def _check_deadlines(queue: Queue) -> None:
    watched: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for deadline_ms, lease, first, end in queue.deadlines + queue.unswept:
        watched.setdefault((deadline_ms, lease), []).append((first, end))
    for lease, held in queue.leases.items():
        for span in held:
            if span.state in TIMED:
                ranges = watched.get((span.deadline_ms, lease), [])
                assert any(low < span.end and span.first < high for low, high in ranges), (
                    f"{span} never times out"
                )


def _check_found(queue: Queue) -> None:
    """What stands somewhere is found there, and what is to be done is known."""
    entries = {id(span): (due_ms, span) for due_ms, _, span in queue.scheduled}
    for lane in queue.lanes:
        for span in lane.scheduled.spans():
            assert entries[id(span)][0] == span.deadline_ms, f"{span} is due at another time"
        if not lane.is_awake:
            assert lane.line.head(lane.log.settled) is None, f"lane {lane.priority} sleeps"
        assert (lane in queue.news) == lane.has_news
    assert queue.awake == [lane for lane in queue.lanes if lane.is_awake]
    for lease, held in queue.leases.items():
        for span in held:
            for seq in (span.first, span.end - 1):
                known = (span.chunk.leases or {}).get(span.chunk.piece(seq), ())
                assert lease in known, f"{span} is not found on its lease"


def _check_claims(queue: Queue) -> None:
    for name, consumer in queue.claims.items():
        for number, batch in consumer.batches.items():
            assert number > consumer.acked_through, f"{name} holds acked batch {number}"
            assert not batch.lease or batch.lease in queue.leases, f"{name}/{number} lost"


def _check_groups(queue: Queue) -> None:
    assert queue.busy is not None
    counts: dict[str | None, int] = {}
    for group, _ in queue.released:
        counts[group] = counts.get(group, 0) + 1
    for held in queue.leases.values():
        for span in held:
            counts[span.group] = counts.get(span.group, 0) + span.end - span.first
    if not queue.settings.fifo:  # in a FIFO queue a commit under way holds some more
        assert counts == queue.busy.counts
    for group, count in counts.items():
        assert queue.busy.counts.get(group, 0) >= count, f"group {group} is not locked"
    assert queue.busy.total == sum(queue.busy.counts.values())
    for lane in queue.lanes:
        assert isinstance(lane.line, GroupedLine)
        stuck = lane.line.stuck(lane.log.settled) if isinstance(lane.line, FifoLine) else []
        assert not stuck, f"groups {stuck} never go on"
