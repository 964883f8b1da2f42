"""The events of a queue: what is told to the world about its messages is written here alone.

A queue whose `events` are None tells nothing. Rules ask that first, so that they do not pay for
what nobody hears.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nexo.vocabulary.events import Event
from nexo.vocabulary.states import EventKind

if TYPE_CHECKING:
    from nexo.machine.queue import Queue
    from nexo.machine.span import Span


def add_event(queue: Queue, kind: EventKind, span: Span, now_ms: int, reason: str = "") -> None:
    """Something happened to the messages of a span."""
    assert queue.events is not None
    queue.events.append(
        Event(
            kind=kind,
            queue=queue.name,
            first_seq=span.first,
            count=span.end - span.first,
            at_ms=now_ms,
            created_ms=span.chunk.created_ms(span.first),
            attempts=span.history.attempts if span.history is not None else 0,
            consumer=span.consumer,
            reason=reason,
            delivered_ms=span.delivered_ms,
        )
    )


def add_pushed(queue: Queue, first: int, end: int, now_ms: int, created_ms: int) -> None:
    """Messages came."""
    _add(queue, EventKind.PUSHED, first, end - first, now_ms, created_ms)


def add_deduplicated(queue: Queue, seq: int, now_ms: int) -> None:
    """A push repeated this message."""
    _add(queue, EventKind.DEDUPLICATED, seq, 1, now_ms, now_ms)


def add_purged(queue: Queue, count: int, now_ms: int) -> None:
    """All messages are gone; so many they were."""
    _add(queue, EventKind.PURGED, 0, count, now_ms, now_ms)


def _add(
    queue: Queue, kind: EventKind, first_seq: int, count: int, now_ms: int, created_ms: int
) -> None:
    """Messages of which nobody has been given any."""
    assert queue.events is not None
    queue.events.append(
        Event(
            kind=kind,
            queue=queue.name,
            first_seq=first_seq,
            count=count,
            at_ms=now_ms,
            created_ms=created_ms,
            attempts=0,
            consumer="",
            reason="",
        )
    )
