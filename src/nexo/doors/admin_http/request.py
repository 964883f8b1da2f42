"""What a request brings, as values of the types that its operation names. Whatever does not fit is
refused with its place: a field that is not known, a parameter given twice, a body that is no JSON.

The types that several operations share stand here too: names, pages, moments and refusals.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, TypeVar
from urllib.parse import unquote, urlsplit

import msgspec
from msgspec import Meta

from nexo.doors.admin_http.operation import WrongContentType
from nexo.doors.http.body import check_values, read_body, read_form
from nexo.vocabulary.errors import Forbidden, InvalidArgument
from nexo.vocabulary.limits import (
    ADMIN_BODY_BYTES_MAX,
    ADMIN_BODY_S,
    ADMIN_PAGE_MAX,
    ADMIN_QUERY_FIELDS_MAX,
    ADMIN_TOPIC_CHARS_MAX,
    NAME_CHARS_MAX,
)

if TYPE_CHECKING:
    from starlette.requests import Request

    from nexo.vocabulary.errors import NexoError

Value = TypeVar("Value", bound=msgspec.Struct)

JSON = "application/json"
_SAFE = frozenset({"GET", "HEAD"})
# A topic that archives a queue has its name behind a prefix of the broker's own.
_PLAIN = rf"[A-Za-z0-9_.-]{{1,{NAME_CHARS_MAX}}}"

QueueName = Annotated[
    str,
    Meta(
        pattern=rf"^([0-9]{{12}}/[a-z0-9-]{{1,32}}/)?{_PLAIN}$",
        description="Name of a queue; in a path write its slashes as %2F.",
    ),
]
TopicName = Annotated[
    str,
    Meta(
        pattern=rf"^[A-Za-z0-9_./-]{{1,{ADMIN_TOPIC_CHARS_MAX}}}$",
        description="Name of a topic, also of a system topic.",
    ),
]
NewTopicName = Annotated[str, Meta(pattern=rf"^{_PLAIN}$")]
TokenName = Annotated[str, Meta(pattern=rf"^{_PLAIN}$", description="The name of a token.")]
Limit = Annotated[int, Meta(ge=1, le=ADMIN_PAGE_MAX, description="How many, at most.")]
After = Annotated[
    str, Meta(max_length=ADMIN_TOPIC_CHARS_MAX, description="Go on behind this name: see `next`.")
]
Count = Annotated[int, Meta(ge=0)]
Moment = Annotated[datetime, Meta(tz=True)]


class AtQueue(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: QueueName


class AtTopic(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: TopicName


class Paging(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    limit: Limit = ADMIN_PAGE_MAX
    after: After = ""


class Refusal(msgspec.Struct, frozen=True):
    """An error: the code for programs, the message for people, and a hint what to do."""

    code: str
    message: str
    hint: str


class Refused(msgspec.Struct, frozen=True):
    error: Refusal


def refusal_of(error: NexoError) -> Refusal:
    return Refusal(error.code, error.message, error.hint)


def moment(unix_ms: int) -> datetime:
    try:
        return datetime.fromtimestamp(unix_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):  # delays of centuries
        return datetime.max.replace(tzinfo=UTC)


def moment_or_none(unix_ms: int | None) -> datetime | None:
    """0 and None stand for no time."""
    return moment(unix_ms) if unix_ms else None


def check_origin(request: Request) -> None:
    """A page of another site may send requests to this machine from inside a browser. It cannot
    read the answers, but a purge needs no reading."""
    origin = request.headers.get("origin")
    if origin is None or request.method in _SAFE:
        return
    try:
        host = urlsplit(origin).netloc.lower()
    except ValueError:  # what looks like an address of IPv6 and is none
        host = None
    if host != request.headers.get("host", "").lower():
        raise Forbidden(
            f"web pages from {origin!r:.100} may not make changes", "call the API from a program"
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
        pairs = read_form(query, ADMIN_QUERY_FIELDS_MAX)
    except InvalidArgument as error:  # not UTF-8, or too many
        raise InvalidArgument(f"the query cannot be read: {error}") from None
    given: dict[str, str] = {}
    for name, value in pairs:
        if name in given:
            raise InvalidArgument(f"query: {name!r:.60} is given twice", "give it once")
        given[name] = value
    return _convert(given, kind, "query")


async def read_content(request: Request, kind: type[Value], values_max: int | None) -> Value:
    """`values_max` is how many values it may hold; None: as many as fit."""
    check_content_type(request.headers.get("content-type", ""))
    headers = request.scope["headers"]
    body = await read_body(request.receive, headers, ADMIN_BODY_BYTES_MAX, ADMIN_BODY_S)
    if values_max is not None:
        check_values(body, values_max)
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


def _convert(given: dict[str, str], kind: type[Value], place: str) -> Value:
    try:
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidArgument(f"{place}: {error}", "see /api/v1/openapi.json") from None
