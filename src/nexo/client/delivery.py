"""A delivery as the client holds it: columns until someone asks for a message.

It knows which of its messages were handed out and which are finished (acked, nacked or given
back), so that a subscription's credits, extensions and give-backs are arithmetic on ranges.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Any, Protocol

from nexo.vocabulary.identity import message_id

if TYPE_CHECKING:
    from nexo.wire.columns import WirePart
    from nexo.wire.commands import DeliveryHead

    Range = tuple[int, int, int]  # lease, first, end


class Holder(Protocol):
    """The subscription that a delivery came for; what was popped has none."""

    def give_credit(self, delivery: Delivery, count: int) -> None:
        """Messages are done with: there is room for more."""


class Delivery:
    __slots__ = (
        "ahead",
        "auto_received",
        "connection",
        "count",
        "deadline_ms",
        "done",
        "earlier",
        "finished",
        "handed",
        "holder",
        "incarnation",
        "instance",
        "is_ahead",
        "latest_ms",
        "lease",
        "left",
        "moved",
        "parts",
        "queue",
        "sent_ms",
        "starts",
        "state",
        "visibility_ms",
    )

    def __init__(
        self,
        queue: str,
        head: DeliveryHead,
        parts: list[WirePart],
        *,
        auto_received: bool,
        visibility_ms: int | None,
        connection: int,
        instance: int,
        holder: Holder | None = None,
    ) -> None:
        self.ahead: Any = None  # where acks may take the next pop along
        self.queue: str = queue
        self.lease: int = head.lease
        self.incarnation: int = head.incarnation
        self.state: int = head.state
        self.parts: list[WirePart] = parts
        self.auto_received: bool = auto_received
        self.visibility_ms: int = head.visibility_ms if visibility_ms is None else visibility_ms
        self.sent_ms: int = head.now_ms
        # By the clock of the broker. With the reception ack on its way the visibility timeout
        # counts; before, the retransmit timeout.
        self.deadline_ms: int = (
            head.now_ms + self.visibility_ms if auto_received else head.deadline_ms
        )
        self.latest_ms: int = self.deadline_ms  # when the last of its messages comes back
        self.earlier: list[tuple[int, int]] | None = None  # up to which message: older deadlines
        self.moved: dict[int, int] | None = None  # deadlines that are not the delivery's
        self.connection: int = connection  # which connection of the client it came on
        self.instance: int = instance  # of the broker that made it
        self.is_ahead: bool = False  # with its connection the broker may take it back
        self.holder: Holder | None = holder
        count = 0
        starts: list[int] = []
        for part in parts:
            starts.append(count)
            count += len(part.batch.offsets) - 1
        self.starts: list[int] = starts
        self.count: int = count
        self.left: int = count
        self.handed: int = 0  # messages given to the user, from the front
        self.done: list[tuple[int, int]] = []  # finished in ranges, while all of them were …
        self.finished: set[int] | None = None  # … and then one by one: their numbers

    def locate(self, index: int) -> tuple[WirePart, int]:
        """The part that holds a message, and where in it."""
        if len(self.parts) == 1:
            return self.parts[0], index
        if index < self.starts[-1]:
            number = bisect_right(self.starts, index) - 1
            return self.parts[number], index - self.starts[number]
        return self.parts[-1], index - self.starts[-1]

    def ranges(self, start: int, stop: int) -> list[Range]:
        """Messages `start` to `stop` as ranges of sequence numbers."""
        lease = self.lease
        found: list[Range] = []
        for part, at in zip(self.parts, self.starts, strict=True):
            low = max(start - at, 0)
            high = min(stop - at, len(part.batch.offsets) - 1)
            if low < high:
                first, end = part.first + low, part.first + high
                if found and found[-1][2] == first:
                    found[-1] = (lease, found[-1][1], end)
                else:
                    found.append((lease, first, end))
        return found

    def unfinished(self, start: int, stop: int) -> list[Range]:
        """Of messages `start` to `stop`, those that still wait for an ack."""
        whole = self.ranges(start, stop)
        if self.left == self.count:
            return whole
        if self.finished is None:
            self._count_each()
        assert self.finished is not None
        left: list[Range] = []
        for lease, first, end in whole:
            for seq in range(first, end):
                if seq in self.finished:
                    continue
                if left and left[-1][2] == seq:
                    left[-1] = (lease, left[-1][1], seq + 1)
                else:
                    left.append((lease, seq, seq + 1))
        return left

    def finish(self, first: int, end: int) -> int:
        """Messages are done with; returns how many were not before."""
        if self.left == 0:
            return 0
        if self.finished is None:
            if all(end <= low or high <= first for low, high in self.done):
                self.done.append((first, end))
                self.left -= end - first
                return end - first
            self._count_each()
        assert self.finished is not None
        before = len(self.finished)
        self.finished.update(range(first, end))
        done = len(self.finished) - before
        self.left -= done
        return done

    def finish_one(self, seq: int) -> int:
        """The same for one message."""
        if self.left == 0:
            return 0
        finished = self.finished
        if finished is None:
            finished = self._count_each()
        if seq in finished:
            return 0
        finished.add(seq)
        self.left -= 1
        return 1

    def give_credit(self, count: int) -> None:
        """So many are done with: who holds them has room for more."""
        if count and self.holder is not None:
            self.holder.give_credit(self, count)

    def _count_each(self) -> set[int]:
        """Whole ranges are finished no longer: from here on each message counts for itself."""
        finished = {seq for low, high in self.done for seq in range(low, high)}
        self.finished = finished
        self.done = []
        return finished

    def finish_all(self) -> int:
        done, self.left = self.left, 0
        return done

    def is_finished(self, seq: int) -> bool:
        if self.finished is not None:
            return seq in self.finished or self.left == 0
        return self.left == 0 or any(low <= seq < high for low, high in self.done)

    def deadline_of(self, seq: int) -> int:
        """When a message comes back if nothing is heard of it, by the clock of the broker."""
        if self.moved is not None and seq in self.moved:
            return self.moved[seq]
        if self.earlier is not None:
            index = self._index(seq)
            for stop, deadline_ms in self.earlier:
                if index < stop:
                    return deadline_ms
        return self.deadline_ms

    def renew(self, start: int, deadline_ms: int) -> None:
        """From message `start` on another deadline holds; those before it keep theirs."""
        if start == 0:
            self.earlier = self.moved = None
        elif self.earlier is None:
            self.earlier = [(start, self.deadline_ms)]
        elif self.earlier[-1][0] < start:
            self.earlier.append((start, self.deadline_ms))
        self.deadline_ms = deadline_ms
        self.latest_ms = max(self.latest_ms, deadline_ms)

    def receive_late(self, now_ms: int) -> None:
        """Of a pop ahead, when someone has come for it."""
        self.auto_received = True
        self.deadline_ms = self.latest_ms = now_ms + self.visibility_ms
        self.is_ahead = True

    def move_deadline(self, first: int, end: int, deadline_ms: int) -> None:
        """Of some messages, which had a reception ack or an extension of their own."""
        if self.moved is None:
            self.moved = {}
        self.moved.update(dict.fromkeys(range(first, end), deadline_ms))
        self.latest_ms = max(self.latest_ms, deadline_ms)

    def id_of(self, seq: int) -> str:
        index = self._index(seq)
        if index < self.count:
            part, at = self.locate(index)
            origin = part.batch.origins[at] if part.batch.origins else None
            if origin is not None:
                return origin.id
        return message_id(self.incarnation, seq)

    def _index(self, seq: int) -> int:
        """Which of the messages that is; behind the last if it is none of them."""
        for part, start in zip(self.parts, self.starts, strict=True):
            if 0 <= seq - part.first < len(part.batch.offsets) - 1:
                return start + seq - part.first
        return self.count


def joined(ranges: list[Range]) -> list[Range]:
    """Ranges that lie side by side as one."""
    if len(ranges) < 2:
        return ranges
    joined: list[Range] = []
    lease, first, end = ranges[0]
    for each in ranges[1:]:
        if each[0] == lease and each[1] == end:
            end = each[2]
        else:
            joined.append((lease, first, end))
            lease, first, end = each
    joined.append((lease, first, end))
    return joined
