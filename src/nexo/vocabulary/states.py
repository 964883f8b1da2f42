"""The states of a message's life, why it left, and the kinds of events told of it.

The numbers are written to disk: never change one, only add.
"""

from __future__ import annotations

from enum import IntEnum


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


class EventKind(IntEnum):
    PUSHED = 0
    DELIVERED = 1
    RECEIVED = 2
    ACKED = 3
    NACKED = 4
    EXPIRED = 5
    DEAD_LETTERED = 6
    REDRIVEN = 7
    PURGED = 8
    DEDUPLICATED = 9
