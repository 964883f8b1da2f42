"""The line of a FIFO queue: each group keeps its order, and groups take turns.

A message may go out when it is the first of its group that is left: nothing before it is in flight,
nor waits for a time. A pop takes from one group as much as it can before it goes on to the next.
A group whose messages come back stands behind those that have been waiting meanwhile, so one
that fails again and again does not keep the others from their turn.
"""

from __future__ import annotations

from collections import deque
from heapq import heapify, heappop, heappush, heapreplace
from typing import TYPE_CHECKING, Any

from nexo.machine.groups import END, Busy, Flying, Group, GroupedLine

if TYPE_CHECKING:
    from nexo.machine.log import Log
    from nexo.machine.span import Span

# Where a group is entered: `Group.listed`. One that is arriving has the number of its head there.
_UNLISTED, _IN_TURN = -1, -2
_MOVED_ALONG = 2  # groups that get their turn whenever one arrives: so few are left for who looks
_EMPTY_SHARE = 8  # if more than this part of those in turn have nothing left, they are dropped


class FifoLine(GroupedLine):
    __slots__ = ("_arriving", "_emptied", "_turns")

    def __init__(self, busy: Busy, log: Log) -> None:
        super().__init__(busy, log)
        # Groups whose first message is not on disk yet, or came back since the last look.
        self._arriving: list[tuple[int, Group]] = []
        self._turns: deque[Group] = deque()
        self._emptied = 0  # of those in turn, that lost their last message to something else

    def hold(self, span: Span) -> None:
        """A message of the group waits for a time: all behind it wait too."""
        group = self._group(span.group)
        if group.held is None:
            group.held = Flying()
        group.held.add(span.first, span.end)

    def unhold(self, span: Span) -> None:
        """Its time has come; `give_back` follows."""
        held = self._groups[span.group].held
        assert held is not None
        held.remove(range(span.first, span.end))

    def head(self, settled: int) -> Span | None:
        if self._sorted_end < settled:
            settled = self._sorted_end
        group = self._next(settled)
        return group.head(self._limit(group, settled)) if group is not None else None

    def take(self, count: int, settled: int) -> Span:
        if self._sorted_end < settled:
            settled = self._sorted_end
        group = self._next(settled)
        assert group is not None, "take without a head"
        span = group.take(count, self._limit(group, settled))
        self.count -= span.end - span.first
        self._forget(group)
        return span

    def clear(self) -> list[Any]:
        held = [*super().clear(), self._arriving, self._turns]
        self._arriving, self._turns = [], deque()
        self._emptied = 0
        return held

    def stuck(self, settled: int) -> list[str | None]:
        """Groups that could go on and are not entered: there are none, as invariants check."""
        if self._sorted_end < settled:
            settled = self._sorted_end
        return [
            group.name
            for group in self._groups.values()
            if group.listed == _UNLISTED and group.head(self._limit(group, settled)) is not None
        ]

    def _list(self, group: Group) -> None:
        """Enter the group, or enter it again under a head that is older than it was."""
        head = group.head(END)
        if head is None:
            return
        if head.first < group.entered:
            group.entered = head.first
            heappush(self._order, (head.first, group))
        if group.listed in (_IN_TURN, head.first) or head.first >= self._limit(group, END):
            return  # what opens a group that is locked enters it: `calm` or `give_back`
        group.listed = head.first
        heappush(self._arriving, (head.first, group))
        visible = min(self._log.settled, self._sorted_end)
        for _ in range(_MOVED_ALONG):
            if not self._take_turn(visible):
                return

    def _take_turn(self, settled: int) -> bool:
        """The next of those that have arrived gets its turn behind the others; false if none has
        its first message on disk."""
        arriving = self._arriving
        if not arriving or arriving[0][0] >= settled:
            return False
        group = heappop(arriving)[1]
        if group.listed >= 0:
            group.listed = _IN_TURN if group.count else _UNLISTED
            if group.count:
                self._turns.append(group)
        return True

    def _next(self, settled: int) -> Group | None:
        """The group whose turn it is. One that has nothing to give leaves; what changes that
        (a commit, `calm`, `give_back`) enters it again."""
        while self._take_turn(settled):
            pass
        turns = self._turns
        while turns:
            group = turns[0]
            if group.head(self._limit(group, settled)) is not None:
                return group
            turns.popleft()
            group.listed = _UNLISTED
            if not group.count:
                self._emptied = max(0, self._emptied - 1)
            head = group.head(END)
            if head is not None and head.first >= settled:
                self._list(group)
        return None

    def _drop_empty(self) -> None:
        """One more in turn has nothing left. Now and then they go, so that whoever looks for the
        next has not to pass over very many."""
        self._emptied += 1
        if self._emptied <= 64 + len(self._turns) // _EMPTY_SHARE:
            return
        self._emptied = 0
        for group in self._turns:
            if not group.count:
                group.listed = _UNLISTED
        self._turns = deque(group for group in self._turns if group.count)

    def _limit(self, group: Group, settled: int) -> int:
        """Messages from this number on may not go out."""
        limit = min(settled, self._busy.first(group.name))
        return min(limit, group.held.first()) if group.held else limit

    def _oldest_group(self) -> Group | None:
        """Here `_order` has every group that has messages in line, its turn or not, under its
        first number or one before: what was taken since is seen to when somebody asks."""
        order = self._order
        while order:
            entered, group = order[0]
            head = group.head(END)
            if entered != group.entered:
                heappop(order)
            elif head is None:
                heappop(order)
                group.entered = END
            elif head.first > entered:
                group.entered = head.first
                heapreplace(order, (head.first, group))
            else:
                return group
        return None

    def _forget(self, group: Group) -> None:
        super()._forget(group)
        if not group.count and group.listed == _IN_TURN:
            self._drop_empty()
        order = self._order
        while order and not order[0][1].count:
            heappop(order)[1].entered = END
        if len(order) > 64 + 2 * len(self._groups):
            self._order = [(g.entered, g) for g in self._groups.values() if g.entered < END]
            heapify(self._order)
