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
    from nexo.machine.queue import Queue


def sparse_chunks(queue: Queue) -> list[Chunk]:
    """The chunks that are worth copying forward."""
    found = []
    for lane in queue.lanes:
        for chunk in lane.log.chunks.values():
            kept = chunk.end - chunk.first if chunk.seqs is None else len(chunk.seqs)
            dead_bytes = chunk.payload_bytes * (kept - chunk.live) // max(1, kept)
            if (
                chunk.live * SPARSE_CHUNK_RATIO <= kept
                and dead_bytes >= SPARSE_CHUNK_BYTES
                and chunk.end <= lane.log.settled
                and not isinstance(chunk.content, Growing)
            ):
                found.append(chunk)
    return found


def copy_forward(queue: Queue, chunk: Chunk) -> None:
    """Write the live messages of a chunk to a new row; its content is in memory."""
    content = chunk.content
    assert content is not None
    assert not isinstance(content, Growing)
    live = [seq for each in in_chunk(queue, chunk) for seq in range(each.first, each.end)]
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
