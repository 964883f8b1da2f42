"""Receipt handles: which delivery of which message of which life of a queue, as opaque text."""

from __future__ import annotations

from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from binascii import crc32
from struct import Struct
from typing import NamedTuple

from nexo.doors.sqs_http.errors import SqsError
from nexo.vocabulary.limits import SQS_TOLD_CHARS_MAX

_LAYOUT = Struct(">QQQI")  # incarnation, lease, sequence number, checksum of them
_PARTS = Struct(">QQQ")


class Handle(NamedTuple):
    lease: int
    seq: int


def handle_of(incarnation: int, lease: int, seq: int) -> str:
    parts = _PARTS.pack(incarnation, lease, seq)
    return b64encode(parts + crc32(parts).to_bytes(4, "big")).decode()


def read_handle(text: str, incarnation: int) -> Handle:
    """The delivery that a handle stands for, if it is one of this queue."""
    try:
        packed = b64decode(text, validate=True)
    except (NotBase64, ValueError):
        raise _refused(text) from None
    if len(packed) != _LAYOUT.size or crc32(packed[: _PARTS.size]) != _LAYOUT.unpack(packed)[3]:
        raise _refused(text)
    of, lease, seq = _PARTS.unpack_from(packed)
    if of != incarnation:
        raise _refused(text)
    return Handle(lease, seq)


def _refused(text: str) -> SqsError:
    return SqsError(
        "ReceiptHandleIsInvalid",
        f'The input receipt handle "{text:.{SQS_TOLD_CHARS_MAX}}" is not a valid receipt handle.',
    )
