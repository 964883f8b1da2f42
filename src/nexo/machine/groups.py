"""The line of a queue whose messages belong to groups: FIFO queues and fair queues.

A FIFO queue keeps the order inside each group: while messages of a group are in flight, or an
earlier one waits out a delay, the rest of the group stays behind. A fair queue keeps no order
between groups beyond arrival, but serves quiet groups before noisy ones: those that hold more
than a share of what is in flight. Each group has a line of its own (a heap of spans, as in
`line`); a heap over the groups says whose head is the oldest.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from nexo.machine.line import Line
from nexo.machine.span import Span
from nexo.vocabulary.limits import NOISY_IN_FLIGHT_MIN, NOISY_SHARE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nexo.machine.chunk import Chunk


_END = 1 << 62  # beyond every sequence number


class Busy:
    """How many messages of each group are in flight: shared by the lanes of a queue."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts: dict[str | None, int] = {}
        self.total = 0

    def add(self, group: str | None, count: int) -> None:
        self.total += count
        left = self.counts.get(group, 0) + count
        if left:
            self.counts[group] = left
        else:
            del self.counts[group]

    def noisy(self, group: str | None) -> bool:
        if group is None:
            return False
        count = self.counts.get(group, 0)
        return count >= NOISY_IN_FLIGHT_MIN and count > NOISY_SHARE * self.total


class Group(Line):
    """The line of one group. `held` are the first numbers of its messages that wait for a time."""

    __slots__ = ("aside", "held", "listed", "name")

    def __init__(self, name: str | None) -> None:
        super().__init__()
        self.name = name
        self.held: list[int] = []
        self.listed = -1  # the head under which the group was last entered in the order
        self.aside = False

    def __lt__(self, other: Group) -> bool:
        return False  # in a heap, equal heads are the same group entered twice


class GroupedLine:
    """One priority of a queue with groups; the same words as `Line`, plus those for groups."""

    __slots__ = ("_aside", "_busy", "_fifo", "_groups", "_order", "count")

    def __init__(self, busy: Busy, fifo: bool) -> None:
        self._busy = busy
        self._fifo = fifo
        self._groups: dict[str | None, Group] = {}
        # Both heaps hold (head, group); an entry is stale unless the group is listed under it.
        self._order: list[tuple[int, Group]] = []
        self._aside: list[tuple[int, Group]] = []  # noisy groups, while they are noisy
        self.count = 0

    def append(self, chunk: Chunk, first: int, end: int) -> None:
        seq = first
        while seq < end:
            group, stop = chunk.group(seq), seq + 1
            while stop < end and chunk.group(stop) == group:
                stop += 1
            self.give_back(Span(chunk, seq, stop, None, group))
            seq = stop

    def give_back(self, span: Span) -> None:
        group = self._group(span.group)
        group.give_back(span)
        self.count += span.end - span.first
        self._list(group)

    def hold(self, span: Span) -> None:
        """A message of the group waits for a time: in a FIFO queue all behind it wait too."""
        if self._fifo:
            insort(self._group(span.group).held, span.first)

    def unhold(self, span: Span) -> None:
        """Its time has come; `give_back` follows."""
        if self._fifo:
            held = self._groups[span.group].held
            del held[bisect_left(held, span.first)]

    def calm(self, name: str | None) -> None:
        """Fewer messages of the group are in flight than before: it may be its turn again."""
        group = self._groups.get(name)
        if group is None:
            return
        if group.aside and not self._busy.noisy(name):
            group.aside = False
            group.listed = -1
        self._list(group)
        self._forget(group)

    def head(self, settled: int) -> Span | None:
        group = self._next(settled)
        return group.head(settled) if group is not None else None

    def take(self, count: int, settled: int) -> Span:
        group = self._next(settled)
        assert group is not None, "take without a head"
        limit, order = settled, self._order
        if self._fifo:
            limit = min(settled, group.held[0]) if group.held else settled
        elif order and order[0][1] is group:
            # Between quiet groups the order of arrival holds: a run ends where another is next.
            head, _ = heappop(order)
            if order:
                limit = max(min(settled, order[0][0]), head + 1)
        span = group.take(count, limit)
        self.count -= span.end - span.first
        self._list(group)
        self._forget(group)
        return span

    def drop_below(self, seq: int) -> list[Span]:
        """Take out everything before `seq`: retention has passed it by."""
        dropped: list[Span] = []
        for group in list(self._groups.values()):
            spans = group.drop_below(seq)
            if spans:
                dropped += spans
                self._list(group)
                self._forget(group)
        self.count -= sum(span.end - span.first for span in dropped)
        return dropped

    def clear(self) -> None:
        self._groups.clear()
        self._order.clear()
        self._aside.clear()
        self.count = 0

    def spans(self) -> Iterator[Span]:
        """All spans, in no order."""
        return (span for group in self._groups.values() for span in group.spans())

    def _group(self, name: str | None) -> Group:
        group = self._groups.get(name)
        if group is None:
            group = self._groups[name] = Group(name)
        return group

    def _list(self, group: Group) -> None:
        """Enter the group in the order under its present head."""
        head = group.head(_END)
        if head is None:
            group.listed = -1
        elif group.listed != head.first:
            group.listed = head.first
            group.aside = False
            heappush(self._order, (head.first, group))

    def _next(self, settled: int) -> Group | None:
        """The group whose turn it is."""
        order, busy = self._order, self._busy
        while order and order[0][0] < settled:
            listed, group = order[0]
            if group.listed != listed or group.aside:
                heappop(order)
            elif self._fifo:
                locked = group.name in busy.counts
                if not locked and not (group.held and group.held[0] <= listed):
                    return group
                heappop(order)  # `calm`, or `give_back` of what is held, enters it again
                group.listed = -1
            elif busy.noisy(group.name):
                heappop(order)
                group.aside = True
                heappush(self._aside, (listed, group))
            else:
                return group
        aside = self._aside
        while aside and aside[0][0] < settled:
            listed, group = aside[0]
            if group.listed == listed and group.aside:
                return group
            heappop(aside)
        return None

    def _forget(self, group: Group) -> None:
        if not group.count and not group.held and group.name not in self._busy.counts:
            self._groups.pop(group.name, None)
