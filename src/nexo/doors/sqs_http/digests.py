"""The MD5 digests that SDKs compare with their own, and throw if they differ."""

from __future__ import annotations

from hashlib import md5
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nexo.vocabulary.attributes import Typed

_TEXT, _BINARY = b"\x01", b"\x02"


def digest(body: bytes) -> str:
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
