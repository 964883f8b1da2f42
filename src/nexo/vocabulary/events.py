"""The life of messages as ranges: what the broker tells the world about what it did.

An event is a message of the topic `nexo.events`: a JSON object with these fields by name. They
are read by others: never change or remove one, only add, with a default.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from nexo.vocabulary.batch import batch_of
from nexo.vocabulary.states import EventKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from nexo.vocabulary.batch import Batch


class Event(msgspec.Struct, frozen=True, gc=False):
    """`count` messages of a queue, from `first_seq` on, all went through the same thing."""

    kind: EventKind
    queue: str
    first_seq: int
    count: int
    at_ms: int
    created_ms: int  # when the first of them came into the queue
    attempts: int  # deliveries so far, this one included
    consumer: str
    reason: str
    delivered_ms: int = 0  # when they were delivered last, if they were and it is known


_encode_lines = msgspec.json.Encoder().encode_lines
decode_event: Callable[[bytes | memoryview | str], Event] = msgspec.json.Decoder(Event).decode


def batch_of_events(events: list[Event]) -> Batch:
    """A message for each. Encoding them as lines and cutting those apart is a few calls, however
    many there are: JSON has no line break of its own in it."""
    lines = _encode_lines(events).split(b"\n")
    lines.pop()  # behind the last line break
    return batch_of(lines)
