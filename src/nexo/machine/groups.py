"""The line of a fair queue: a standard queue whose messages belong to groups.

It keeps no order between groups beyond arrival, but serves quiet groups before noisy ones: those
that hold more than a share of what is in flight. Each group has a line of its own (a heap of spans,
as in `line`); a heap over the groups says whose head is the oldest. `fifo` has the line of FIFO
queues.

What comes in is sorted by group at once only if it is little: a push may bring a hundred thousand
groups, and each takes longer than a whole push without groups. Much waits as one run, and when it
is on disk it is sorted some at a time (`settle.sort_groups`). Nobody sees a message before all that
came before it is sorted, so the order is the same as if it had come in a little later.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

from nexo.machine.line import Line
from nexo.machine.span import Span, by_first
from nexo.vocabulary.limits import (
    GROUP_RUNS_LAID,
    NOISY_IN_FLIGHT_MIN,
    NOISY_SHARE,
    SORTED_WITH_PUSH,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from nexo.machine.chunk import Chunk
    from nexo.machine.log import Log


SEQ_TYPE = "q"
END = 1 << 62  # beyond every sequence number


class Busy:
    """How many messages of each group are in flight: shared by the lanes of a queue. A FIFO queue
    has to know which they are."""

    __slots__ = ("_flying", "aside", "counts", "total")

    def __init__(self, fifo: bool = False) -> None:
        self.counts: dict[str | None, int] = {}
        self.total = 0
        self.aside: dict[str | None, list[GroupedLine]] = {}  # which lines have put a group aside
        self._flying: dict[str | None, Flying] | None = {} if fifo else None

    def add_in_flight(self, span: Span) -> None:
        """Messages are in flight."""
        self.add(span.group, span.end - span.first)
        if self._flying is not None:
            flying = self._flying.get(span.group)
            if flying is None:
                flying = self._flying[span.group] = Flying()
            flying.add(span.first, span.end)

    def remove_in_flight(self, group: str | None, seqs: Iterable[int]) -> None:
        """Messages of a FIFO queue are in flight no more, and that is on disk. Those that a purge
        has forgotten meanwhile are passed over."""
        flying = (self._flying or {}).get(group)
        if flying is not None:
            removed = flying.remove(seqs)
            if removed:
                self.add(group, -removed)
            if group not in self.counts and self._flying is not None:
                del self._flying[group]

    def first(self, group: str | None) -> int:
        """The first message of a group that is in flight; behind all of them if there is none."""
        flying = (self._flying or {}).get(group)
        return END if flying is None else flying.first()

    def clear(self) -> list[Any]:
        held = [self.counts, self.aside, self._flying or {}]
        self.counts, self.aside = {}, {}
        self.total = 0
        if self._flying is not None:
            self._flying = {}
        return held

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


class Flying:
    """Messages of one group that are not in line, and which of them is the first."""

    __slots__ = ("_heap", "_seqs")

    def __init__(self) -> None:
        self._seqs: set[int] = set()
        self._heap: list[int] = []  # some of them are no longer in flight

    def add(self, first: int, end: int) -> None:
        for seq in range(first, end):
            self._seqs.add(seq)
            heappush(self._heap, seq)

    def __len__(self) -> int:
        return len(self._seqs)

    def remove(self, seqs: Iterable[int]) -> int:
        """How many of these there were."""
        before = len(self._seqs)
        self._seqs.difference_update(seqs)
        return before - len(self._seqs)

    def first(self) -> int:
        heap = self._heap
        while heap and heap[0] not in self._seqs:
            heappop(heap)
        return heap[0] if heap else END


class Group(Line):
    """The line of one group. `held` are its messages that wait for a time, in a FIFO queue.

    A backlog of many groups is a run a message, so those that wait far from the head and have not
    lived through anything are numbers alone: first and end of each run. They become spans when
    their turn comes near. If anything waits so, the head has a span."""

    __slots__ = ("_log", "_runs", "aside", "entered", "held", "listed", "name")

    def __init__(self, name: str | None, log: Log) -> None:
        # As those of `Row` and `Line`, without two calls more: there may be very many groups.
        self._head: list[Span] = []
        self._later: list[list[Span]] | None = None
        self._firsts: list[int] | tuple[()] = ()
        self._tail: Span | None = None
        self.count = 0
        self.name = name
        self._log = log
        self._runs: array[int] | None = None
        self.held: Flying | None = None
        self.listed = -1  # the head under which the group was last entered in the order
        self.entered = END  # the same in a FIFO queue, or a number before its head
        self.aside = False

    def __lt__(self, other: Group) -> bool:
        return False  # in a heap, equal heads are the same group entered twice

    def give_back(self, span: Span) -> None:
        first, end, runs = span.first, span.end, self._runs
        is_fresh = span.history is None and not span.delivered_ms
        if is_fresh and self._head and (runs is not None or first >= self._last().end):
            if runs is None:
                self._runs = array(SEQ_TYPE, (first, end))
            elif first > runs[-1]:
                runs.extend((first, end))
            elif first == runs[-1]:
                runs[-1] = end
            elif first > runs[0]:
                at = 2 * bisect_right(range(len(runs) // 2), first, key=lambda at: runs[2 * at])
                runs[at:at] = array(SEQ_TYPE, (first, end))
            else:
                super().give_back(span)
                return
            self.count += end - first
            return
        if runs is not None and first > runs[0]:
            self._lay(first)
        super().give_back(span)

    def find(self, seq: int, group: str | None = None) -> Span | None:
        return super().find(seq) or next(self._waiting(seq, seq + 1), None)

    def between(self, first: int, end: int) -> Iterator[Span]:
        yield from super().between(first, end)
        yield from self._waiting(first, end)

    def cut_run(self, first: int, end: int) -> list[Span]:
        if self._runs is None:
            return super().cut_run(first, end)
        waiting = []  # before the others: without those, the head may be laid from these
        for span in list(self._waiting(first, end)):
            low, high = max(first, span.first), min(end, span.end)
            waiting.append(span.part(low, high))
            self._cut_waiting(low, high)
            self.count -= high - low
        return super().cut_run(first, end) + waiting

    def clear(self) -> list[Any]:
        self._runs = None
        return super().clear()

    def spans(self) -> Iterator[Span]:
        yield from super().spans()
        yield from self._waiting(0, END)

    def _replace(self, number: int, at: int, parts: list[Span]) -> None:
        super()._replace(number, at, parts)
        if not self._head and self._runs is not None:
            self._lay(END, GROUP_RUNS_LAID)

    def _lay(self, end: int, runs_max: int = END) -> None:
        """Make spans of the next runs, those that begin before a number."""
        runs = self._runs
        assert runs is not None
        stop = min(bisect_left(range(len(runs) // 2), end, key=lambda at: runs[2 * at]), runs_max)
        for span in self._waiting(runs[0], runs[2 * stop - 1]) if stop else ():
            self._append(span)
        del runs[: 2 * stop]
        if not runs:
            self._runs = None

    def _waiting(self, first: int, end: int) -> Iterator[Span]:
        """Spans for the messages of a range that are numbers alone. They stand nowhere."""
        runs = self._runs
        if runs is None or end <= runs[0] or first >= runs[-1]:
            return
        at = bisect_right(range(len(runs) // 2), first, key=lambda at: runs[2 * at]) - 1
        for index in range(2 * max(0, at), len(runs), 2):
            low, high = runs[index], runs[index + 1]
            if low >= end:
                return
            while low < high:  # a run may reach from one chunk to the next
                chunk = self._log.chunk_of(low)
                assert chunk is not None
                stop = min(high, chunk.end)
                if stop > first and low < end:
                    yield Span(chunk, low, stop, None, self.name)
                low = stop

    def _cut_waiting(self, first: int, end: int) -> None:
        """Take a part of one run out."""
        runs = self._runs
        assert runs is not None
        at = 2 * (bisect_right(range(len(runs) // 2), first, key=lambda at: runs[2 * at]) - 1)
        rest = [(runs[at], first), (end, runs[at + 1])]
        kept = [bound for each in rest if each[0] < each[1] for bound in each]
        runs[at : at + 2] = array(SEQ_TYPE, kept)
        if not runs:
            self._runs = None

    def _last(self) -> Span:
        return self._head[-1] if self._later is None else self._later[-1][-1]


class GroupedLine:
    """One priority of a queue with groups; the same words as `Line`, plus those for groups."""

    __slots__ = (
        "_aside",
        "_busy",
        "_groups",
        "_log",
        "_order",
        "_sorted_end",
        "_unsorted",
        "count",
    )

    def __init__(self, busy: Busy, log: Log) -> None:
        self._busy = busy
        self._log = log
        self._groups: dict[str | None, Group] = {}
        # Both heaps hold (head, group); an entry is stale unless the group is listed under it.
        self._order: list[tuple[int, Group]] = []
        self._aside: list[tuple[int, Group]] = []  # noisy groups, while they are noisy
        self._unsorted = Line()  # what came in, whatever its groups: the spans do not know them
        self._sorted_end = END  # where that begins: nobody sees messages from this number on
        self.count = 0

    @property
    def groups(self) -> int:
        """How many groups have messages here, in line or waiting for a time. Those of which
        nothing is sorted are not known yet."""
        return len(self._groups)

    @property
    def is_sorted(self) -> bool:
        """Whether everything that is on disk is given to its group."""
        return self._sorted_end >= self._log.settled

    def append(self, chunk: Chunk, first: int, end: int) -> None:
        self.count += end - first
        if self._sorted_end < END:
            self._append_unsorted(chunk, first, end)
        elif end - first == 1:
            self._give(Span(chunk, first, end, None, chunk.group(first)))
        elif end - first <= SORTED_WITH_PUSH:
            for run in _by_group(Span(chunk, first, end, None, None)):
                self._give(run)
        else:
            self._append_unsorted(chunk, first, end)

    def _append_unsorted(self, chunk: Chunk, first: int, end: int) -> None:
        last = self._unsorted.last()
        if last is None or last.end <= first:
            self._unsorted.append(chunk, first, end)
        else:  # a journal may tell of later messages first
            self._unsorted.give_back(Span(chunk, first, end, None, None))
        self._sorted_end = min(first, self._sorted_end)

    def sort(self, messages_max: int) -> int:
        """Give what is on disk to its groups, up to so many messages; returns how many it were.
        Those that came with one group for all count as one."""
        unsorted, settled, left = self._unsorted, self._log.settled, messages_max
        while left > 0 and (new := unsorted.oldest(settled)) is not None:
            is_mixed = isinstance(new.chunk.groups, list)
            span = unsorted.take(left if is_mixed else END, settled)
            self._unsorted_changed()
            left -= span.end - span.first if is_mixed else 1
            for run in _by_group(span):
                self._give(run)
        return messages_max - left

    def _unsorted_changed(self) -> None:
        first = self._unsorted.oldest(END)
        self._sorted_end = END if first is None else first.first

    def give_back(self, span: Span) -> None:
        self.count += span.end - span.first
        self._give(span)

    def _give(self, span: Span) -> None:
        """To its group."""
        group = self._groups.get(span.group)
        if group is None:
            group = self._groups[span.group] = Group(span.group, self._log)
        span.group = group.name
        column = span.chunk.groups
        if isinstance(column, list):  # one name for all messages of a group, not one each
            start = span.first - span.chunk.first
            column[start : start + span.end - span.first] = [group.name] * (span.end - span.first)
        group.give_back(span)
        self._list(group)

    def hold(self, span: Span) -> None:
        """A message of the group waits for a time; only a FIFO queue cares."""

    def unhold(self, span: Span) -> None:
        """Its time has come; `give_back` follows."""

    def calm(self, name: str | None) -> None:
        """Fewer messages of the group are in flight than before: it may be its turn again."""
        group = self._groups.get(name)
        if group is None:
            return
        if group.aside:
            group.aside = False
            group.listed = -1
        self._list(group)

    def find(self, seq: int, group: str | None = None) -> Span | None:
        """The span that holds a message of a group."""
        found = self._groups.get(group)
        span = found.find(seq) if found is not None else None
        if span is None and (new := self._unsorted.find(seq)) is not None:
            span = Span(new.chunk, seq, seq + 1, None, group)
        return span

    def in_chunk(self, chunk: Chunk, first: int, end: int) -> Iterator[Span]:
        """The spans that hold messages of a range, which lies in one chunk, in no order."""
        for name in {chunk.group(seq) for seq in range(first, end)}:
            group = self._groups.get(name)
            if group is not None:
                yield from group.between(first, end)
        for span in self._unsorted.between(first, end):
            yield from _by_group(span.part(max(first, span.first), min(end, span.end)))

    def oldest(self, settled: int) -> Span | None:
        """The span that came first, whether or not it is its turn."""
        group, new = self._oldest_group(), self._unsorted.oldest(settled)
        known = group.head(settled) if group is not None else None
        if known is None or (new is not None and new.first < known.first):
            return new
        return known

    def head(self, settled: int) -> Span | None:
        if self._sorted_end < settled:
            settled = self._sorted_end
        group = self._next(settled)
        return group.head(settled) if group is not None else None

    def take(self, count: int, settled: int) -> Span:
        if self._sorted_end < settled:
            settled = self._sorted_end
        group = self._next(settled)
        assert group is not None, "take without a head"
        limit, order = settled, self._order
        if not group.aside:  # else what the order begins with may be an old entry of this group
            # Between quiet groups the order of arrival holds: a run ends where another is next.
            head, _ = heappop(order)
            if order:
                limit = max(min(settled, order[0][0]), head + 1)
        span = group.take(count, limit)
        self.count -= span.end - span.first
        self._list(group)
        self._forget(group)
        return span

    def cut(self, seq: int, group: str | None = None) -> Span | None:
        """Take out one message of a group, wherever it stands."""
        found = self._groups.get(group)
        span = found.cut(seq) if found is not None else None
        if found is not None and span is not None:
            self._list(found)
            self._forget(found)
        elif (span := self._unsorted.cut(seq)) is not None:
            span.group = group
            self._unsorted_changed()
        if span is not None:
            self.count -= 1
        return span

    def cut_in_chunk(self, chunk: Chunk, first: int, end: int) -> list[Span]:
        """Take out the messages of a range, which lies in one chunk."""
        taken: list[Span] = []
        for name in {chunk.group(seq) for seq in range(first, end)}:
            group = self._groups.get(name)
            if group is not None:
                taken += group.cut_run(first, end)
                self._list(group)
                self._forget(group)
        if end > self._sorted_end:
            for span in self._unsorted.cut_run(first, end):
                taken += _by_group(span)
            self._unsorted_changed()
        self.count -= sum(span.end - span.first for span in taken)
        return sorted(taken, key=by_first)

    def drop_below(self, seq: int, runs_max: int) -> list[Span]:
        """Take out what stands before `seq`, up to so many runs of it: retention has passed it
        by. What is not sorted goes as it lies, and does not know its groups."""
        dropped: list[Span] = []
        while (group := self._oldest_group()) is not None and group.head(seq) is not None:
            if len(dropped) >= runs_max:
                break
            dropped += group.drop_below(seq, runs_max - len(dropped))
            self._list(group)
            self._forget(group)
        if seq > self._sorted_end:
            dropped += self._unsorted.drop_below(seq, runs_max - len(dropped))
            self._unsorted_changed()
        self.count -= sum(span.end - span.first for span in dropped)
        return dropped

    def clear(self) -> list[Any]:
        held = [self._groups, self._order, self._aside, *self._unsorted.clear()]
        self._groups, self._order, self._aside = {}, [], []
        self._sorted_end = END
        self.count = 0
        return held

    def spans(self) -> Iterator[Span]:
        """All spans, in no order."""
        for group in self._groups.values():
            yield from group.spans()
        for span in self._unsorted.spans():
            yield from _by_group(span)

    def _group(self, name: str | None) -> Group:
        group = self._groups.get(name)
        if group is None:
            group = self._groups[name] = Group(name, self._log)
        return group

    def _list(self, group: Group) -> None:
        """Enter the group in the order under its present head."""
        head = group.head(END)
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
            elif busy.noisy(group.name):
                heappop(order)
                group.aside = True
                heappush(self._aside, (listed, group))
                busy.aside.setdefault(group.name, []).append(self)
            else:
                return group
        aside = self._aside
        while aside and aside[0][0] < settled:
            listed, group = aside[0]
            if group.listed == listed and group.aside:
                return group
            heappop(aside)
        return None

    def _oldest_group(self) -> Group | None:
        """The group whose first message in line came before all others."""
        order, aside = self._order, self._aside
        while order and (order[0][1].listed != order[0][0] or order[0][1].aside):
            heappop(order)
        while aside and (aside[0][1].listed != aside[0][0] or not aside[0][1].aside):
            heappop(aside)
        if order and aside:
            return min(order[0], aside[0])[1]
        return order[0][1] if order else aside[0][1] if aside else None

    def _forget(self, group: Group) -> None:
        if not group.count and not group.held:
            self._groups.pop(group.name, None)


def _by_group(span: Span) -> Iterator[Span]:
    """The messages of a fresh span as spans that know their groups: a run of each."""
    chunk, column, first, end = span.chunk, span.chunk.groups, span.first, span.end
    if not isinstance(column, list):
        yield Span(chunk, first, end, None, column)
        return
    base = chunk.first
    while first < end:
        name, stop = column[first - base], first + 1
        while stop < end and column[stop - base] == name:
            stop += 1
        yield Span(chunk, first, stop, None, name)
        first = stop
