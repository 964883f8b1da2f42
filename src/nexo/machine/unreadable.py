"""Messages that the disk cannot give: they stand aside, and the queue goes past them.

They are still messages of the queue: in its depth, in its snapshots, gone with a purge. Standing
aside is not journaled, so a restart finds them in line and tries again. They do not expire, since
nothing but an operator should remove what is there and cannot be seen. In a FIFO queue the rest of
their group goes on, as it does when a message becomes a dead letter: order is kept among those that
can be read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nexo.machine.chunk import Chunk
    from nexo.machine.queue import Queue
    from nexo.machine.span import Span


def set_aside(queue: Queue, chunk: Chunk) -> int:
    """Take the messages of a chunk out of the line; how many were there."""
    lane = queue.lane_of(chunk.first)
    line, settled = lane.line, lane.log.settled
    spans: list[Span] = []
    # Whoever met them stood at the head: no walk through the line. Else they are looked for.
    while (head := line.head(settled)) is not None and head.chunk is chunk:
        spans.append(line.take(chunk.end - chunk.first, settled))
    if not spans:
        spans = line.cut_in_chunk(chunk, chunk.first, min(chunk.end, settled))
    if spans:
        queue.aside.setdefault(chunk, []).extend(spans)
    count = sum(span.end - span.first for span in spans)
    queue.aside_count += count
    return count


def bring_back(queue: Queue, chunk: Chunk) -> None:
    """Their content could be read: back to their old place in line."""
    for span in queue.aside.pop(chunk, ()):
        queue.aside_count -= span.end - span.first
        queue.enter(span)


def stands_aside(queue: Queue, seq: int) -> bool:
    """Whether a message is one of these."""
    return any(span.first <= seq < span.end for spans in queue.aside.values() for span in spans)


def take_aside(queue: Queue, seq: int) -> Span | None:
    """Take out one message that stands aside."""
    for chunk, spans in queue.aside.items():
        for at, span in enumerate(spans):
            if span.first <= seq < span.end:
                rest = [(span.first, seq), (seq + 1, span.end)]
                spans[at : at + 1] = [
                    span.part(*bounds) for bounds in rest if bounds[0] < bounds[1]
                ]
                if not spans:
                    del queue.aside[chunk]
                queue.aside_count -= 1
                return span.part(seq, seq + 1)
    return None
