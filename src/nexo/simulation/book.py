"""What a world knows of a queue from outside: who is in its groups, what was done to it as a whole,
and in which order it delivered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nexo.simulation.history import Violation
from nexo.vocabulary.limits import LEASE_BITS

if TYPE_CHECKING:
    from nexo.simulation.letter import Copy
    from nexo.vocabulary.message import Message
    from nexo.vocabulary.settings import QueueSettings


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
