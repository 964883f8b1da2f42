"""Bodies of messages in JSON. The broker never looks inside a body; only here, where people do, it
is shown as what it seems to be, and the encoding says which:

    text     a string: the body as UTF-8
    json     an object or array, as it was pushed
    base64   a string: any other bytes
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import codecs
from typing import Literal, NamedTuple

import msgspec

from nexo.vocabulary.errors import InvalidArgument
from nexo.vocabulary.limits import ADMIN_ANSWER_BYTES_MAX

Encoding = Literal["text", "json", "base64"]
_JSON_BEGINS = (b"{", b"[")
_TURN_BYTES = 256 * 1024  # that are looked at before others get their turn
_ONE_BYTES = 1024  # what a message costs besides its body
_utf8 = codecs.getincrementaldecoder("utf-8")


class Shown(NamedTuple):
    """`body` is JSON already; `size` is that of the whole in bytes."""

    body: msgspec.Raw
    encoding: Encoding
    size: int
    truncated: bool


def body_of(given: msgspec.Raw, encoding: Encoding | None) -> bytes:
    """The bytes that are meant. Without an encoding a string is text, anything else JSON."""
    raw = bytes(given)
    try:
        value = msgspec.json.decode(raw)  # what is passed on as it is must be JSON to the end
    except msgspec.DecodeError as error:
        raise InvalidArgument(f"a body is not JSON: {error}") from None
    except RecursionError:
        raise InvalidArgument("a body is nested too deep") from None
    if encoding == "json" or (encoding is None and not isinstance(value, str)):
        return raw
    if not isinstance(value, str):
        raise InvalidArgument(f"a body in {encoding} is a string", "or say encoding: json")
    if encoding != "base64":
        return value.encode()
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidArgument(f"a body is not base64: {error}") from None


async def show_all(bodies: list[bytes], bytes_max: int) -> list[Shown]:
    """Each body, or as many bytes of its beginning, up to what one answer may hold. Looking into
    bodies takes time: others get their turn in between."""
    told, left, looked_at = [], ADMIN_ANSWER_BYTES_MAX, 0
    for body in bodies:
        told.append(shown(body, min(bytes_max, left)))
        size = min(len(body), bytes_max)
        left = max(0, left - size)
        looked_at += size + _ONE_BYTES
        if looked_at > _TURN_BYTES:
            looked_at = 0
            await asyncio.sleep(0)
    return told


def shown(body: bytes, bytes_max: int) -> Shown:
    """The body, or as many bytes of its beginning."""
    size, truncated = len(body), len(body) > bytes_max
    if body.startswith(_JSON_BEGINS) and not truncated and _is_json(body):
        return Shown(msgspec.Raw(body), "json", size, truncated)
    begin = body[:bytes_max]
    try:
        # A character that is cut in two is left out, and does not make a text anything else.
        text = _utf8().decode(begin, final=not truncated)
    except UnicodeDecodeError:
        return Shown(_raw(base64.b64encode(begin).decode()), "base64", size, truncated)
    return Shown(_raw(text), "text", size, truncated)


def _is_json(body: bytes) -> bool:
    try:
        body.decode()
        msgspec.json.decode(body)
    except (UnicodeDecodeError, msgspec.DecodeError, RecursionError):
        return False
    return True


def _raw(text: str) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(text))
