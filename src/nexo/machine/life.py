"""The life of a message as data: which action leads from which state to which.

The rules ask this table whether an action is allowed, and the picture in the documentation is
drawn from it, so neither can drift from the other.
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
    Transition(State.MOVING, "arrive", State.GONE, "lives on in the target queue"),
    Transition(State.MOVING, "cancel", State.READY),
)


def states_before(action: str) -> frozenset[State]:
    """The states in which an action is allowed."""
    return frozenset(step.before for step in TRANSITIONS if step.action == action)


ACKABLE = states_before("ack")
NACKABLE = states_before("nack")
EXTENDABLE = states_before("extend")
RECEIVABLE = states_before("received")
GIVEN_BACK = states_before("give back")


def picture() -> str:
    """The table as a Mermaid state diagram."""
    lines = ["stateDiagram-v2", "    [*] --> READY: push", "    [*] --> SCHEDULED: push with delay"]
    for step in TRANSITIONS:
        after = "[*]" if step.after is State.GONE else step.after.name
        note = f" ({step.note})" if step.note else ""
        lines.append(f"    {step.before.name} --> {after}: {step.action}{note}")
    return "\n".join(lines) + "\n"
