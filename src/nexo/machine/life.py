"""The life of a message as data: which action leads from which state to which.

The rules ask this table whether an action is allowed, by the sets of states that are made from it
below, and the picture in the documentation is drawn from it: none of them can drift from another.
"""

from __future__ import annotations

from typing import NamedTuple

from nexo.vocabulary.states import State


class Transition(NamedTuple):
    before: State
    action: str
    after: State
    note: str = ""


TRANSITIONS = (
    Transition(State.SCHEDULED, "due", State.READY),
    Transition(State.READY, "pop", State.SENT, "two acks"),
    Transition(State.READY, "pop", State.RECEIVED, "one ack"),
    Transition(State.READY, "claim", State.CLAIMED),
    Transition(State.READY, "retention", State.GONE),
    Transition(State.READY, "move", State.MOVING, "redrive"),
    Transition(State.SENT, "received", State.RECEIVED),
    Transition(State.SENT, "nack", State.READY, "or SCHEDULED"),
    Transition(State.SENT, "give back", State.READY),
    Transition(State.SENT, "retransmit timeout", State.READY, "or SCHEDULED"),
    Transition(State.SENT, "out of attempts", State.DOOMED),
    Transition(State.RECEIVED, "ack", State.GONE),
    Transition(State.RECEIVED, "extend", State.RECEIVED),
    Transition(State.RECEIVED, "nack", State.READY, "or SCHEDULED"),
    Transition(State.RECEIVED, "give back", State.READY),
    Transition(State.RECEIVED, "visibility timeout", State.READY, "or SCHEDULED"),
    Transition(State.RECEIVED, "out of attempts", State.DOOMED),
    Transition(State.CLAIMED, "seal", State.SEALED),
    Transition(State.CLAIMED, "claim lapsed", State.READY),
    Transition(State.CLAIMED, "release", State.READY, "or DOOMED"),
    Transition(State.CLAIMED, "claim ack", State.GONE),
    Transition(State.SEALED, "claim ack", State.GONE),
    Transition(State.SEALED, "release", State.READY, "or DOOMED"),
    Transition(State.DOOMED, "dead letter", State.GONE, "lives on in the dead-letter queue"),
    Transition(State.DOOMED, "spare", State.READY, "the dead-letter queue was deleted"),
    Transition(State.MOVING, "arrive", State.GONE, "lives on in the target queue"),
    Transition(State.MOVING, "cancel", State.READY),
)


def states_before(*actions: str) -> frozenset[State]:
    """The states in which one of these actions is allowed."""
    return frozenset(step.before for step in TRANSITIONS if step.action in actions)


def states_after(action: str) -> frozenset[State]:
    """The states to which an action leads."""
    return frozenset(step.after for step in TRANSITIONS if step.action == action)


# What a consumer says of its messages.
ACKABLE = states_before("ack")
NACKABLE = states_before("nack")
EXTENDABLE = states_before("extend")
RECEIVABLE = states_before("received")
GIVEN_BACK = states_before("give back")
# A claim's messages are not a consumer's to touch, nor are those on their way to another queue.
CONSUMERS_OWN = states_after("pop")
# What time ends: these have a deadline.
RETRANSMITTED = states_before("retransmit timeout")
VISIBLE_AGAIN = states_before("visibility timeout")
LAPSING = states_before("claim lapsed")
TIMED = RETRANSMITTED | VISIBLE_AGAIN | LAPSING
# What becomes of claims.
SEALABLE = states_before("seal")
CLAIM_ACKABLE = states_before("claim ack")
RELEASABLE = states_before("release")
# What moves to another queue.
DOOMABLE = states_before("out of attempts", "release")
DEAD_LETTERS = states_before("dead letter")
SPARED = states_before("spare")
ARRIVING = states_before("arrive")
CANCELLABLE = states_before("cancel")
# What is on a lease, whoever has it.
IN_FLIGHT = frozenset(State) - {State.SCHEDULED, State.READY, State.GONE}
# These need no question, since the place says it: what is in line is READY, what is on the schedule
# SCHEDULED.
BY_PLACE = frozenset({"due", "pop", "claim", "retention", "move"})


def picture() -> str:
    """The table as a Mermaid state diagram."""
    lines = ["stateDiagram-v2", "    [*] --> READY: push", "    [*] --> SCHEDULED: push with delay"]
    for step in TRANSITIONS:
        after = "[*]" if step.after is State.GONE else step.after.name
        note = f" ({step.note})" if step.note else ""
        lines.append(f"    {step.before.name} --> {after}: {step.action}{note}")
    return "\n".join(lines) + "\n"
