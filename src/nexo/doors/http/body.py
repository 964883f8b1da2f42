"""The body of a request: read within a time and a size, and looked at before it is parsed.

What a parser makes of a body can be a hundred times as large as the body. So there is a limit on
how many values it may hold, which is counted first.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from nexo.vocabulary.errors import InvalidArgument, MessageTooLarge, NotReady
from nexo.vocabulary.limits import HTTP_ARRIVING_BYTES_MAX, HTTP_JSON_PLAIN_BYTES

Event = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Event]]
Headers = list[tuple[bytes, bytes]]

# A string, or what parts values outside of strings. A string without its end is taken to the end
# of the body, so that no byte is looked at twice; nothing in here goes back.
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[{,]', re.DOTALL)


class TooSlow(InvalidArgument):
    """The body took too long to arrive."""

    code = "too_slow"
    http_status = 408


class Gone(Exception):
    """The client hung up before its request was whole."""


async def read_body(receive: Receive, headers: Headers, bytes_max: int, seconds: float) -> bytes:
    """The whole body. What announces itself as too large is refused before any of it is read."""
    if announced(headers) > bytes_max:
        raise too_large(bytes_max)
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
            part = part_of(event)
            size += len(part)
            _arriving.bytes += len(part)
            if size > bytes_max:
                raise too_large(bytes_max)
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


def part_of(event: Event) -> bytes:
    if event["type"] == "http.disconnect":
        raise Gone
    part: bytes = event.get("body", b"")
    return part


def announced(headers: Headers) -> int:
    """How long the body is, if the head says so."""
    for name, value in headers:
        if name == b"content-length":
            return int(value)  # the parser has refused what is no number
    return 0


def too_large(bytes_max: int) -> MessageTooLarge:
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


_QUOTE = ord('"')
