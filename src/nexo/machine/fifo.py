"""The line of a FIFO queue: each group keeps its order, and groups take turns.

A message may go out when it is the first of its group that is left: nothing before it is in flight,
nor waits for a time. A pop takes from one group as much as it can before it goes on to the next.
A group whose messages come back stands behind those that have been waiting meanwhile, so one
that fails again and again does not keep the others from their turn.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from nexo.machine.groups import END, Busy, Group, GroupedLine

if TYPE_CHECKING:
    from nexo.machine.span import Span

_UNLISTED, _ARRIVING, _IN_TURN = -1, 0, 1  # where a group is entered: `Group.listed`


class FifoLine(GroupedLine):
    __slots__ = ("_arriving", "_turns")

    def __init__(self, busy: Busy) -> None:
        super().__init__(busy)
        # Groups whose first message is not on disk yet, or came back since the last look.
        self._arriving: list[tuple[int, Group]] = []
        self._turns: deque[Group] = deque()

    def hold(self, span: Span) -> None:
        """A message of the group waits for a time: all behind it wait too."""
        insort(self._group(span.group).held, span.first)

    def unhold(self, span: Span) -> None:
        """Its time has come; `give_back` follows."""
        held = self._groups[span.group].held
        del held[bisect_left(held, span.first)]

    def head(self, settled: int) -> Span | None:
        group = self._next(settled)
        return group.head(self._limit(group, settled)) if group is not None else None

    def take(self, count: int, settled: int) -> Span:
        group = self._next(settled)
        assert group is not None, "take without a head"
        span = group.take(count, self._limit(group, settled))
        self.count -= span.end - span.first
        self._forget(group)
        return span

    def clear(self) -> None:
        super().clear()
        self._arriving.clear()
        self._turns.clear()

    def _list(self, group: Group) -> None:
        """Enter the group, or enter it again under a head that is older than it was."""
        head = group.head(END)
        if head is not None and group.listed != _IN_TURN:
            group.listed = _ARRIVING
            heappush(self._arriving, (head.first, group))

    def _next(self, settled: int) -> Group | None:
        """The group whose turn it is. One that has nothing to give leaves; what changes that
        (a commit, `calm`, `give_back`) enters it again."""
        arriving, turns = self._arriving, self._turns
        while arriving and arriving[0][0] < settled:
            group = heappop(arriving)[1]
            if group.listed == _ARRIVING:
                group.listed = _IN_TURN
                turns.append(group)
        while turns:
            group = turns[0]
            if group.head(self._limit(group, settled)) is not None:
                return group
            turns.popleft()
            group.listed = _UNLISTED
            head = group.head(END)
            if head is not None and head.first >= settled:
                self._list(group)
        return None

    def _limit(self, group: Group, settled: int) -> int:
        """Messages from this number on may not go out."""
        limit = min(settled, self._busy.first(group.name))
        return min(limit, group.held[0]) if group.held else limit
