"""Message attributes as bytes: a msgpack map of names to values, opaque to the rules.

A value is a text, or a pair of a type and a value: SQS has numbers, bytes and labels of the user
(`Number.int`). Who does not ask for types sees texts only, bytes as base64.
"""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

TEXT = "String"  # the type of a plain text
Typed = tuple[str, str | bytes]  # the type, and the value

encode_attributes: Callable[[Mapping[str, str | bytes | Typed]], bytes] = msgspec.msgpack.Encoder(
    order="sorted"
).encode
# msgspec has no union of text and bytes, so the value of a pair is anything here.
_decode = msgspec.msgpack.Decoder(dict[str, str | tuple[str, Any]]).decode


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
    that are not plain text."""
    size = 0
    for name, value in _decode(encoded).items():
        parts = (name, value) if isinstance(value, str) else (name, *value)
        size += sum(len(part.encode() if isinstance(part, str) else part) for part in parts)
    return size


def matches(where: dict[str, str], encoded: bytes | None) -> bool:
    """Whether a message has all of these attributes with these values."""
    attributes = decode_attributes(encoded)
    return all(attributes.get(name) == value for name, value in where.items())


def _text(value: str | Typed) -> str:
    if isinstance(value, str):
        return value
    plain = value[1]
    return plain if isinstance(plain, str) else b64encode(plain).decode()
