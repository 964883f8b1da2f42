"""What a request brings, as values of the types that its operation names. Whatever does not fit is
refused with its place: a field that is not known, a parameter given twice, a body that is no JSON.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from nexo.doors.admin_http.refusals import TooSlow, WrongContentType
from nexo.vocabulary.errors import Forbidden, InvalidArgument, MessageTooLarge
from nexo.vocabulary.limits import ADMIN_BODY_BYTES_MAX, ADMIN_BODY_S, ADMIN_QUERY_FIELDS_MAX

if TYPE_CHECKING:
    from starlette.requests import Request

Value = TypeVar("Value", bound=msgspec.Struct)

JSON = "application/json"
_SAFE = frozenset({"GET", "HEAD"})


def check_origin(request: Request) -> None:
    """A page of another site may send requests to this machine from inside a browser. It cannot
    read the answers, but a purge needs no reading."""
    origin = request.headers.get("origin")
    if origin is None or request.method in _SAFE:
        return
    if urlsplit(origin).netloc.lower() != request.headers.get("host", "").lower():
        raise Forbidden(
            f"a page of {origin!r:.100} may not change anything here", "call the API from a program"
        )


def read_path(given: dict[str, str], kind: type[Value]) -> Value:
    """Parameters in the path, in which a slash is written as %2F."""
    try:
        plain = {name: unquote(value, errors="strict") for name, value in given.items()}
    except UnicodeDecodeError:
        raise InvalidArgument("the path is not UTF-8") from None
    return _convert(plain, kind, "path")


def read_query(query: bytes, kind: type[Value]) -> Value:
    try:
        pairs = parse_qsl(
            query.decode("ascii"),
            keep_blank_values=True,
            errors="strict",
            max_num_fields=ADMIN_QUERY_FIELDS_MAX,
        )
    except ValueError as error:  # not UTF-8, or too many
        raise InvalidArgument(f"the query cannot be read: {error}") from None
    given: dict[str, str] = {}
    for name, value in pairs:
        if name in given:
            raise InvalidArgument(f"query: {name!r:.60} is given twice", "give it once")
        given[name] = value
    return _convert(given, kind, "query")


async def read_body(request: Request, kind: type[Value]) -> Value:
    check_content_type(request.headers.get("content-type", ""))
    body = await _whole(request)
    try:
        body.decode()  # what is passed on as it is must be text too
        return msgspec.json.decode(body, type=kind)
    except UnicodeDecodeError:
        raise InvalidArgument("body: it is not UTF-8") from None
    except msgspec.DecodeError as error:  # wrong types and unknown fields are a kind of it
        raise InvalidArgument(f"body: {error}", "see /api/v1/openapi.json") from None
    except RecursionError:
        raise InvalidArgument("body: it is nested too deep") from None


def check_content_type(given: str) -> None:
    kind, _, parameters = given.lower().partition(";")
    charset = parameters.replace(" ", "").replace('"', "")
    if kind.strip() != JSON or charset not in ("", "charset=utf-8"):
        raise WrongContentType(
            f"the body is {given!r:.100}" if given else "the body says no content type",
            f"send JSON, and say so: Content-Type: {JSON}",
        )


async def _whole(request: Request) -> bytes:
    parts, size = [], 0
    try:
        async with asyncio.timeout(ADMIN_BODY_S):
            async for part in request.stream():
                parts.append(part)
                size += len(part)
                if size > ADMIN_BODY_BYTES_MAX:
                    raise MessageTooLarge(
                        f"a request has at most {ADMIN_BODY_BYTES_MAX:,} bytes", "send several"
                    )
    except TimeoutError:
        raise TooSlow(f"the body did not arrive within {ADMIN_BODY_S:.0f} s") from None
    return b"".join(parts)


def _convert(given: dict[str, str], kind: type[Value], place: str) -> Value:
    try:
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidArgument(f"{place}: {error}", "see /api/v1/openapi.json") from None
