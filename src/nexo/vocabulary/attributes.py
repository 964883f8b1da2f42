"""Message attributes as bytes: a msgpack map of names to values, opaque to the rules.

A value is a text, or a pair of a type and a value: SQS has numbers, bytes and labels of the user
(`Number.int`). Who does not ask for types sees texts only, bytes as base64.
"""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING, Any

import msgspec

from nexo.vocabulary.errors import InvalidArgument
from nexo.vocabulary.limits import SYSTEM_ATTRIBUTES_BYTES_FREE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

TEXT = "String"  # the type of a plain text
SYSTEM_PREFIX = "AWS."  # of names under which the broker keeps what SQS tells of a message
Typed = tuple[str, str | bytes]  # the type, and the value

encode_attributes: Callable[[Mapping[str, str | bytes | Typed]], bytes] = msgspec.msgpack.Encoder(
    order="sorted"
).encode
# msgspec has no union of text and bytes, so the value of a pair is anything here.
_decode_whole = msgspec.msgpack.Decoder(dict[str, str | tuple[str, Any]]).decode
_decode_texts = msgspec.msgpack.Decoder(dict[str, str]).decode
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def encode_typed(attributes: dict[str, Typed]) -> bytes:
    """Attributes with types; what is a plain text is encoded like an attribute without one."""
    return encode_attributes(
        {name: typed[1] if typed[0] == TEXT else typed for name, typed in attributes.items()}
    )


def decode_typed(encoded: bytes | None) -> dict[str, Typed]:
    if not encoded:
        return {}
    return {
        name: (TEXT, value) if isinstance(value, str) else value
        for name, value in _decode(encoded).items()
    }


def decode_attributes(encoded: bytes | None) -> dict[str, str]:
    """Attributes as texts, whatever their types."""
    if not encoded:
        return {}
    return {name: _text(value) for name, value in _decode(encoded).items()}


def attribute_bytes(encoded: bytes) -> int:
    """What attributes count for towards the size of their message: names, values, and types
    that are not plain text. As on SQS, what is not its sender's does not count; it is little."""
    size = system_size = 0
    for name, value in _decode(encoded).items():
        parts = (name, value) if isinstance(value, str) else (name, *value)
        added = sum(len(part.encode() if isinstance(part, str) else part) for part in parts)
        if name.startswith(SYSTEM_PREFIX):
            system_size += added
        else:
            size += added
    return size + max(0, system_size - SYSTEM_ATTRIBUTES_BYTES_FREE)


def check_attributes(column: bytes | list[bytes | None]) -> None:
    """Refuse attributes that nobody could read. What many messages share is looked at once."""
    for encoded in {column} if isinstance(column, bytes) else set(column):
        if encoded:
            try:
                _decode_texts(encoded)  # as nearly all are
            except _UNREADABLE:
                _check_typed(encoded)


def _check_typed(encoded: bytes) -> None:
    try:
        decoded = _decode_whole(encoded)
    except _UNREADABLE as error:
        raise _unreadable(str(error)) from None
    for value in decoded.values():
        if type(value) is not str and type(value[1]) not in (str, bytes):
            raise _unreadable(f"a value is {value[1]!r:.40}")


def _unreadable(why: str) -> InvalidArgument:
    return InvalidArgument(
        f"attributes must be a msgpack map of texts to texts, or to a type and its value: {why}",
        "encode each message's attributes as such a map",
    )


def matches(where: dict[str, str], encoded: bytes | None) -> bool:
    """Whether a message has all of these attributes with these values."""
    attributes = decode_attributes(encoded)
    return all(attributes.get(name) == value for name, value in where.items())


def _text(value: str | Typed) -> str:
    if isinstance(value, str):
        return value
    plain: object = value[1]
    return b64encode(plain).decode() if isinstance(plain, bytes) else str(plain)


def _decode(encoded: bytes) -> dict[str, str | Typed]:
    """What nobody can read is not there. Doors refuse it, but did not always: a message must be
    delivered, and never stop a commit, whatever was stored with it."""
    try:
        decoded: dict[str, str | Typed] = _decode_whole(encoded)
    except _UNREADABLE:
        return {}
    return decoded
