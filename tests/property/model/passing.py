"""The model's view of time passing, and of messages leaving for another queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nexo.vocabulary.batch import DeadLetter, Origin
from nexo.vocabulary.identity import message_id
from nexo.vocabulary.states import Cause, State
from tests.property.model.delivery import come_back_unseen, fail

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.property.model.state import Item, Model

TIMED_OUT = {
    State.SENT: (
        Cause.RETRANSMIT_TIMEOUT,
        "no reception ack within the retransmit timeout",
    ),
    State.RECEIVED: (
        Cause.VISIBILITY_TIMEOUT,
        "no processing ack within the visibility timeout",
    ),
}


def run_due(model: Model, now: int) -> None:
    """Everything that is due by now but retention, which `retire` checks."""
    now = model.advance(now)
    for item in model.in_state(State.SCHEDULED):
        if item.due <= now:
            item.state, item.due, item.was_due = State.READY, 0, item.due
    for item in model.in_state(State.SENT, State.RECEIVED):
        if item.deadline <= now:
            fail(model, item, *TIMED_OUT[item.state])
    for item in model.in_state(State.CLAIMED):
        if item.deadline <= now:
            lapse(model, item)
    model.keys = {key: entry for key, entry in model.keys.items() if entry[0] > now}


def lapse(model: Model, item: Item) -> None:
    for consumer in model.consumers.values():
        for batch in consumer.batches.values():
            if batch.lease == item.lease:
                batch.lease, batch.lapsed = 0, True
    model.totals["timed_out"] += 1
    come_back_unseen(model, item)


def retire(model: Model, left: set[int], times: dict[int, int]) -> None:
    """Check what retention took; `left` are the messages that the rules still have.

    Only what waits in line may go, and all that is too old must, whether or not it is its turn. For
    what a topic shares it counts from when that was published, or came, which is the same commit.
    While the content of a message is not in memory the rules know only when the last one of its
    chunk came, and count from that: `times`."""
    cutoff = model.now - model.settings.retention_ms
    waiting = _waiting(model)
    # A failed message whose jitter may have made its wait nothing can be in line already.
    perhaps = [i for i in model.in_state(State.SCHEDULED) if i.due_latest and i.due <= model.now]
    may = {item.seq for item in (*waiting, *perhaps) if item.created <= cutoff}
    must = {item.seq for item in waiting if times[item.seq] <= cutoff}
    gone = set(model.items) - left
    assert gone <= may, f"retention took {sorted(gone - may)}, which are young or not in line"
    assert must <= gone, f"retention left {sorted(must - gone)}, which are too old"
    for seq in gone:
        del model.items[seq]
    model.totals["expired"] += len(gone)


def next_due(model: Model, times: dict[int, int]) -> int | None:
    """When something has to happen next, by the promises of the queue."""
    due = [item.due for item in model.in_state(State.SCHEDULED)]
    leased = model.in_state(State.SENT, State.RECEIVED, State.CLAIMED)
    due += [item.deadline for item in leased]
    due += [times[item.seq] + model.settings.retention_ms for item in _waiting(model)]
    return min(due, default=None)


def _waiting(model: Model) -> list[Item]:
    """What is in line and on disk."""
    return [item for item in model.in_state(State.READY) if item.settled]


# -- Moves ------------------------------------------------------------------------------------


def pick(model: Model, lease: int, seqs: Sequence[int]) -> None:
    for seq in seqs:
        item = model.items[seq]
        item.state, item.lease, item.deadline = State.MOVING, lease, 0


def unpick(model: Model, lease: int) -> None:
    """A move was cancelled. Nothing happened, so a FIFO group opens at once."""
    for item in model.of_lease(lease):
        item.state, item.lease = State.READY, 0


def depart(model: Model, seqs: Sequence[int], dead: bool) -> None:
    for seq in seqs:
        item = model.items[seq]
        model.land(item)
        model.remove(item)
        model.totals["dead_lettered"] += dead


def origin_of(model: Model, item: Item, incarnation: int, source: str, dead: bool) -> Origin:
    """What a message takes along when it moves: its id and birth, and why it died."""
    fate = DeadLetter(
        item.reason,
        source,
        item.attempts,
        item.first_failed or item.deadline,
        item.deadline,
        item.consumer,
    )
    known = item.origin
    return Origin(
        known.id if known else message_id(incarnation, item.seq),
        known.created_ms if known else item.created,
        fate if dead else None,
    )
