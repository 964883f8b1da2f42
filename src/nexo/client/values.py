"""What callers write, as what travels: bodies as bytes, seconds as milliseconds."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from nexo.vocabulary.attributes import encode_attributes
from nexo.vocabulary.errors import InvalidArgument
from nexo.vocabulary.limits import PRIORITY_MAX

_encode_json = msgspec.json.Encoder().encode


def body_of(body: Any) -> bytes:
    """Bytes as they are, text as UTF-8, anything else as JSON."""
    if type(body) is bytes:
        return body
    if isinstance(body, str):
        return body.encode()
    if isinstance(body, (bytes, bytearray, memoryview)):
        return bytes(body)
    try:
        return _encode_json(body)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgument(
            f"a body of type {type(body).__name__} is neither bytes, text nor JSON: {error}",
            "encode it yourself and push the bytes",
        ) from None


def attributes_of(attributes: dict[str, str] | None) -> bytes | None:
    if not attributes:
        return None
    for name, value in attributes.items():
        if {type(name), type(value)} != {str}:
            raise InvalidArgument(
                f"attribute {name!r:.40} is {value!r:.40}", "names and values are texts"
            )
    return encode_attributes(attributes)


def check_priority(priority: int) -> int:
    if type(priority) is not int or not 0 <= priority <= PRIORITY_MAX:
        raise InvalidArgument(f"priority is {priority!r:.40}, allowed is 0 to {PRIORITY_MAX}")
    return priority


def time_of(unix_ms: int) -> datetime:
    try:
        return datetime.fromtimestamp(unix_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):  # delays of centuries
        return datetime.max.replace(tzinfo=UTC)
