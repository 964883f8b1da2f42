"""Message attributes as bytes: a msgpack map of names to strings, opaque to the rules."""

from __future__ import annotations

import msgspec

encode_attributes = msgspec.msgpack.Encoder(order="sorted").encode
_decode = msgspec.msgpack.Decoder(dict[str, str]).decode


def decode_attributes(encoded: bytes | None) -> dict[str, str]:
    return _decode(encoded) if encoded else {}


def matches(where: dict[str, str], encoded: bytes | None) -> bool:
    """Whether a message has all of these attributes with these values."""
    attributes = decode_attributes(encoded)
    return all(attributes.get(name) == value for name, value in where.items())
