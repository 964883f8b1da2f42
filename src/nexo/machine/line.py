"""The line: messages of one priority that wait for a consumer, in order of sequence number.

It is a row of disjoint spans in order, cut into blocks. What is new goes to the end; taking from a
span leaves the rest of it at the head; what comes back finds its old place, and joins its
neighbours there if they have lived through the same. So neither push nor pop cost more when the
backlog is longer, and one message of a million is found in a few steps.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Any

from nexo.machine.span import Span, by_first, ranges_of_seqs
from nexo.vocabulary.limits import ROW_BLOCK_SPANS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nexo.machine.chunk import Chunk


class Row:
    """Disjoint spans in order of number. Most rows are short: they have a head and nothing more.
    `_firsts` are numbers where the later blocks begin, or a little before."""

    __slots__ = ("_firsts", "_head", "_later")

    def __init__(self) -> None:
        self._head: list[Span] = []
        self._later: list[list[Span]] | None = None
        self._firsts: list[int] | tuple[()] = ()

    def __len__(self) -> int:
        return len(self._head) + sum(map(len, self._later or ()))

    def find(self, seq: int, group: str | None = None) -> Span | None:
        """The span that holds a message."""
        block = self._block(bisect_right(self._firsts, seq))
        at = bisect_right(block, seq, key=by_first) - 1
        return block[at] if at >= 0 and seq < block[at].end else None

    def between(self, first: int, end: int) -> Iterator[Span]:
        """The spans that hold messages of a range, in order."""
        number = bisect_right(self._firsts, first)
        block = self._block(number)
        at = max(0, bisect_right(block, first, key=by_first) - 1)
        while True:
            while at < len(block):
                span = block[at]
                if span.first >= end:
                    return
                if span.end > first:
                    yield span
                at += 1
            number += 1
            if number > len(self._firsts):
                return
            block, at = self._block(number), 0

    def add(self, span: Span) -> None:
        """Put a span at its place."""
        number = bisect_right(self._firsts, span.first)
        block = self._block(number)
        block.insert(bisect_right(block, span.first, key=by_first), span)
        if len(block) >= 2 * ROW_BLOCK_SPANS:
            self._split(number)

    def remove(self, span: Span) -> None:
        """Take out a whole span."""
        number = bisect_right(self._firsts, span.first)
        block = self._block(number)
        at = bisect_right(block, span.first, key=by_first) - 1
        assert block[at] is span, f"{span} does not stand in this row"
        self._replace(number, at, [])

    def clear(self) -> list[Any]:
        """Hold nothing any more. Returns what was held, for `purge.take_apart`."""
        held = [self._head, self._later or []]
        self._head = []
        self._later = None
        self._firsts = ()
        return held

    def spans(self) -> Iterator[Span]:
        """All spans, in order."""
        yield from self._head
        for block in self._later or ():
            yield from block

    def last(self) -> Span | None:
        block = self._head if self._later is None else self._later[-1]
        return block[-1] if block else None

    def _block(self, number: int) -> list[Span]:
        if number == 0 or self._later is None:
            return self._head
        return self._later[number - 1]

    def _split(self, number: int) -> None:
        """A block has grown too long: its second half becomes the next one."""
        block = self._block(number)
        half = block[ROW_BLOCK_SPANS:]
        del block[ROW_BLOCK_SPANS:]
        if self._later is None:
            self._later, self._firsts = [], []
        assert isinstance(self._firsts, list)
        self._later.insert(number, half)
        self._firsts.insert(number, half[0].first)

    def _replace(self, number: int, at: int, parts: list[Span]) -> None:
        """Put what is left of a span where it stood."""
        block = self._block(number)
        block[at : at + 1] = parts
        if not block and self._later is not None:
            assert isinstance(self._firsts, list)
            if number == 0:
                self._head = self._later[0]
            index = max(0, number - 1)
            del self._later[index], self._firsts[index]
            if not self._later:
                self._later, self._firsts = None, ()


class Line(Row):
    """One priority of a queue without groups."""

    __slots__ = ("_tail", "count")

    def __init__(self) -> None:
        super().__init__()
        self._tail: Span | None = None  # the span of fresh messages that can still be extended
        self.count = 0

    def append(self, chunk: Chunk, first: int, end: int) -> None:
        """Fresh messages at the end of the line."""
        self.count += end - first
        tail = self._tail
        if tail is not None and tail.end == first and tail.chunk is chunk:
            tail.end = end
            return
        self._tail = span = Span(chunk, first, end, None, None)
        self._append(span)

    def give_back(self, span: Span) -> None:
        """Messages that come back, or whose time has come, at their old place."""
        self.count += span.end - span.first
        number = bisect_right(self._firsts, span.first)
        block = self._block(number)
        at = bisect_right(block, span.first, key=by_first)
        before = block[at - 1] if at else None
        behind = block[at] if at < len(block) else None
        if before is not None and before.end == span.first and before.is_like(span):
            before.end = span.end
            if behind is not None and behind.first == span.end and before.is_like(behind):
                before.end = behind.end
                del block[at]
                if behind is self._tail:
                    self._tail = before
        elif behind is not None and behind.first == span.end and behind.is_like(span):
            behind.first = span.first
        else:
            block.insert(at, span)
            if len(block) >= 2 * ROW_BLOCK_SPANS:
                self._split(number)

    def in_chunk(self, chunk: Chunk, first: int, end: int) -> Iterator[Span]:
        """The spans that hold messages of a range, which lies in one chunk."""
        return self.between(first, end)

    def head(self, settled: int) -> Span | None:
        """The span whose turn it is, if its first message is on disk."""
        head = self._head
        return head[0] if head and head[0].first < settled else None

    def oldest(self, settled: int) -> Span | None:
        """The span that came first, whether or not it is its turn."""
        head = self._head
        return head[0] if head and head[0].first < settled else None

    def take(self, count: int, settled: int) -> Span:
        """Up to `count` messages from the head, none of them at or beyond `settled`."""
        head = self._head
        span = head[0]
        first = span.first
        stop = first + count
        if stop > settled:
            stop = settled
        if stop >= span.end:
            if len(head) > 1:
                del head[0]
            else:
                self._replace(0, 0, [])
            if span is self._tail:
                self._tail = None
            self.count -= span.end - first
            return span
        taken = Span(span.chunk, first, stop, span.history, span.group)
        span.first = stop
        self.count -= stop - first
        return taken

    def cut(self, seq: int, group: str | None = None) -> Span | None:
        """Take out one message, wherever it stands."""
        taken = self.cut_run(seq, seq + 1)
        return taken[0] if taken else None

    def cut_run(self, first: int, end: int) -> list[Span]:
        """Take out the messages of a range; what is not in line is passed over."""
        head = self._head
        if head and head[0].first == first and end <= head[0].end:  # as most often
            return [self.take(end - first, end)]
        taken: list[Span] = []
        for span in list(Row.between(self, first, end)):
            low, high = max(first, span.first), min(end, span.end)
            number = bisect_right(self._firsts, span.first)
            at = bisect_right(self._block(number), span.first, key=by_first) - 1
            rest = [(span.first, low), (high, span.end)]
            self._replace(number, at, [span.part(*each) for each in rest if each[0] < each[1]])
            if span is self._tail:
                self._tail = None
            self.count -= high - low
            taken.append(span.part(low, high))
        return taken

    def cut_in_chunk(self, chunk: Chunk, first: int, end: int) -> list[Span]:
        """Take out the messages of a range, which lies in one chunk."""
        return self.cut_run(first, end)

    def cut_all(self, wanted: list[int]) -> list[Span]:
        """Take out these messages, wherever they stand; what is not in line is passed over.
        `wanted` is in order: runs of messages side by side stay one span."""
        runs = ranges_of_seqs(wanted)
        return [
            span
            for first, end in zip(runs[::2], runs[1::2], strict=True)
            for span in self.cut_run(first, end)
        ]

    def drop_below(self, seq: int, runs_max: int) -> list[Span]:
        """Take out what stands before `seq`, up to so many runs of it: retention has passed it
        by."""
        dropped: list[Span] = []
        while self._head and self._head[0].first < seq and len(dropped) < runs_max:
            dropped.append(self.take(seq - self._head[0].first, seq))
        return dropped

    def clear(self) -> list[Any]:
        self._tail = None
        self.count = 0
        return super().clear()

    def _append(self, span: Span) -> None:
        """At the end. Full blocks are left alone, so that a backlog that only grows is packed."""
        block = self._head if self._later is None else self._later[-1]
        if len(block) < ROW_BLOCK_SPANS:
            block.append(span)
            return
        if self._later is None:
            self._later, self._firsts = [], []
        assert isinstance(self._firsts, list)
        self._later.append([span])
        self._firsts.append(span.first)
