"""How a batch, a record and a snapshot look as columns, with their checksums.

A checksum covers everything in its row, the key included, so that a row that sits in the wrong
place is found as surely as one whose bytes changed. It is checked at every read. Priorities and
delays are not stored: by the time that a batch is journaled they have done their work.
"""

from __future__ import annotations

import sys
from array import array
from struct import Struct
from typing import TYPE_CHECKING, TypeAlias
from zlib import crc32

import msgspec

from nexo.vocabulary.batch import OFFSET_TYPE, TIME_TYPE, Batch, Origin
from nexo.vocabulary.errors import DataCorrupt, InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Sequence

    from apsw import SQLiteValue

# row, count, checksum, offsets, extras, payload: the order of the table's columns. The payload is
# last, so that reading any other column never walks through its overflow pages.
RowColumns: TypeAlias = tuple[int, int, int, bytes, bytes | None, bytes]

_ROW_KEY = Struct("<qqq")
_ENTRY_KEY = Struct("<cqq")
_SWAP = sys.byteorder == "big"  # the disk is little-endian, as Arrow is
_OFFSET_BYTES = array(OFFSET_TYPE).itemsize
_RECORD, _SNAPSHOT = b"r", b"s"

CORRUPT_HINT = "run `nexo doctor` on the data directory, and restore it from a backup"


class Extras(msgspec.Struct, frozen=True, array_like=True):
    """The columns of a batch that most batches lack."""

    groups: str | list[str | None] | None
    deduplication_ids: list[str | None] | None
    attributes: bytes | list[bytes | None] | None
    origins: list[Origin | None] | None
    created: bytes | None = None  # int64 milliseconds, as little-endian as the offsets
    priority: int | bytes = 0


_encode_extras = msgspec.msgpack.Encoder().encode
_decode_extras = msgspec.msgpack.Decoder(Extras).decode


def encode_row(row: int, batch: Batch) -> RowColumns:
    offsets = batch.offsets
    if getattr(offsets, "typecode", None) != OFFSET_TYPE:
        raise InvalidArgument(f"row {row}: offsets must be an array of int32")
    count = len(offsets) - 1
    payload = batch.payload
    if isinstance(payload, memoryview):
        payload = payload.cast("B")
    if count < 1 or offsets[0] != 0 or offsets[-1] != len(payload):
        raise InvalidArgument(f"row {row}: the offsets do not span the payload")
    extras = None
    if (
        batch.groups is not None
        or batch.deduplication_ids is not None
        or batch.attributes is not None
        or batch.origins is not None
        or batch.created is not None
        or batch.priority
    ):
        created = batch.created
        extras = _encode_extras(
            Extras(
                batch.groups,
                batch.deduplication_ids,
                batch.attributes,
                batch.origins,
                None if created is None else _stored(created),
                batch.priority,
            )
        )
    stored_offsets = _stored(offsets)
    checksum = _row_checksum(row, count, stored_offsets, extras, payload)
    return row, count, checksum, stored_offsets, extras, payload


def decode_row(columns: Sequence[SQLiteValue] | RowColumns) -> Batch:
    """The batch of a stored row, or `DataCorrupt`: the columns may be anything at all."""
    row, count, checksum, stored_offsets, extras, payload = columns
    if not (
        isinstance(row, int)
        and isinstance(count, int)
        and isinstance(stored_offsets, bytes)
        and isinstance(payload, bytes)
        and (extras is None or isinstance(extras, bytes))
    ):
        raise DataCorrupt(f"table payload, row {row}: a column has the wrong type", CORRUPT_HINT)
    if checksum != _row_checksum(row, count, stored_offsets, extras, payload):
        raise DataCorrupt(f"table payload, row {row}: the checksum does not match", CORRUPT_HINT)
    if len(stored_offsets) != (count + 1) * _OFFSET_BYTES:
        raise DataCorrupt(f"table payload, row {row}: {count} is not its count", CORRUPT_HINT)
    offsets = _loaded(OFFSET_TYPE, stored_offsets)
    if offsets[-1] != len(payload):
        raise DataCorrupt(f"table payload, row {row}: offsets and payload differ", CORRUPT_HINT)
    if extras is None:
        return Batch(payload=payload, offsets=offsets)
    rest = _decode_extras(extras)
    return Batch(
        payload=payload,
        offsets=offsets,
        groups=rest.groups,
        deduplication_ids=rest.deduplication_ids,
        attributes=rest.attributes,
        origins=rest.origins,
        created=None if rest.created is None else _loaded(TIME_TYPE, rest.created),
        priority=rest.priority,
    )


def record_checksum(owner: int, number: int, data: bytes) -> int:
    return crc32(data, crc32(_ENTRY_KEY.pack(_RECORD, owner, number)))


def snapshot_checksum(owner: int, number: int, data: bytes | bytearray) -> int:
    return crc32(data, crc32(_ENTRY_KEY.pack(_SNAPSHOT, owner, number)))


def meta_checksum(name: str, value: int) -> int:
    return crc32(f"{name}={value}".encode())


def _row_checksum(
    row: int, count: int, offsets: bytes, extras: bytes | None, payload: bytes
) -> int:
    checksum = crc32(_ROW_KEY.pack(row, count, -1 if extras is None else len(extras)))
    checksum = crc32(offsets, checksum)
    if extras is not None:
        checksum = crc32(extras, checksum)
    return crc32(payload, checksum)


def _stored(column: array[int]) -> bytes:
    if not _SWAP:
        return column.tobytes()
    turned = array(column.typecode, column)
    turned.byteswap()
    return turned.tobytes()


def _loaded(kind: str, stored: bytes) -> array[int]:
    column: array[int] = array(kind)
    column.frombytes(stored)
    if _SWAP:
        column.byteswap()
    return column
