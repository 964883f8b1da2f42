"""Spans: runs of messages that are in the same place and have lived through the same.

A span lies within one chunk. As long as messages are treated alike they stay one span, so a
thousand of them cost what one costs; what treats them apart (a partial ack, a nack) splits it.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

import msgspec

from nexo.vocabulary.states import State

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nexo.machine.chunk import Chunk

READY = State.READY  # looked up once, not with each span


class History(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a message that was delivered before has been through."""

    attempts: int
    first_delivered_ms: int
    first_failed_ms: int = 0


def attempted(history: History) -> History:
    """One attempt more."""
    return History(history.attempts + 1, history.first_delivered_ms, history.first_failed_ms)


class Span:
    """`end - first` messages of a chunk, in one place. The later fields matter in flight only."""

    __slots__ = (
        "chunk",
        "consumer",
        "deadline_ms",
        "delivered_ms",
        "end",
        "first",
        "group",
        "history",
        "state",
        "timed_out_lease",
        "visibility_ms",
    )

    def __init__(
        self, chunk: Chunk, first: int, end: int, history: History | None, group: str | None
    ) -> None:
        self.chunk = chunk
        self.first = first
        self.end = end
        self.history = history
        self.group = group
        self.state = READY
        self.deadline_ms = 0
        self.delivered_ms = 0  # of the lease that it is on
        self.visibility_ms = 0
        self.consumer = ""
        self.timed_out_lease = 0  # of a message in line: its last delivery, if that timed out

    def part(self, first: int, end: int) -> Span:
        """A span like this one over some of its messages."""
        part = Span(self.chunk, first, end, self.history, self.group)
        part.state = self.state
        part.deadline_ms = self.deadline_ms
        part.delivered_ms = self.delivered_ms
        part.visibility_ms = self.visibility_ms
        part.consumer = self.consumer
        part.timed_out_lease = self.timed_out_lease
        return part

    def is_like(self, other: Span) -> bool:
        """Whether messages in line have lived through the same, so that neighbours may be one."""
        return (
            self.chunk is other.chunk
            and self.timed_out_lease == other.timed_out_lease
            and self.delivered_ms == other.delivered_ms
            and self.history == other.history
            and self.group == other.group
        )

    def __repr__(self) -> str:
        return f"Span({self.first}..{self.end} {self.state.name} {self.history})"


by_first = attrgetter("first")  # the order of a lease and of a line


def ranges_of_seqs(seqs: list[int]) -> list[int]:
    """Numbers of messages as flat ranges, in their order."""
    ranges: list[int] = []
    for seq in seqs:
        if ranges and ranges[-1] == seq:
            ranges[-1] = seq + 1
        else:
            ranges += (seq, seq + 1)
    return ranges


def ranges_of(spans: Iterable[Span]) -> tuple[int, ...]:
    """The numbers of spans as flat ranges. Those that follow one another are one, also across
    chunks: a record of many small pushes is no longer than one of a large push."""
    ranges: list[int] = []
    for span in spans:
        if ranges and ranges[-1] == span.first:
            ranges[-1] = span.end
        else:
            ranges += (span.first, span.end)
    return tuple(ranges)
