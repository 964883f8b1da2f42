"""The AWS signature that a request presents, read from its header or its query, and why one is
refused. Nothing here is verified: that is for `sigv4`. What cannot be read is refused with what is
missing.

    Unauthorized
    └── SignatureRefused                http
        ├── MissingAuthenticationToken  403    not signed at all
        ├── IncompleteSignature         400    signed, but in a form that cannot be read
        ├── InvalidClientTokenId        403    signed with a key that nobody knows
        ├── SignatureDoesNotMatch       403    signed with another secret, or changed on its way
        └── RequestExpired              400    signed too long ago, or ahead of time

The names of these are AWS's codes, and stand on the wire: SDKs act on them. One that is told
RequestExpired sets its clock by the reply and tries again.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec

from nexo.vocabulary.errors import Unauthorized
from nexo.vocabulary.limits import (
    PRESIGNED_URL_S_MAX,
    SIGNED_CONSTANT_CHARS_MAX,
    SIGNED_CONSTANTS_MAX,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    Headers = Mapping[bytes, bytes]

ALGORITHM = "AWS4-HMAC-SHA256"
TERMINATOR = "aws4_request"

_TIME = re.compile(r"\d{8}T\d{6}Z", re.ASCII)
_TIME_FORMAT = "%Y%m%dT%H%M%SZ"
_ACCOUNT = re.compile(r"\d{12}", re.ASCII)
_DATE = re.compile(r"\d{8}", re.ASCII)
_SIGNED_HEADERS = re.compile(r"[!-:<-~]+(?:;[!-:<-~]+)*", re.ASCII)
_SIGNATURE = re.compile(r"[0-9a-f]{64}", re.ASCII)
_QUERY_PARTS = (
    "X-Amz-Algorithm",
    "X-Amz-Credential",
    "X-Amz-Signature",
    "X-Amz-SignedHeaders",
    "X-Amz-Date",
    "X-Amz-Expires",
)


# -- Why one is refused ---------------------------------------------------------------------------


class SignatureRefused(Unauthorized):
    """The root: catch this to catch every refused signature."""

    http_status = 403

    @property
    def aws_code(self) -> str:
        return type(self).__name__


class MissingAuthenticationToken(SignatureRefused):
    pass


class IncompleteSignature(SignatureRefused):
    http_status = 400


class InvalidClientTokenId(SignatureRefused):
    pass


class SignatureDoesNotMatch(SignatureRefused):
    pass


class RequestExpired(SignatureRefused):
    http_status = 400


# -- What is presented ----------------------------------------------------------------------------


class Scope(msgspec.Struct, frozen=True):
    """Who signs, and for what the signature counts."""

    access_key_id: str
    date: str  # YYYYMMDD
    region: str
    service: str

    @property
    def account(self) -> str | None:
        """The account that an access key id of twelve digits stands for."""
        return self.access_key_id if _ACCOUNT.fullmatch(self.access_key_id) else None


class Presented(msgspec.Struct, frozen=True):
    scope: Scope
    signed_headers: tuple[str, ...]
    signature: str
    time: str  # as it is signed
    signed_at_ms: int
    expires_ms: int | None = None  # of a presigned URL


def read_scope(credential: str) -> Scope:
    parts = credential.split("/")
    if len(parts) != 5 or not all(parts):
        raise IncompleteSignature(
            "Credential must have exactly 5 slash-delimited elements, "
            f"e.g. keyid/date/region/service/term, got '{credential:.200}'"
        )
    access_key_id, date, region, service, terminator = parts
    if not _DATE.fullmatch(date):
        raise IncompleteSignature(
            f"Date in Credential must be in the form YYYYMMDD, got '{date:.80}'"
        )
    if terminator != TERMINATOR:
        raise IncompleteSignature(
            f"Credential should be scoped with a valid terminator: '{TERMINATOR}', "
            f"not '{terminator:.80}'."
        )
    return Scope(access_key_id, date, region, service)


def from_header(authorization: str, headers: Headers) -> Presented:
    """What the Authorization header and the header with the time present."""
    # The signature stands last by convention; what is before it stays the same all day.
    constant, found, signature = authorization.rpartition("Signature=")
    if found and len(constant) <= SIGNED_CONSTANT_CHARS_MAX and _SIGNATURE.fullmatch(signature):
        credential, signed_headers, _ = _read_constant(constant)
    else:
        credential, signed_headers, signature = _read_parameters(authorization)
    time = _header_time(headers)
    if not (credential and signed_headers and signature) or time is None:
        given = {"Credential": credential, "Signature": signature, "SignedHeaders": signed_headers}
        lacks = [
            f"Authorization header requires '{name}' parameter."
            for name, value in given.items()
            if not value
        ]
        if time is None:
            lacks.append(
                "Authorization header requires existence of either a 'X-Amz-Date' or a 'Date' "
                "header."
            )
        raise IncompleteSignature(f"{' '.join(lacks)} Authorization={ALGORITHM}")
    return _presented(credential, signed_headers, signature, time)


def _read_parameters(authorization: str) -> tuple[str, str, str]:
    """Credential, signed headers and signature; empty where they are missing."""
    algorithm, _, rest = authorization.strip().partition(" ")
    if algorithm != ALGORITHM:
        raise IncompleteSignature(f"Unsupported AWS 'algorithm': '{algorithm:.80}'.")
    pairs = (part.strip().partition("=") for part in rest.split(","))
    given = {name: value for name, _, value in pairs}
    return given.get("Credential", ""), given.get("SignedHeaders", ""), given.get("Signature", "")


_read_constant = lru_cache(maxsize=SIGNED_CONSTANTS_MAX)(_read_parameters)


def from_query(parameters: list[tuple[bytes, bytes]]) -> Presented:
    """What the query of a presigned URL presents."""
    given = {name.decode("latin-1"): value.decode("latin-1") for name, value in parameters}
    lacks = [name for name in _QUERY_PARTS if not given.get(name)]
    if lacks:
        raise IncompleteSignature(
            "AWS query-string parameters must include "
            + ", ".join(f"'{name}'" for name in lacks)
            + ". Re-examine the query-string parameters."
        )
    if given["X-Amz-Algorithm"] != ALGORITHM:
        raise IncompleteSignature(f"Unsupported AWS 'algorithm': '{given['X-Amz-Algorithm']:.80}'.")
    presented = _presented(
        given["X-Amz-Credential"],
        given["X-Amz-SignedHeaders"],
        given["X-Amz-Signature"],
        given["X-Amz-Date"],
    )
    return msgspec.structs.replace(presented, expires_ms=_expires_ms(given["X-Amz-Expires"]))


def _presented(credential: str, signed_headers: str, signature: str, time: str) -> Presented:
    is_short = len(credential) + len(signed_headers) <= SIGNED_CONSTANT_CHARS_MAX
    read = _read_short_scope_and_names if is_short else _read_scope_and_names
    scope, names = read(credential, signed_headers)
    at_ms = parse_basic_time(time)
    if at_ms is None:
        raise IncompleteSignature(
            f"Date must be in ISO-8601 'basic format'. Got '{time:.80}'.", "as 20150830T123600Z"
        )
    if scope.date != time[:8]:
        raise SignatureDoesNotMatch(
            "Date in Credential scope does not match YYYYMMDD from ISO-8601 version of date "
            f"from HTTP: '{scope.date}' != '{time[:8]}', from '{time}'."
        )
    return Presented(scope, names, signature, time, at_ms)


def _read_scope_and_names(credential: str, signed_headers: str) -> tuple[Scope, tuple[str, ...]]:
    scope = read_scope(credential)
    if not _SIGNED_HEADERS.fullmatch(signed_headers):
        raise IncompleteSignature("SignedHeaders must be a semicolon-separated list of names.")
    return scope, tuple(name.lower() for name in signed_headers.split(";"))


_read_short_scope_and_names = lru_cache(maxsize=SIGNED_CONSTANTS_MAX)(_read_scope_and_names)


def _header_time(headers: Headers) -> str | None:
    """The time of signing. X-Amz-Date goes before Date, which proxies and libraries also set."""
    if (given := headers.get(b"x-amz-date")) is not None:
        return given.decode("latin-1").strip()
    if (given := headers.get(b"date")) is None:
        return None
    text = given.decode("latin-1").strip()
    at_ms = parse_http_time(text)
    return text if at_ms is None else basic_time(at_ms)


def _expires_ms(text: str) -> int:
    seconds = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
    if not 1 <= seconds <= PRESIGNED_URL_S_MAX:
        raise IncompleteSignature(
            f"X-Amz-Expires must be from 1 to {PRESIGNED_URL_S_MAX} seconds, got '{text:.80}'."
        )
    return seconds * 1000


# -- Times ----------------------------------------------------------------------------------------


def basic_time(at_ms: int) -> str:
    """A time as signatures write it: `20150830T123600Z`."""
    return datetime.fromtimestamp(at_ms // 1000, UTC).strftime(_TIME_FORMAT)


def parse_basic_time(text: str) -> int | None:
    """The time in milliseconds, None if this is none."""
    return _parse_time(text) if _TIME.fullmatch(text) else None


@lru_cache(maxsize=64)  # clients that sign in the same second spell it alike
def _parse_time(text: str) -> int | None:
    try:
        moment = datetime.strptime(text, _TIME_FORMAT).replace(tzinfo=UTC)
    except ValueError:
        return None
    return round(moment.timestamp() * 1000)


def parse_http_time(text: str) -> int | None:
    """A Date header, as HTTP writes it or in the basic form, in milliseconds."""
    if (basic_ms := parse_basic_time(text)) is not None:
        return basic_ms
    try:
        moment = parsedate_to_datetime(text)
        at_ms = round(moment.replace(tzinfo=moment.tzinfo or UTC).timestamp() * 1000)
        basic_time(at_ms)  # a time that cannot be written again cannot have been signed
    except (ValueError, IndexError, OverflowError, TypeError):
        return None
    return at_ms
