"""The line: messages of one priority that wait for a consumer, in order of sequence number.

It is a heap of disjoint spans, keyed by their first message. What is new goes to the end and
what comes back finds its old place, both for the price of a heap push; taking from a span leaves
the rest of it at the head, which keeps the heap in order without any work. So neither push nor
pop cost more when the backlog is longer.
"""

from __future__ import annotations

from bisect import bisect_left
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from nexo.machine.span import Span

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nexo.machine.chunk import Chunk


class Line:
    """One priority of a queue without groups."""

    __slots__ = ("_heap", "_tail", "count")

    def __init__(self) -> None:
        self._heap: list[tuple[int, Span]] = []
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
        heappush(self._heap, (first, span))

    def give_back(self, span: Span) -> None:
        """Messages that come back, or whose time has come, at their old place."""
        self.count += span.end - span.first
        heappush(self._heap, (span.first, span))

    def head(self, settled: int) -> Span | None:
        """The span whose turn it is, if its first message is on disk."""
        heap = self._heap
        return heap[0][1] if heap and heap[0][0] < settled else None

    def take(self, count: int, settled: int) -> Span:
        """Up to `count` messages from the head, none of them at or beyond `settled`."""
        heap = self._heap
        first, span = heap[0]
        stop = first + count
        if stop > settled:
            stop = settled
        if stop >= span.end:
            heappop(heap)
            if span is self._tail:
                self._tail = None
            self.count -= span.end - first
            return span
        taken = Span(span.chunk, first, stop, span.history, span.group)
        span.first = stop
        heap[0] = (stop, span)
        self.count -= stop - first
        return taken

    def cut(self, seq: int) -> Span | None:
        """Take out one message, wherever it stands."""
        for index, (_, span) in enumerate(self._heap):
            if span.first <= seq < span.end:
                rest = [(span.first, seq), (seq + 1, span.end)]
                parts = [span.part(first, end) for first, end in rest if first < end]
                self._heap[index : index + 1] = [(part.first, part) for part in parts]
                heapify(self._heap)
                if span is self._tail:
                    self._tail = None
                self.count -= 1
                return span.part(seq, seq + 1)
        return None

    def cut_all(self, wanted: list[int]) -> list[Span]:
        """Take out these messages, wherever they stand; what is not in line is passed over.
        `wanted` is in order."""
        kept: list[tuple[int, Span]] = []
        taken: list[Span] = []
        for entry in self._heap:
            span = entry[1]
            low, high = bisect_left(wanted, span.first), bisect_left(wanted, span.end)
            if low == high:
                kept.append(entry)
                continue
            if span is self._tail:
                self._tail = None
            at = span.first
            while low < high:  # runs of messages side by side stay one span
                first, end = wanted[low], wanted[low] + 1
                low += 1
                while low < high and wanted[low] == end:
                    low, end = low + 1, end + 1
                if at < first:
                    kept.append((at, span.part(at, first)))
                taken.append(span.part(first, end))
                at = end
            if at < span.end:
                kept.append((at, span.part(at, span.end)))
        heapify(kept)
        self._heap = kept
        self.count -= sum(span.end - span.first for span in taken)
        return taken

    def drop_below(self, seq: int) -> list[Span]:
        """Take out everything before `seq`: retention has passed it by."""
        dropped = []
        while self._heap and self._heap[0][0] < seq:
            dropped.append(self.take(seq - self._heap[0][0], seq))
        return dropped

    def clear(self) -> None:
        self._heap.clear()
        self._tail = None
        self.count = 0

    def spans(self) -> Iterator[Span]:
        """All spans, in no order."""
        return (span for _, span in self._heap)
