"""The body of a request: read within a time and a size, and looked at before it is parsed.

What a parser makes of a body can be a hundred times as large as the body. So there is a limit on
how many values it may hold, which is counted first. Forms and query strings (`a=1&b=two%20words`)
are read in one pass and little memory: the reader of the standard library makes an object of every
`%41`, and a form of 8 MB takes a second and 800 MB. Here each field is decoded as a whole.
"""

from __future__ import annotations

import asyncio
import re
from binascii import a2b_qp
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, NamedTuple

from nexo.vocabulary.errors import InvalidArgument, MessageTooLarge, NotReady
from nexo.vocabulary.limits import HTTP_ARRIVING_BYTES_MAX, HTTP_JSON_PLAIN_BYTES

Event = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Event]]
Headers = list[tuple[bytes, bytes]]

# A string, or what parts values outside of strings. A string without its end is taken to the end
# of the body, so that no byte is looked at twice; nothing in here goes back.
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[{,]', re.DOTALL)
_QUOTE = ord('"')
# Percent-encoding is quoted-printable with another sign, for which there is a decoder in C.
_AS_QUOTED = bytes.maketrans(b"%+", b"= ")
_PLUS = bytes.maketrans(b"+", b" ")
_NAME_CHARS_SHOWN = 60


class TooSlow(InvalidArgument):
    """The body took too long to arrive."""

    code = "too_slow"
    http_status = 408


class Gone(Exception):
    """The client hung up before its request was whole."""


async def read_body(receive: Receive, headers: Headers, bytes_max: int, seconds: float) -> bytes:
    """The whole body. What announces itself as too large is refused before any of it is read."""
    if _announced(headers) > bytes_max:
        raise _too_large(bytes_max)
    try:
        async with asyncio.timeout(seconds):
            return await _whole(receive, bytes_max)
    except TimeoutError:
        raise TooSlow(
            f"the body did not arrive within {seconds:.0f} s", "send it faster, or in parts"
        ) from None


async def _whole(receive: Receive, bytes_max: int) -> bytes:
    parts: list[bytes] = []
    size, more = 0, True
    try:
        while more:
            event = await receive()
            part = _part_of(event)
            size += len(part)
            _arriving.bytes += len(part)
            if size > bytes_max:
                raise _too_large(bytes_max)
            if _arriving.bytes > HTTP_ARRIVING_BYTES_MAX and size > HTTP_JSON_PLAIN_BYTES:
                raise NotReady("too many large requests arrive at once", "try again in a moment")
            parts.append(part)
            more = event.get("more_body", False)
        return b"".join(parts)
    finally:
        _arriving.bytes -= size


class _Arriving:
    """What has come of bodies that are not whole yet, in the whole process: whoever begins many
    and ends none must not fill its memory. Short ones are let through all the same."""

    bytes = 0


_arriving = _Arriving()


def _part_of(event: Event) -> bytes:
    if event["type"] == "http.disconnect":
        raise Gone
    part: bytes = event.get("body", b"")
    return part


def _announced(headers: Headers) -> int:
    """How long the body is, if the head says so."""
    for name, value in headers:
        if name == b"content-length":
            return int(value)  # the parser has refused what is no number
    return 0


def _too_large(bytes_max: int) -> MessageTooLarge:
    return MessageTooLarge(f"the body of this request has at most {bytes_max:,} bytes")


def check_values(body: bytes, values_max: int) -> None:
    """Refuse JSON with more values than this, before they are made. Texts count as one."""
    if len(body) <= HTTP_JSON_PLAIN_BYTES:
        return
    # Every value but the first comes behind one of these: that is quickly counted, and nearly
    # always enough. Only a body with many of them is looked at more closely: most are in texts.
    if body.count(b",") + body.count(b"[") + body.count(b"{") < values_max:
        return
    parts = 0
    for found in _TOKEN.finditer(body):
        parts += body[found.start()] != _QUOTE
        if parts >= values_max:
            raise InvalidArgument(
                f"the body holds more than {values_max:,} values", "send several requests"
            )


class Field(NamedTuple):
    """A field as it was sent, still encoded."""

    name: bytes
    value: bytes


def fields_of(text: bytes, fields_max: int) -> list[Field]:
    """The fields in their order, not decoded yet: that costs next to nothing."""
    if not text:
        return []
    count = text.count(b"&") + 1
    if count > fields_max:
        raise InvalidArgument(f"a form has at most {fields_max:,} fields, not {count:,}")
    parted = (each.partition(b"=") for each in text.split(b"&") if each)
    return [Field(name, value) for name, _, value in parted]


def read_form(text: bytes, fields_max: int) -> list[tuple[str, str]]:
    """The fields in their order, as texts."""
    return [(decoded(each.name), decoded(each.value)) for each in fields_of(text, fields_max)]


def decoded(text: bytes) -> str:
    """What an encoded name or value says. Refuses a `%` without two hexadecimal digits, as AWS
    does, and what is not UTF-8."""
    plain = text.translate(_PLUS) if b"%" not in text else _unquoted(text)
    try:
        return plain.decode()
    except UnicodeDecodeError:
        raise InvalidArgument(f"{_shown(text)} is not UTF-8", "encode it as UTF-8") from None


def _unquoted(text: bytes) -> bytes:
    text = text.replace(b"=", b"%3D")  # it would mean something else below
    # A line break behind the sign would be swallowed; all else that is wrong shows in the length,
    # because only a right escape becomes shorter by two.
    is_odd = b"%\n" in text or b"%\r" in text
    plain = a2b_qp(text.translate(_AS_QUOTED))
    if is_odd or len(plain) != len(text) - 2 * text.count(b"%"):
        raise InvalidArgument(
            f"{_shown(text)} has a % without two hexadecimal digits", "write % as %25"
        )
    return plain


def _shown(text: bytes) -> str:
    return repr(text[:_NAME_CHARS_SHOWN].decode("latin-1"))
