"""A batch: messages as columns, the unit of work from the socket to the disk to Spark.

Bodies lie end to end in one buffer with int32 offsets (Arrow's binary layout), so a reader can wrap
them without a copy. Every other column is absent, one constant for the whole batch, or a list
with a value a message. A batch is never changed once it is made; the same object is what the
rules keep, what the journal writes and what a delivery shows.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from itertools import accumulate
from operator import sub
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from nexo.vocabulary.attributes import attribute_bytes
from nexo.vocabulary.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

OFFSET_TYPE = "i"  # int32, as in Arrow's binary layout
TIME_TYPE = "q"  # int64 milliseconds
_MANY = 1_000  # below this a size is found as quickly as noted


class DeadLetter(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Why a message is in a dead-letter queue."""

    reason: str
    source: str
    attempts: int
    first_failed_ms: int
    last_failed_ms: int
    consumer: str = ""  # who had it last


class Origin(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a moved message keeps of its former life: its id, its birth and why it moved."""

    id: str
    created_ms: int
    dead_letter: DeadLetter | None = None


class Columns(Protocol):
    """What has a size: a batch, or a chunk that still grows."""

    @property
    def offsets(self) -> array[int]: ...
    @property
    def groups(self) -> str | list[str | None] | None: ...
    @property
    def deduplication_ids(self) -> list[str | None] | None: ...
    @property
    def attributes(self) -> bytes | list[bytes | None] | None: ...
    @property
    def origins(self) -> list[Origin | None] | None: ...


class Batch(msgspec.Struct, frozen=True, dict=True):
    """`count` messages as columns. `attributes` are encoded maps, opaque to the rules."""

    payload: bytes
    offsets: array[int]
    priority: int | bytes = 0
    delay_ms: int | list[int] | None = None  # None: the default of the queue
    groups: str | list[str | None] | None = None
    deduplication_ids: list[str | None] | None = None
    attributes: bytes | list[bytes | None] | None = None
    origins: list[Origin | None] | None = None
    created: array[int] | None = None  # when each came, if they did not come together

    @property
    def count(self) -> int:
        return len(self.offsets) - 1

    @property
    def size(self) -> int:
        """See `size_of`. That of many messages is noted beside the columns: it takes a look at
        each, and is asked for wherever they pass."""
        count = len(self.offsets) - 1
        if count < _MANY:
            return size_of(self, 0, count)
        noted = self.__dict__
        if "size" not in noted:
            noted["size"] = size_of(self, 0, count)
        known: int = noted["size"]
        return known

    def body(self, index: int) -> bytes:
        return bytes(self.payload[self.offsets[index] : self.offsets[index + 1]])

    def bodies(self) -> list[bytes]:
        return [self.body(index) for index in range(self.count)]

    def slice(self, start: int, stop: int) -> Batch:
        """Messages `start` to `stop` as a batch of their own, with offsets from zero."""
        if start == 0 and stop == self.count and self.offsets[0] == 0:
            return self
        low = self.offsets[start]
        if start + 1 == stop and self.is_plain:  # as single pops take them
            high, created = self.offsets[stop], self.created
            return Batch(
                bytes(self.payload[low:high]),
                array(OFFSET_TYPE, (0, high - low)),
                self.priority,
                created=None if created is None else created[start:stop],
            )
        return Batch(
            payload=bytes(self.payload[low : self.offsets[stop]]),
            offsets=array(OFFSET_TYPE, [o - low for o in self.offsets[start : stop + 1]]),
            priority=_cut(self.priority, start, stop),
            delay_ms=_cut(self.delay_ms, start, stop),
            groups=_cut(self.groups, start, stop),
            deduplication_ids=_cut(self.deduplication_ids, start, stop),
            attributes=self.attributes
            if isinstance(self.attributes, bytes)
            else _cut(self.attributes, start, stop),
            origins=_cut(self.origins, start, stop),
            created=_cut(self.created, start, stop),
        )

    @property
    def is_plain(self) -> bool:
        """Whether there is no column but the bodies, and when they came."""
        return (
            self.delay_ms is None
            and self.groups is None
            and self.deduplication_ids is None
            and self.attributes is None
            and self.origins is None
            and isinstance(self.priority, int)
        )

    def select(self, indexes: Sequence[int]) -> Batch:
        """The messages at `indexes`, in that order, as a batch of their own."""
        chosen = batch_of([self.body(index) for index in indexes])
        return msgspec.structs.replace(
            chosen,
            priority=self.priority
            if isinstance(self.priority, int)
            else bytes(self.priority[index] for index in indexes),
            delay_ms=_pick(self.delay_ms, indexes),
            groups=_pick(self.groups, indexes),
            deduplication_ids=_pick(self.deduplication_ids, indexes),
            attributes=_pick(self.attributes, indexes),
            origins=_pick(self.origins, indexes),
            created=self.created and array(TIME_TYPE, [self.created[i] for i in indexes]),
        )


def batch_of(bodies: Iterable[bytes]) -> Batch:
    """A batch with these bodies and no other column."""
    bodies = bodies if isinstance(bodies, list) else list(bodies)
    offsets = array(OFFSET_TYPE, accumulate(map(len, bodies), initial=0))
    return Batch(payload=b"".join(bodies), offsets=offsets)


def concatenate(batches: Sequence[Batch]) -> Batch:
    """One batch of all of these, in order. Delays are not carried: they have done their work by
    the time that batches are joined."""
    if len(batches) == 1:
        return batches[0]
    offsets = array(OFFSET_TYPE, [0])
    for batch in batches:
        shift = offsets[-1] - batch.offsets[0]
        offsets.extend([offset + shift for offset in batch.offsets[1:]])
    return Batch(
        payload=b"".join([batch.payload for batch in batches]),
        offsets=offsets,
        priority=_join_priorities(batches),
        groups=_join([(b.groups, b.count) for b in batches]),
        deduplication_ids=_join([(b.deduplication_ids, b.count) for b in batches]),
        attributes=_join([(b.attributes, b.count) for b in batches]),
        origins=_join([(b.origins, b.count) for b in batches]),
        created=_join_times([batch.created for batch in batches]),
    )


def size_of(columns: Columns, start: int, stop: int) -> int:
    """What messages `start` to `stop` take in a frame and in memory: bodies, attributes, ids and
    origins. It adds up: the size of a batch is that of its messages, however they are cut."""
    size = columns.offsets[stop] - columns.offsets[start]
    attributes = columns.attributes
    if attributes is not None:
        if isinstance(attributes, bytes):
            size += len(attributes) * (stop - start)
        else:
            size += sum(map(len, filter(None, attributes[start:stop])))
    groups = columns.groups
    if groups is not None:
        if isinstance(groups, str):
            size += len(groups.encode()) * (stop - start)
        else:
            size += _text_bytes(groups[start:stop])
    if columns.deduplication_ids is not None:
        size += _text_bytes(columns.deduplication_ids[start:stop])
    if columns.origins is not None:
        size += sum(map(_origin_bytes, filter(None, columns.origins[start:stop])))
    return size


def fitting(columns: Columns, start: int, stop: int, bytes_max: int) -> int:
    """How many messages from `start` on, and none from `stop` on, take at most `bytes_max`."""
    offsets = columns.offsets
    fits = bisect_right(offsets, offsets[start] + bytes_max, start, stop + 1) - 1
    if size_of(columns, start, fits) <= bytes_max:
        return fits - start  # as for all that have nothing but bodies
    stop = start
    while (bytes_max := bytes_max - size_of(columns, stop, stop + 1)) >= 0:
        stop += 1
    return stop - start


def largest_message(batch: Batch, limit: int) -> int:
    """The size of the largest message as its sender counts it, body and attributes; exact for
    those beyond `limit`, because what encoding adds must not get a message refused."""
    offsets, attributes = batch.offsets, batch.attributes
    largest = max(map(sub, offsets[1:], offsets), default=0)
    if attributes is None or largest + _longest(attributes) <= limit:
        return largest
    largest = 0
    for index in range(batch.count):
        size = offsets[index + 1] - offsets[index]
        encoded = attributes[index] if isinstance(attributes, list) else attributes
        if encoded and size + len(encoded) > max(limit, largest):
            size += attribute_bytes(encoded)
        largest = max(largest, size)
    return largest


def _longest(attributes: list[bytes | None] | bytes) -> int:
    """Of all encoded attributes, found without looking at each by itself."""
    if isinstance(attributes, bytes):
        return len(attributes)
    return max(map(len, filter(None, attributes)), default=0)


def check_offsets(batch: Batch) -> None:
    """Refuse a batch whose bodies do not fit together; enough for one that has nothing else."""
    offsets, count = batch.offsets, batch.count
    if count < 1:
        raise InvalidArgument("the batch holds no message", "push at least one message")
    if offsets[0] != 0 or offsets[-1] != len(batch.payload):
        raise InvalidArgument("the offsets do not span the payload")
    values = offsets.tolist()
    if values != sorted(values):  # sorting what is sorted is the quickest look at all of them
        raise InvalidArgument("the offsets decrease")


def check_shape(batch: Batch) -> None:
    """Refuse a batch whose columns do not fit each other. Doors call this on what they decode."""
    check_offsets(batch)
    count = batch.count
    for name, column in (
        ("priority", batch.priority),
        ("delay_ms", batch.delay_ms),
        ("groups", batch.groups),
        ("deduplication_ids", batch.deduplication_ids),
        ("attributes", batch.attributes),
        ("origins", batch.origins),
    ):
        if column is None or isinstance(column, (int, str)):
            continue
        is_constant = name == "attributes" and isinstance(column, bytes)
        if not is_constant and len(column) != count:
            raise InvalidArgument(f"column {name} has {len(column)} values for {count} messages")


_ORIGIN_BYTES = 100  # an id, a name and the numbers, as msgpack


def _origin_bytes(origin: Origin) -> int:
    return _ORIGIN_BYTES + (len(origin.dead_letter.reason.encode()) if origin.dead_letter else 0)


def _text_bytes(texts: list[str | None]) -> int:
    return len("".join(filter(None, texts)).encode())


def _cut(column: Any, start: int, stop: int) -> Any:
    """Part of a column; a constant stays one."""
    return column[start:stop] if isinstance(column, (list, bytes, array)) else column


def _pick(column: Any, indexes: Sequence[int]) -> Any:
    return [column[index] for index in indexes] if isinstance(column, list) else column


def _join_priorities(batches: Sequence[Batch]) -> int | bytes:
    first = batches[0].priority
    if isinstance(first, int) and all(batch.priority == first for batch in batches):
        return first
    columns = [(batch.priority, batch.count) for batch in batches]
    return b"".join([bytes([p]) * count if isinstance(p, int) else p for p, count in columns])


def _join_times(parts: list[array[int] | None]) -> array[int] | None:
    joined = array(TIME_TYPE)
    for part in parts:
        if part is not None:  # all have one or none does: a chunk's rows are of one kind
            joined.extend(part)
    return joined or None


def _join(parts: list[tuple[Any, int]]) -> Any:
    """One column of several: absent or constant where all agree, else a list."""
    first = parts[0][0]
    if not isinstance(first, list) and all(column == first for column, _ in parts):
        return first
    joined: list[Any] = []
    for column, count in parts:
        joined.extend(column if isinstance(column, list) else [column] * count)
    return joined
