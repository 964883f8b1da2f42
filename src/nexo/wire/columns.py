"""Batches and deliveries as bytes: columns side by side, so that neither side copies payloads.

A batch:
    u32 count, u32 payload size, u32 extras size
    int32 one more than messages; payload, extras (msgpack; absent where all of them are)

A part of a delivery or of a reading:
    u64 first, i64 created_ms, i64 first_delivered_ms, u32 attempts
    a batch
"""

from __future__ import annotations

import struct
from array import array
from struct import Struct
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta

from nexo.vocabulary import fields
from nexo.vocabulary.attributes import check_attributes
from nexo.vocabulary.batch import (
    OFFSET_TYPE,
    TIME_TYPE,
    Batch,
    Origin,
    check_offsets,
    check_shape,
)
from nexo.vocabulary.errors import MessageTooLarge
from nexo.vocabulary.limits import BATCH_BYTES_MAX, BATCH_MESSAGES_MAX
from nexo.wire.frame import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Sequence

_BATCH = Struct("<III")
_PART = Struct("<QqqI")


class Extras(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """The columns that most batches lack."""

    priority: int | bytes = 0
    delay_ms: int | list[int] | None = None
    groups: str | list[str | None] | None = None
    deduplication_ids: list[str | None] | None = None
    attributes: bytes | list[bytes | None] | None = None
    origins: list[Origin | None] | None = None
    created: bytes | None = None


_Priorities = Annotated[bytes, Meta(max_length=BATCH_MESSAGES_MAX)]
_Delays = Annotated[list[fields.DelayMs], Meta(max_length=BATCH_MESSAGES_MAX)]
_Groups = Annotated[list[fields.GroupId | None], Meta(max_length=BATCH_MESSAGES_MAX)]
_Ids = Annotated[list[fields.DeduplicationId | None], Meta(max_length=BATCH_MESSAGES_MAX)]
_Attributes = Annotated[list[bytes | None], Meta(max_length=BATCH_MESSAGES_MAX)]


class GivenExtras(msgspec.Struct, frozen=True, array_like=True):
    """The same as a client gives them, each within its range. A client cannot say where a message
    came from or when."""

    priority: fields.Priority | _Priorities = 0
    delay_ms: fields.DelayMs | _Delays | None = None
    groups: fields.GroupId | _Groups | None = None
    deduplication_ids: _Ids | None = None
    attributes: bytes | _Attributes | None = None
    origins: None = None
    created: None = None


class WirePart(msgspec.Struct, frozen=True, gc=False):
    """Messages that lie side by side, as they travel."""

    first: int
    created_ms: int
    first_delivered_ms: int
    attempts: int
    batch: Batch


class RawPart(msgspec.Struct, frozen=True, gc=False):
    """The same, its columns still as bytes: for a reader that wraps them without a copy."""

    first: int
    created_ms: int
    attempts: int
    count: int
    offsets: memoryview  # int32, one more than messages
    payload: memoryview
    extras: Extras


_NO_EXTRAS = Extras()
_encode_extras = msgspec.msgpack.Encoder().encode
_decode_extras = msgspec.msgpack.Decoder(Extras).decode
_decode_given = msgspec.msgpack.Decoder(GivenExtras).decode


def encode_batch(batch: Batch) -> list[bytes | memoryview]:
    """The pieces of a batch, in order."""
    extras = Extras(
        batch.priority,
        batch.delay_ms,
        batch.groups,
        batch.deduplication_ids,
        batch.attributes,
        batch.origins,
        None if batch.created is None else batch.created.tobytes(),
    )
    packed = b"" if extras == _NO_EXTRAS else _encode_extras(extras)
    offsets = batch.offsets.tobytes()
    prefix = _BATCH.pack(batch.count, len(batch.payload), len(packed))
    return [prefix, offsets, batch.payload, packed] if packed else [prefix, offsets, batch.payload]


def _cut(view: memoryview, at: int) -> tuple[int, int, int, int, int]:
    """How many messages a batch has, and where its columns begin and end."""
    try:
        count, payload_size, extras_size = _BATCH.unpack_from(view, at)
    except struct.error:
        raise ProtocolError("the batch is cut off") from None
    offsets_at = at + _BATCH.size
    payload_at = offsets_at + 4 * (count + 1)
    extras_at = payload_at + payload_size
    end = extras_at + extras_size
    if end > len(view):
        raise ProtocolError("the batch is cut off")
    return count, offsets_at, payload_at, extras_at, end


def decode_batch(view: memoryview, at: int = 0) -> tuple[Batch, int]:
    """A batch and where it ends. What does not fit together is refused."""
    _, offsets_at, payload_at, extras_at, end = _cut(view, at)
    offsets = array(OFFSET_TYPE)
    offsets.frombytes(view[offsets_at:payload_at])
    payload = bytes(view[payload_at:extras_at])
    if extras_at == end:
        batch = Batch(payload, offsets)
        check_offsets(batch)
    else:
        batch = _with_extras(payload, offsets, bytes(view[extras_at:end]))
        check_shape(batch)
    return batch, end


def decode_given(view: memoryview) -> Batch:
    """The one batch that a client gives: every value of its columns is checked here, and nothing
    large is made of what will be refused."""
    count, offsets_at, payload_at, extras_at, end = _cut(view, 0)
    if end != len(view):
        raise ProtocolError("there are bytes behind the batch")
    if count > BATCH_MESSAGES_MAX or extras_at - payload_at > BATCH_BYTES_MAX:
        raise MessageTooLarge(
            f"a batch of {count} messages and {extras_at - payload_at} bytes is too large",
            f"at once it may have {BATCH_MESSAGES_MAX} messages and {BATCH_BYTES_MAX} bytes",
        )
    offsets = array(OFFSET_TYPE)
    offsets.frombytes(view[offsets_at:payload_at])
    payload = bytes(view[payload_at:extras_at])
    if extras_at == end:
        batch = Batch(payload, offsets)
        check_offsets(batch)
        return batch
    try:
        given = _decode_given(view[extras_at:end])
    except msgspec.ValidationError as error:
        raise fields.refused(error, GivenExtras) from None
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise ProtocolError(f"the columns of the batch cannot be read: {error}") from None
    batch = Batch(
        payload,
        offsets,
        given.priority,
        given.delay_ms,
        given.groups,
        given.deduplication_ids,
        given.attributes,
    )
    check_shape(batch)
    if given.attributes is not None:
        check_attributes(given.attributes)
    return batch


def encode_parts(parts: Sequence[WirePart]) -> list[bytes | memoryview]:
    pieces: list[bytes | memoryview] = []
    for part in parts:
        pieces.append(
            _PART.pack(part.first, part.created_ms, part.first_delivered_ms, part.attempts)
        )
        pieces += encode_batch(part.batch)
    return pieces


def decode_parts(view: memoryview) -> list[WirePart]:
    parts: list[WirePart] = []
    at = 0
    while at < len(view):
        try:
            first, created_ms, first_delivered_ms, attempts = _PART.unpack_from(view, at)
        except struct.error:
            raise ProtocolError("the delivery is cut off") from None
        batch, at = decode_batch(view, at + _PART.size)
        parts.append(WirePart(first, created_ms, first_delivered_ms, attempts, batch))
    return parts


def raw_parts(view: memoryview) -> list[RawPart]:
    """The parts of an answer as they lie there. The sizes are checked, the offsets are not."""
    parts: list[RawPart] = []
    at = 0
    while at < len(view):
        try:
            first, created_ms, _, attempts = _PART.unpack_from(view, at)
            count, payload_size, extras_size = _BATCH.unpack_from(view, at + _PART.size)
        except struct.error:
            raise ProtocolError("the part is cut off") from None
        offsets_at = at + _PART.size + _BATCH.size
        payload_at = offsets_at + 4 * (count + 1)
        extras_at = payload_at + payload_size
        at = extras_at + extras_size
        if at > len(view):
            raise ProtocolError("the part is cut off")
        extras = _NO_EXTRAS
        if extras_size:
            try:
                extras = _decode_extras(view[extras_at:at])
            except (msgspec.DecodeError, ValueError) as error:
                raise ProtocolError(f"the columns of a part cannot be read: {error}") from None
        parts.append(
            RawPart(
                first,
                created_ms,
                attempts,
                count,
                view[offsets_at:payload_at],
                view[payload_at:extras_at],
                extras,
            )
        )
    return parts


def _with_extras(payload: bytes, offsets: array[int], packed: bytes) -> Batch:
    try:
        extras = _decode_extras(packed)
        created = None
        if extras.created is not None:
            created = array(TIME_TYPE)
            created.frombytes(extras.created)
            if len(created) != len(offsets) - 1:
                raise ValueError("a time for each message, or for none")
    except (msgspec.DecodeError, ValueError) as error:
        raise ProtocolError(f"the columns of the batch cannot be read: {error}") from None
    return Batch(
        payload,
        offsets,
        extras.priority,
        extras.delay_ms,
        extras.groups,
        extras.deduplication_ids,
        extras.attributes,
        extras.origins,
        created,
    )
