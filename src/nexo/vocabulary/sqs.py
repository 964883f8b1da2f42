"""What SQS says of a message and its queue, for whoever speaks to SQS's clients: the SQS API, and
the events that a Lambda handler gets."""

from __future__ import annotations

from binascii import Error as NotBase64
from binascii import a2b_base64, b2a_base64, crc32
from hashlib import md5
from struct import Struct
from typing import TYPE_CHECKING

from nexo.vocabulary.attributes import SYSTEM_PREFIX

if TYPE_CHECKING:
    from nexo.vocabulary.attributes import Typed

DEFAULT_ACCOUNT = "000000000000"
DEFAULT_REGION = "us-east-1"
PRIORITY = "Nexo.Priority"  # the attribute that tells a priority, for which SQS has no word
# Kept beside the user's attributes, under names that a user cannot give.
TRACE_HEADER = f"{SYSTEM_PREFIX}TraceHeader"
SENDER_ID = f"{SYSTEM_PREFIX}SenderId"

_SEQUENCE_FIRST = 18_000_000_000_000_000_000  # so that all sequence numbers have twenty digits
_TEXT, _BINARY = b"\x01", b"\x02"
_RECEIPT = Struct(">QQQ")  # incarnation, lease, sequence number; their checksum follows
_CHECKSUM_BYTES = 4
# What a receipt handle says: which delivery of which message of which life of a queue. A plain
# tuple: one is made for every message that is deleted.
Receipt = tuple[int, int, int]


def handle_of(incarnation: int, lease: int, seq: int) -> str:
    """A receipt handle: opaque text to whoever gets it."""
    parts = _RECEIPT.pack(incarnation, lease, seq)
    return b2a_base64(parts + crc32(parts).to_bytes(_CHECKSUM_BYTES, "big"), newline=False).decode()


def read_handle(text: str) -> Receipt | None:
    """What a handle says; None if nobody gave this one out."""
    try:
        packed = a2b_base64(text, strict_mode=True)
    except (NotBase64, ValueError):
        return None
    if len(packed) != _RECEIPT.size + _CHECKSUM_BYTES:
        return None
    parts, checksum = packed[: _RECEIPT.size], packed[_RECEIPT.size :]
    if crc32(parts) != int.from_bytes(checksum, "big"):
        return None
    incarnation, lease, seq = _RECEIPT.unpack(parts)
    return incarnation, lease, seq


def sequence_number(seq: int) -> str:
    """The SequenceNumber of a message of a FIFO queue: twenty digits that only grow."""
    return str(_SEQUENCE_FIRST + seq)


def arn_of(account: str, region: str, name: str) -> str:
    """The ARN of a queue."""
    return f"arn:{partition(region)}:sqs:{region}:{account}:{name}"


def partition(region: str) -> str:
    if region.startswith("cn-"):
        return "aws-cn"
    return "aws-us-gov" if region.startswith("us-gov-") else "aws"


def digest(body: bytes) -> str:
    """The MD5 digest that SDKs compare with their own, and throw if they differ."""
    return md5(body, usedforsecurity=False).hexdigest()


def attributes_digest(attributes: dict[str, Typed]) -> str | None:
    """Name, type and value of each attribute, sorted by name; None of none."""
    if not attributes:
        return None
    told = bytearray()
    for name in sorted(attributes):
        kind, value = attributes[name]
        for text in (name.encode(), kind.encode()):
            told += len(text).to_bytes(4, "big")
            told += text
        data = value.encode() if isinstance(value, str) else value
        told += _TEXT if isinstance(value, str) else _BINARY
        told += len(data).to_bytes(4, "big")
        told += data
    return digest(bytes(told))
