"""The records of the ledger: what a world knows from outside of each message and of each queue.

A letter is a body that was pushed or published, once or again after a lost answer. A copy is a
message id: a push makes one, a publish one in each bound queue. A hold is one delivery of a copy.
The book of a queue says who is in its groups, what was done to it as a whole, and in which order
it delivered.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from nexo.simulation.history import Violation
from nexo.vocabulary.limits import LEASE_BITS

if TYPE_CHECKING:
    from nexo.vocabulary.message import Message
    from nexo.vocabulary.settings import QueueSettings


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
        "is_leaving",
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
        self.is_leaving = False  # its consumer has left: it goes back some steps later
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


class QueueBook:
    """One incarnation of a queue."""

    def __init__(self, name: str, incarnation: int, settings: QueueSettings) -> None:
        self.name = name
        self.incarnation = incarnation
        self.is_fifo = settings.fifo
        keeps_keys = settings.deduplication != "off"
        self.window_ms = settings.deduplication_window_ms if keeps_keys else 0
        self.attempts_max: int | None = 0
        self.attempts_least = 1 << 30  # the smallest limit that it ever had
        self.retention_ms = settings.retention_ms
        self.dead_letter_names: set[str] = set()
        self.cleared: list[int] = []  # lines of purges and of the deletion
        self.emptied_index = 0  # line of the last purge that was confirmed
        self.is_deleted = False
        self.has_claims = False  # Spark takes from it
        self.feeds: set[str] = set()  # where a redrive may have sent its messages
        self.groups: dict[str | None, list[Copy]] = {}
        self._order: dict[tuple[int, int, str | None], list[tuple[int, int]]] = {}
        self._leases: dict[int, set[int]] = {}  # by epoch, those seen
        self._delivered: set[int] = set()
        self.learn(settings)

    def learn(self, settings: QueueSettings) -> None:
        """It has, or is about to have, these settings."""
        if settings.max_attempts is None:
            self.attempts_max = None
        else:
            if self.attempts_max is not None:
                self.attempts_max = max(self.attempts_max, settings.max_attempts)
            self.attempts_least = min(self.attempts_least, settings.max_attempts)
        self.retention_ms = min(self.retention_ms, settings.retention_ms)
        stem = settings.dead_letter.replace("{name}", self.name.removesuffix(".fifo"))
        self.dead_letter_names.add(stem + ".fifo" if self.name.endswith(".fifo") else stem)

    def note_order(self, message: Message, is_delayed: bool) -> None:
        """A delivery was seen. Those seen late are sorted in by their lease later."""
        epoch = message.lease >> LEASE_BITS
        is_first = message.seq not in self._delivered
        self._delivered.add(message.seq)
        self._leases.setdefault(epoch, set()).add(message.lease)
        if is_first and message.attempts == 1 and not is_delayed:
            lane = (epoch, message.priority, message.group_id)
            self._order.setdefault(lane, []).append((message.lease, message.seq))

    def check_order(self) -> None:
        """First deliveries go by number inside a priority, or inside a group. A gap in
        the leases is a delivery that nobody saw (a move, a pop that ended in that moment):
        from there on it is not known who was first."""
        if self.has_claims:
            return  # what lapses comes back as if it had never been taken
        seen_to = {}
        for epoch, leases in self._leases.items():
            lease = (epoch << LEASE_BITS) + 1
            while lease in leases:
                lease += 1
            seen_to[epoch] = lease
        for (epoch, priority, group), taken in self._order.items():
            highest = 0
            for lease, seq in sorted(taken):
                if seq < highest and lease < seen_to[epoch]:
                    raise Violation(
                        "first deliveries keep the order of arrival",
                        f"queue {self.name}: message {seq} (priority {priority}, group {group}) "
                        f"was delivered first on lease {lease:#x}, after {highest}",
                        f"seq={seq}",
                        f"seq={highest}",
                    )
                highest = seq

    def join_group(self, copy: Copy) -> None:
        letter = copy.letter
        if self.is_fifo and letter is not None:
            members = self.groups.setdefault(letter.group, [])
            if copy not in members:
                members.append(copy)
