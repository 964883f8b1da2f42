"""Chunks: the batches of a queue or topic as they lie in memory.

A chunk is a run of sequence numbers and the batch that holds their messages. A large push is a
chunk by itself, without a copy; small pushes fill an open chunk. What a chunk costs does not
depend on how many messages it has, except for their bytes. The content may leave memory (it is
None then) and be read back from the chunk's rows.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from typing import TYPE_CHECKING, Any

from nexo.vocabulary.batch import OFFSET_TYPE, TIME_TYPE, Batch

if TYPE_CHECKING:
    from nexo.vocabulary.batch import Origin


COLUMN_BYTES = 12  # an offset and a time


class Growing:
    """The content of an open chunk: the columns of a batch, growing at the end."""

    __slots__ = (
        "attributes",
        "created",
        "deduplication_ids",
        "groups",
        "offsets",
        "origins",
        "payload",
        "plain",
    )

    def __init__(self) -> None:
        self.plain = True  # no message has anything but a body yet
        self.created = array(TIME_TYPE)
        self.payload = bytearray()
        self.offsets = array(OFFSET_TYPE, [0])
        self.groups: list[str | None] | None = None
        self.deduplication_ids: list[str | None] | None = None
        self.attributes: list[bytes | None] | None = None
        self.origins: list[Origin | None] | None = None

    @property
    def count(self) -> int:
        return len(self.offsets) - 1

    def add_one(self, body: bytes, now_ms: int) -> None:
        """The shortest way in: one message that is nothing but a body."""
        payload = self.payload
        payload += body
        self.offsets.append(len(payload))
        self.created.append(now_ms)
        if not self.plain:
            columns = (self.groups, self.deduplication_ids, self.attributes, self.origins)
            for column in columns:
                if column is not None:
                    column.append(None)

    def add(self, batch: Batch, now_ms: int) -> None:
        before, added, shift = self.count, batch.count, len(self.payload)
        self.created.extend([now_ms] * added)
        self.payload += batch.payload
        if added == 1:
            self.offsets.append(len(self.payload))
        else:
            self.offsets.extend([offset + shift for offset in batch.offsets[1:]])
        self.groups = _grow(self.groups, batch.groups, before, added)
        self.deduplication_ids = _grow(
            self.deduplication_ids, batch.deduplication_ids, before, added
        )
        self.attributes = _grow(self.attributes, batch.attributes, before, added)
        self.origins = _grow(self.origins, batch.origins, before, added)
        self.plain = not (self.groups or self.deduplication_ids or self.attributes or self.origins)

    def cut(self, start: int, stop: int) -> Batch:
        """A frozen copy of some of the messages."""
        offsets, low = self.offsets, self.offsets[start]
        if low:
            cut = array(OFFSET_TYPE, [offset - low for offset in offsets[start : stop + 1]])
        else:
            cut = offsets[start : stop + 1]
        return Batch(
            payload=bytes(self.payload[low : offsets[stop]]),
            offsets=cut,
            groups=self.groups and self.groups[start:stop],
            deduplication_ids=self.deduplication_ids and self.deduplication_ids[start:stop],
            attributes=self.attributes and self.attributes[start:stop],
            origins=self.origins and self.origins[start:stop],
            created=self.created[start:stop],
        )


Content = Batch | Growing


class Chunk:
    """Messages `first` to `end` of a log. `live` counts those that are not gone."""

    __slots__ = (
        "arrived_ms",
        "content",
        "created_first_ms",
        "created_last_ms",
        "end",
        "first",
        "flushed",
        "groups",
        "live",
        "payload_bytes",
        "row_start",
        "rows",
        "seqs",
        "unsaved",
    )

    def __init__(self, first: int, end: int, content: Content | None, created_ms: int) -> None:
        self.first = first
        self.end = end
        self.live = end - first
        self.content = content
        self.created_first_ms = created_ms
        self.created_last_ms = created_ms
        self.arrived_ms = 0  # when a topic brought what it had kept: from then retention counts
        self.groups: str | list[str | None] | None = None
        self.payload_bytes = 0  # with attributes, ids and origins: `size_of` all messages
        self.flushed = first  # messages below this have a row
        self.rows: list[int] = []
        self.row_start = 0  # where the chunk begins in its row, if it shares the row
        self.seqs: array[int] | None = None  # which messages are left, once copied forward
        self.unsaved = 0  # how often it was copied forward to a row that is not on disk yet

    def index(self, seq: int) -> int:
        """Where a live message stands in the content."""
        return seq - self.first if self.seqs is None else bisect_left(self.seqs, seq)

    def created_ms(self, seq: int) -> int:
        """When a live message came. Without the content only the limits are known: the later one
        is told, so that nothing expires too early."""
        content = self.content
        if content is None or content.created is None:
            return self.created_last_ms
        return content.created[self.index(seq)]

    def group(self, seq: int) -> str | None:
        groups = self.groups
        return groups[seq - self.first] if isinstance(groups, list) else groups

    @property
    def memory_bytes(self) -> int:
        """What the content takes while it is in memory, columns included, roughly."""
        return self.payload_bytes + COLUMN_BYTES * (self.end - self.first)


def _grow(column: Any, added: Any, before: int, count: int) -> Any:
    """Extend an optional column; it comes into being with the first message that has a value."""
    if added is None:
        if column is not None:
            column.extend([None] * count)
        return column
    if column is None:
        column = [None] * before
    column.extend(added if isinstance(added, list) else [added] * count)
    return column
