"""Copying forward: one live message must not keep the bytes of a thousand dead ones.

When most of a chunk is dead, its live messages become a row of their own. The chunk keeps its place
and its numbers; only where each message lies in the content changes.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from nexo.machine.chunk import Growing
from nexo.vocabulary.batch import TIME_TYPE
from nexo.vocabulary.changes import Rewritten
from nexo.vocabulary.limits import SPARSE_CHUNK_BYTES, SPARSE_CHUNK_RATIO

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nexo.machine.chunk import Chunk
    from nexo.machine.queue import Lane, Queue
    from nexo.machine.span import Span


def is_sparse(lane: Lane, chunk: Chunk) -> bool:
    """Whether the chunk is worth copying forward."""
    kept = chunk.end - chunk.first if chunk.seqs is None else len(chunk.seqs)
    if chunk.live * SPARSE_CHUNK_RATIO > kept:
        return False
    dead_bytes = chunk.payload_bytes * (kept - chunk.live) // max(1, kept)
    return (
        dead_bytes >= SPARSE_CHUNK_BYTES
        and chunk.end <= lane.log.settled
        and not isinstance(chunk.content, Growing)
    )


def copy_forward(queue: Queue, *chunks: Chunk) -> None:
    """Write the live messages of each chunk to a new row; their contents are in memory. Several
    at once, since finding the messages is a walk through the queue."""
    live: dict[Chunk, list[int]] = {chunk: [] for chunk in chunks}
    for span in _spans(queue):
        seqs = live.get(span.chunk)
        if seqs is not None:
            seqs.extend(range(span.first, span.end))
    for chunk, seqs in live.items():
        seqs.sort()
        _rewrite(queue, chunk, seqs)


def _rewrite(queue: Queue, chunk: Chunk, live: list[int]) -> None:
    content = chunk.content
    assert content is not None
    assert not isinstance(content, Growing)
    log = queue.lane_of(chunk.first).log
    copied = content.select([chunk.index(seq) for seq in live])
    log.evict(chunk)
    row = next(queue.row_numbers)
    queue.dropped_rows += chunk.rows
    queue.new_rows.append((row, copied))
    chunk.rows, chunk.row_start = [row], 0
    chunk.seqs = array(TIME_TYPE, live)
    chunk.payload_bytes = copied.size
    log.restore(chunk, copied)
    chunk.unsaved += 1
    queue.rewritten.append(chunk)
    queue.changes.append(Rewritten(chunk.first, row, live, chunk.payload_bytes))


def _spans(queue: Queue) -> Iterator[Span]:
    """Every span of the queue, wherever its messages are."""
    for lane in queue.lanes:
        yield from lane.line.spans()
    for _, _, span in queue.scheduled:
        yield span
    for aside in queue.aside.values():
        yield from aside
    for held in queue.leases.values():
        yield from held if isinstance(held, list) else (held,)
