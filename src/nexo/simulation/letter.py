"""What a world knows of a message from outside: the letter that was sent, and each copy of it.

A letter is a body that was pushed or published, once or again after a lost answer. A copy is a
message id: a push makes one, a publish one in each bound queue. A hold is one delivery of a copy.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from nexo.vocabulary.limits import LEASE_BITS

if TYPE_CHECKING:
    from nexo.simulation.book import QueueBook


class Status(enum.Enum):
    UNSENT = 0
    UNKNOWN = 1  # sent, and no answer came (yet)
    CONFIRMED = 2
    REFUSED = 3  # it must never appear
    DUPLICATE = 4  # confirmed as the repetition of another: it must never appear


class Acked(enum.Enum):
    NO = 0
    UNKNOWN = 1  # asked for, and no answer came (yet)
    CONFIRMED = 2


class Letter:
    __slots__ = (
        "attributes",
        "body",
        "called_index",
        "called_ms",
        "commit",
        "copies",
        "delay_ms",
        "due_ms",
        "epoch",
        "expected",
        "group",
        "home",
        "is_published",
        "key",
        "last_called_ms",
        "number",
        "offset",
        "priority",
        "status",
    )

    def __init__(self, number: int, home: str, body: bytes) -> None:
        self.number = number
        self.home = home  # the queue or topic that it was sent to
        self.body = body
        self.priority = 0
        self.is_published = False  # to a topic; else pushed to a queue
        self.delay_ms: int | None = None
        self.due_ms = 0  # it must not be delivered before
        self.group: str | None = None
        self.key: str | None = None
        self.attributes: bytes | None = None
        self.status = Status.UNSENT
        self.called_index = 0  # when it was sent first
        self.called_ms = 0
        self.last_called_ms = 0
        self.epoch = 0  # of the first call
        self.commit = 0  # the first one that it can be part of
        self.copies: dict[int, Copy] = {}  # by the incarnation of the queue it was born in
        self.offset: int | None = None  # in the topic it was published to
        self.expected: dict[str, bool | None] = {}  # bound queue → must, must not, may

    @property
    def label(self) -> str:
        return f"<{self.number}>"

    @property
    def earliest_ms(self) -> int:
        """It is not older than this, also if the clock was set back between two attempts."""
        return min(self.called_ms, self.last_called_ms)


class Hold:
    """One delivery. `deadlines` are (line, epoch, time), the latest last."""

    __slots__ = (
        "at_most_ms",
        "attempts",
        "counted",
        "deadlines",
        "epoch",
        "is_late",
        "is_received",
        "lease",
        "live",
        "returned",
    )

    def __init__(
        self, lease: int, index: int, attempts: int, deadline_ms: int, is_received: bool = True
    ) -> None:
        self.lease = lease
        self.epoch = lease >> LEASE_BITS
        self.attempts = attempts
        self.deadlines = [(index, self.epoch, deadline_ms)]
        self.at_most_ms = deadline_ms  # it is over after this for sure
        self.is_received = is_received
        self.live = True  # nobody gave it back or said that it failed
        self.counted = True  # the attempt was not undone
        self.is_late = False  # it may have come back by itself before somebody gave it back
        self.returned: tuple[int, int, int] = (0, 0, 0)  # line, epoch, not before this time

    def prolong(self, index: int, epoch: int, deadline_ms: int) -> None:
        self.deadlines.append((index, epoch, deadline_ms))
        self.at_most_ms = max(self.at_most_ms, deadline_ms)


class Copy:
    __slots__ = (
        "acked",
        "acked_commit",
        "acked_epoch",
        "book",
        "born_index",
        "hold",
        "id",
        "last_seen",
        "letter",
        "seen",
        "seq",
        "since_epoch",
    )

    def __init__(self, message_id: str, letter: Letter | None, book: QueueBook, seq: int) -> None:
        self.id = message_id
        self.letter = letter  # None: it repeats a push whose outcome nobody knows
        self.book = book  # where it was last known to be
        self.seq = seq  # its number there
        self.since_epoch = 0  # when it got there
        self.seen = False
        self.last_seen = 0
        self.hold: Hold | None = None
        self.acked = Acked.NO
        self.acked_epoch = 0
        self.acked_commit = 0  # the first one that the ack can be part of
        self.born_index = 0  # when it was first known to be there

    def hold_on(self, queue: str, lease: int) -> Hold | None:
        """Its hold, if that is the one of this lease; two queues may use the same number."""
        hold = self.hold
        here = hold is not None and hold.lease == lease and self.book.name == queue
        return hold if here else None

    @property
    def label(self) -> str:
        return self.letter.label if self.letter is not None else self.id
