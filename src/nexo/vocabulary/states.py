"""The states of a message's life, why it left, and the kinds of events told of it.

The numbers, and the words of events, are written to disk: never change one, only add.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum


class State(IntEnum):
    SCHEDULED = 0  # waits for its time
    READY = 1  # waits for a consumer
    SENT = 2  # delivered, reception not yet confirmed
    RECEIVED = 3  # reception confirmed, being worked on
    CLAIMED = 4  # promised to a Spark query, which has not planned it yet
    SEALED = 5  # part of a planned micro-batch: only an ack or an operator releases it
    DOOMED = 6  # out of attempts, on its way to the dead-letter queue
    MOVING = 7  # picked by a move to another queue
    GONE = 8


class Cause(IntEnum):
    """Why a message left its queue, or came back to it."""

    ACKED = 0
    RETENTION = 1
    PURGED = 2
    DEAD_LETTERED = 3
    REDRIVEN = 4
    NACKED = 5
    RETRANSMIT_TIMEOUT = 6
    VISIBILITY_TIMEOUT = 7
    GIVEN_BACK = 8
    CLAIM_LAPSED = 9
    RELEASED = 10


class EventKind(StrEnum):
    PUSHED = "pushed"  # came into the queue, whatever the way: a push, a topic, a move
    DELIVERED = "delivered"
    RECEIVED = "received"
    ACKED = "acked"
    NACKED = "nacked"
    RETURNED = "returned"  # came back without a failure: given back unseen, or released
    TIMED_OUT = "timed_out"  # a lease ended by time, which brings the messages back
    EXPIRED = "expired"  # by retention, which ends it; older events also tell of timeouts so
    DEAD_LETTERED = "dead_lettered"
    REDRIVEN = "redriven"
    PURGED = "purged"
    DEDUPLICATED = "deduplicated"  # a push that repeated this message
