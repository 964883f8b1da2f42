"""Copying forward: one live message must not keep the bytes of a thousand dead ones.

When most of a chunk is dead, its live messages become a row of their own. The chunk keeps its place
and its numbers; only where each message lies in the content changes.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from nexo.machine.chunk import Growing
from nexo.machine.peek import in_chunk
from nexo.vocabulary.batch import TIME_TYPE
from nexo.vocabulary.changes import Rewritten
from nexo.vocabulary.limits import SPARSE_CHUNK_BYTES, SPARSE_CHUNK_RATIO

if TYPE_CHECKING:
    from nexo.machine.chunk import Chunk
    from nexo.machine.queue import Lane, Queue


def is_sparse(lane: Lane, chunk: Chunk) -> bool:
    """Whether the chunk is worth copying forward."""
    kept = chunk.end - chunk.first if chunk.seqs is None else len(chunk.seqs)
    if chunk.live * SPARSE_CHUNK_RATIO > kept:
        return False
    dead_bytes = chunk.payload_bytes * (kept - chunk.live) // max(1, kept)
    return (
        dead_bytes >= SPARSE_CHUNK_BYTES
        and chunk.first in lane.log.chunks  # else a purge has dropped it
        and chunk.end <= lane.log.settled
        and not isinstance(chunk.content, Growing)
    )


def copy_forward(queue: Queue, *chunks: Chunk) -> None:
    """Write the live messages of each chunk to a new row; their contents are in memory."""
    for chunk in chunks:
        live = [seq for each in in_chunk(queue, chunk) for seq in range(each.first, each.end)]
        for span in queue.aside.get(chunk, ()):
            live += range(span.first, span.end)
        live.sort()
        _rewrite(queue, chunk, live)


def _rewrite(queue: Queue, chunk: Chunk, live: list[int]) -> None:
    content = chunk.content
    assert content is not None
    assert not isinstance(content, Growing)
    log = queue.lane_of(chunk.first).log
    copied = content.select([chunk.index(seq) for seq in live])
    log.evict(chunk)
    log.rows_change(chunk)
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
