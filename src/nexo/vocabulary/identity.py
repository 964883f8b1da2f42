"""Sequence numbers and message ids: both are arithmetic, so neither needs a table.

A sequence number is the priority above a 48-bit counter of its lane, so the numbers of one
priority are contiguous and every number is unique in its queue. A message id is a UUID (version 8,
"custom") that holds the queue's incarnation, a 64-bit number drawn when the queue is created, and
the sequence number.
"""

from __future__ import annotations

from functools import lru_cache

from nexo.vocabulary.errors import InvalidArgument
from nexo.vocabulary.limits import SEQUENCE_BITS

_SEQ_BITS = SEQUENCE_BITS + 8
_COUNTER_MASK = (1 << SEQUENCE_BITS) - 1


def first_seq(priority: int) -> int:
    """The first sequence number of a priority."""
    return priority << SEQUENCE_BITS


def priority_of(seq: int) -> int:
    return seq >> SEQUENCE_BITS


def message_id(incarnation: int, seq: int) -> str:
    """The id of message `seq` of the queue with this incarnation."""
    return f"{id_beginning(incarnation, seq >> SEQUENCE_BITS)}{seq & _COUNTER_MASK:012x}"


@lru_cache(maxsize=1_024)
def id_beginning(incarnation: int, priority: int) -> str:
    """What the ids of all messages of a queue and a priority begin with; the number within its
    lane follows, as twelve hexadecimal digits."""
    value = (incarnation << _SEQ_BITS | priority << SEQUENCE_BITS) >> SEQUENCE_BITS
    high = value >> 26
    return (
        f"{high >> 16:08x}-{high & 0xFFFF:04x}-8{value >> 14 & 0xFFF:03x}"
        f"-{0x8000 | value & 0x3FFF:04x}-"
    )


def parse_message_id(text: str) -> tuple[int, int]:
    """The incarnation and the sequence number in an id."""
    digits = text.replace("-", "")
    if len(digits) != 32 or digits[12:13] != "8":
        raise InvalidArgument(f"{text!r:.80} is not a message id")
    try:
        number = int(digits, 16)
    except ValueError:
        raise InvalidArgument(f"{text!r:.80} is not a message id") from None
    value = number >> 80 << 74 | (number >> 64 & 0xFFF) << 62 | number & 0x3FFF_FFFF_FFFF_FFFF
    return value >> _SEQ_BITS, value & ((1 << _SEQ_BITS) - 1)
