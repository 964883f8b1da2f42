"""The answer to a push: which numbers its messages got."""

from __future__ import annotations

import msgspec


class Accepted(msgspec.Struct, frozen=True, gc=False):
    """The numbers of the pushed messages, in the order of the batch. `ranges` is flat: first,
    end, first, end …; a duplicate has the number of the message it repeats."""

    ranges: list[int]
    duplicates: int = 0

    def seqs(self) -> list[int]:
        pairs = zip(self.ranges[::2], self.ranges[1::2], strict=True)
        return [seq for first, end in pairs for seq in range(first, end)]


def ranges_of(seqs: list[int]) -> list[int]:
    """Numbers as flat ranges, in their order."""
    ranges: list[int] = []
    for seq in seqs:
        if ranges and ranges[-1] == seq:
            ranges[-1] = seq + 1
        else:
            ranges += (seq, seq + 1)
    return ranges
