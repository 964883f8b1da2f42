"""Failure: a message comes back, waits out a backoff, or is out of attempts.

A nack and a missed deadline are the same thing here; only the reason differs. What was given back
unseen (a consumer closed with messages still in its prefetch) is no failure and counts for nothing.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from nexo.machine import life
from nexo.machine.ack import attach, detach, holding, index_of
from nexo.machine.events import add_event
from nexo.machine.groups import END
from nexo.machine.queue import Doomed
from nexo.machine.span import History
from nexo.vocabulary import limits
from nexo.vocabulary.changes import DeadlineSet, Returned
from nexo.vocabulary.errors import InvalidArgument
from nexo.vocabulary.states import Cause, EventKind, State

if TYPE_CHECKING:
    from nexo.machine.queue import Queue
    from nexo.machine.span import Span
    from nexo.vocabulary.settings import Backoff

REASONS = {
    Cause.RETRANSMIT_TIMEOUT: "no reception ack within the retransmit timeout",
    Cause.VISIBILITY_TIMEOUT: "no processing ack within the visibility timeout",
    Cause.NACKED: "nacked",
    Cause.RELEASED: "released by an operator",
}


def nack(
    queue: Queue,
    lease: int,
    first: int,
    end: int,
    now_ms: int,
    delay_ms: int | None = None,
    reason: str = "",
) -> list[int]:
    """The work failed. Without a delay the queue's backoff decides; 0 is at once."""
    now_ms = queue.advance(now_ms)
    if delay_ms is not None and not 0 <= delay_ms < queue.settings.retention_ms:
        raise InvalidArgument("a nack's delay must be shorter than the queue's retention")
    chosen = holding(queue, lease, first, end, life.NACKABLE, "nack")
    applied = [bound for span in chosen for bound in (span.first, span.end)]
    for span in detach(queue, lease, chosen):
        fail(queue, lease, span, now_ms, Cause.NACKED, reason, delay_ms)
    return applied


def give_back(queue: Queue, lease: int, first: int, end: int, now_ms: int) -> list[int]:
    """The consumer leaves without having looked: back in line, as if never delivered."""
    now_ms = queue.advance(now_ms)
    chosen = holding(queue, lease, first, end, life.GIVEN_BACK, "give back")
    applied = [bound for span in chosen for bound in (span.first, span.end)]
    for span in detach(queue, lease, chosen):
        come_back(queue, lease, span, now_ms, Cause.GIVEN_BACK, 0)
    return applied


def give_back_lease(queue: Queue, lease: int, now_ms: int, spans_max: int = END) -> int:
    """The same for all of a lease that is still its consumer's, or for so many runs of it. Returns
    how many runs that were: as many as allowed, if there may be more."""
    now_ms = queue.advance(now_ms)
    own = (span for span in queue.leases.get(lease, ()) if span.state in life.GIVEN_BACK)
    chosen = list(islice(own, spans_max))
    for span in detach(queue, lease, chosen) if chosen else ():
        come_back(queue, lease, span, now_ms, Cause.GIVEN_BACK, 0)
    return len(chosen)


def fail(
    queue: Queue,
    lease: int,
    span: Span,
    now_ms: int,
    cause: Cause,
    reason: str = "",
    delay_ms: int | None = None,
) -> None:
    """Messages that were taken off their lease because their delivery failed."""
    settings, history = queue.settings, span.history
    assert history is not None, "a delivery counts as an attempt"
    reason = (reason or REASONS[cause])[: limits.REASON_CHARS_MAX]
    if settings.max_attempts is not None and history.attempts >= settings.max_attempts:
        mark_doomed(queue, lease, span, now_ms, reason, cause)
        return
    if delay_ms is None:
        delay_ms = backoff_ms(settings.backoff, history.attempts, span.first)
    come_back(queue, lease, span, now_ms, cause, now_ms + delay_ms if delay_ms else 0, reason)


def mark_doomed(
    queue: Queue, lease: int, span: Span, now_ms: int, reason: str, cause: Cause = Cause.RELEASED
) -> None:
    """Out of attempts: the messages stay in flight until the move to the dead letters is done.

    The journal knows them as leased and overdue, so after a crash the move starts again."""
    assert span.state in life.DOOMABLE, f"{span} is out of attempts"
    _count(queue, span, now_ms, cause, reason)
    span.state = State.DOOMED
    span.deadline_ms = now_ms
    overdue = DeadlineSet(lease, (span.first, span.end), State.RECEIVED, now_ms, failed=cause)
    queue.changes.append(overdue)
    attach(queue, lease, span)
    queue.doomed.append(Doomed(lease, span, reason, now_ms))


def spare(queue: Queue, doomed: Doomed, now_ms: int) -> None:
    """Out of attempts, and nowhere to go: back in line, to be delivered again."""
    lease, span = doomed.lease, doomed.span
    assert span.state in life.SPARED, f"{span} is out of attempts"
    held = queue.leases.get(lease)
    if held is not None and held[index_of(held, span.first)] is span:  # else a purge came first
        detach(queue, lease, [span])
        come_back(queue, lease, span, queue.advance(now_ms), Cause.RELEASED, 0)


def come_back(
    queue: Queue,
    lease: int,
    span: Span,
    now_ms: int,
    cause: Cause,
    due_ms: int,
    reason: str = "",
) -> None:
    """Back to the old place in line, or aside until it is due."""
    _count(queue, span, now_ms, cause, reason)
    assert span.history is not None
    span.history = history_after(span.history, cause, now_ms)
    queue.end_flight(span)
    queue.changes.append(Returned(lease, cause, now_ms, due_ms, (span.first, span.end)))
    span.consumer = ""
    span.deadline_ms = 0
    span.timed_out_lease = lease if cause is Cause.VISIBILITY_TIMEOUT else 0
    if due_ms:
        queue.schedule(span, due_ms)
    else:
        queue.enter(span)


def _count(queue: Queue, span: Span, now_ms: int, cause: Cause, reason: str) -> None:
    """A failure counts, and is told, whether the messages come back or leave for good."""
    if cause is Cause.NACKED:
        queue.totals.nacked += span.end - span.first
    elif cause in TIMED_OUT:
        queue.totals.timed_out += span.end - span.first
    if queue.events is not None:
        add_event(queue, _kind(cause), span, now_ms, reason or cause.name.lower())


def _kind(cause: Cause) -> EventKind:
    if cause in TIMED_OUT:
        return EventKind.TIMED_OUT
    return EventKind.NACKED if cause is Cause.NACKED else EventKind.RETURNED


TIMED_OUT = frozenset({Cause.RETRANSMIT_TIMEOUT, Cause.VISIBILITY_TIMEOUT, Cause.CLAIM_LAPSED})
_UNSEEN = frozenset({Cause.GIVEN_BACK, Cause.CLAIM_LAPSED})


def history_after(history: History, cause: Cause, now_ms: int) -> History | None:
    """What a message remembers when it comes back: nothing of a delivery that nobody saw."""
    if cause not in _UNSEEN:
        return History(
            history.attempts,
            history.first_delivered_ms,
            history.first_failed_ms or now_ms,
        )
    if history.attempts == 1:
        return None
    return History(history.attempts - 1, history.first_delivered_ms, history.first_failed_ms)


def backoff_ms(backoff: Backoff | None, attempts: int, seq: int) -> int:
    """How long to wait after that many attempts. The jitter follows from the message's number,
    so the same failure waits the same time in every replay."""
    if backoff is None:
        return 0
    exponent = min(attempts - 1, 64)
    wait_ms = min(backoff.max_ms, backoff.initial_ms * backoff.factor**exponent)
    mixed = ((seq * 2654435761 + attempts * 40503) & 0xFFFFFFFF) * 2246822519 & 0xFFFFFFFF
    return int(wait_ms * (1 - backoff.jitter * mixed / 2**32))
