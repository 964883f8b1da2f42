"""Chunks: the batches of a queue or topic as they lie in memory.

A chunk is a run of sequence numbers and the batch that holds their messages. A large push is a
chunk by itself, without a copy; small pushes fill an open chunk. What a chunk costs does not
depend on how many messages it has, except for their bytes. The content may leave memory (it is
None then) and be read back from the chunk's rows.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import msgspec

from nexo.vocabulary.batch import OFFSET_TYPE, TIME_TYPE, Batch
from nexo.vocabulary.limits import PACKED_ROWS_MIN, PIECE_BITS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from nexo.vocabulary.batch import Origin


COUNT_TYPE = "I"
COLUMN_BYTES = 12  # an offset and a time
CHUNK_BYTES = 530  # what a chunk takes besides its content, with what refers to it; measured


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
        "priorities",
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
        self.priorities: bytearray | None = None  # of an archive; elsewhere numbers tell them

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
            if self.priorities is not None:
                self.priorities.append(0)

    def add(self, batch: Batch, times: Sequence[int], priority: int | bytes = 0) -> None:
        """A batch whose messages came at these times, with the priority that is to be shown."""
        before, added, shift = self.count, batch.count, len(self.payload)
        if added == 1 and self.plain and not priority and batch.is_plain:
            self.add_one(batch.payload, times[0])
            return
        self.created.extend(times)
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
        if priority and self.priorities is None:
            self.priorities = bytearray(before)
        if self.priorities is not None:
            self.priorities += bytes([priority]) * added if isinstance(priority, int) else priority
        columns = (self.groups, self.deduplication_ids, self.attributes, self.origins)
        self.plain = not (any(columns) or self.priorities)

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
            priority=0 if self.priorities is None else bytes(self.priorities[start:stop]),
            created=self.created[start:stop],
        )


Content = Batch | Growing


class PackedRows:
    """The rows of a chunk that gets no more of them, as a snapshot has them: an archive of a
    message a commit has a row a message, and keeps them for days."""

    __slots__ = ("packed",)

    def __init__(self, rows: Iterable[int]) -> None:
        self.packed = _encode_rows(list(rows))

    def __iter__(self) -> Iterator[int]:
        return iter(_decode_rows(self.packed))

    def __len__(self) -> int:
        return len(_decode_rows(self.packed))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, (list, PackedRows)) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"PackedRows({list(self)})"


_encode_rows = msgspec.msgpack.Encoder().encode
_decode_rows = msgspec.msgpack.Decoder(list[int]).decode


def packed(rows: list[int] | PackedRows) -> list[int] | PackedRows:
    """Rows in as little memory as they need."""
    return PackedRows(rows) if len(rows) >= PACKED_ROWS_MIN else rows


def as_packed(rows: object) -> msgspec.Raw:
    """For an encoder: rows are packed as it would pack them."""
    if isinstance(rows, PackedRows):
        return msgspec.Raw(rows.packed)
    raise NotImplementedError(f"{type(rows)} cannot be encoded")


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
        "leases",
        "live",
        "payload_bytes",
        "row_ends",
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
        self.rows: list[int] | PackedRows = []
        # Where each of several rows ends, in messages of the chunk; of topics, if it is known.
        self.row_ends: array[int] | None = None
        self.row_start = 0  # where the chunk begins in its row, if it shares the row
        self.seqs: array[int] | None = None  # which messages are left, once copied forward
        # Which leases took messages of each piece of it, to find one in flight; some have ended.
        self.leases: dict[int, list[int]] | None = None
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

    def came_ms(self, seq: int) -> int:
        """From when retention counts for a live message. What a topic shares was published before
        it came, but is kept as long as the rest."""
        return max(self.created_ms(seq), self.created_first_ms, self.arrived_ms)

    def note_rows(self, counts: Iterable[int]) -> None:
        """How many messages each row has: who takes some of them has to hold only their rows."""
        self.row_ends = array(COUNT_TYPE, accumulate(counts))

    def piece(self, seq: int) -> int:
        """A chunk is looked through in pieces: which one holds a message."""
        return seq - self.first >> PIECE_BITS

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
