"""AWS Signature Version 4: is this request from who holds the secret, unchanged, and recent?

What is signed is rebuilt from the request as it came over the wire, so everything here is bytes:

    canonical request   method, path, query, signed headers, their names, hash of the body
    string to sign      algorithm, time, scope, hash of the canonical request
    signing key         the secret folded with date, region and service: cached, it lasts a day
    signature           HMAC of the string to sign with the signing key, in hexadecimal

The signature travels in the Authorization header, or in the query of a presigned URL.
"""

from __future__ import annotations

import hmac
import re
from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote_to_bytes

import msgspec

from nexo.access.signature import (
    ALGORITHM,
    IncompleteSignature,
    InvalidClientTokenId,
    MissingAuthenticationToken,
    Presented,
    RequestExpired,
    Scope,
    SignatureDoesNotMatch,
    basic_time,
    from_header,
    from_query,
    read_scope,
)
from nexo.vocabulary.limits import (
    HTTP_QUERY_FIELDS_MAX,
    SIGNATURE_SKEW_MS,
    SIGNED_CREDENTIAL_BYTES_MAX,
    SIGNING_KEYS_MAX,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from nexo.access.signature import Headers

SERVICES = frozenset({"sns", "sqs", "sts"})
UNSIGNED_PAYLOAD = b"UNSIGNED-PAYLOAD"

_MISMATCH = (
    "The request signature we calculated does not match the signature you provided. "
    "Check your AWS Secret Access Key and signing method."
)
_PLAIN_PATH = re.compile(rb"/(?:[\w~-][\w.~-]*(?:/[\w~-][\w.~-]*)*/?)?", re.ASCII)
_CREDENTIAL_END = re.compile(rb"[,&\s]")


class Request(msgspec.Struct, frozen=True):
    """A request as it came over the wire; the fields are those of ASGI."""

    method: str
    path: bytes  # as sent, still encoded, without the query
    query: bytes
    headers: list[tuple[bytes, bytes]]  # names in lower case
    body: bytes


class Signed(msgspec.Struct, frozen=True):
    """A request whose signature holds."""

    scope: Scope
    signed_headers: tuple[str, ...]
    signed_at_ms: int


class Claim:
    """What the head of a request claims: to be signed by a key that is known, at a time that
    counts. It holds a secret, so it has no words of its own."""

    __slots__ = ("headers", "presented", "secret")

    def __init__(self, headers: Headers, presented: Presented, secret: str) -> None:
        self.headers = headers
        self.presented = presented
        self.secret = secret


def verify(
    request: Request,
    secret_of: Callable[[str], str | None],
    now_ms: int,
    services: Collection[str] = SERVICES,
) -> Signed:
    """Who signed this request. `secret_of` gives the secret of an access key id, None if there is
    no such key. Whatever is wrong is a `SignatureRefused`."""
    return prove(request, claimed(request.headers, request.query, secret_of, now_ms, services))


def claimed(
    given: list[tuple[bytes, bytes]],
    query: bytes,
    secret_of: Callable[[str], str | None],
    now_ms: int,
    services: Collection[str] = SERVICES,
) -> Claim:
    """The first half of `verify`, which needs no body: who cannot be right is refused before any
    of it is read."""
    headers = _joined(given)
    presented = _presented(query, headers)
    scope = presented.scope
    if scope.service not in services:
        expected = " or ".join(repr(service) for service in sorted(services))
        raise SignatureDoesNotMatch(f"Credential should be scoped to correct service: {expected}.")
    _check_time(presented, now_ms)
    secret = secret_of(scope.access_key_id)
    if secret is None:
        raise InvalidClientTokenId("The security token included in the request is invalid.")
    _check_signed_headers(headers, presented.signed_headers)
    return Claim(headers, presented, secret)


def prove(request: Request, claim: Claim) -> Signed:
    """The second half: the signature is that of the whole request."""
    presented = claim.presented
    expected_signature = _signature(request, claim.headers, presented, claim.secret)
    if not hmac.compare_digest(expected_signature, presented.signature.encode("latin-1")):
        raise SignatureDoesNotMatch(_MISMATCH, "check the secret access key and the endpoint")
    return Signed(presented.scope, presented.signed_headers, presented.signed_at_ms)


def scope_of(authorization: bytes | None, query: bytes = b"") -> Scope | None:
    """What a request says of its caller, unverified: for development, where anyone may. None where
    it says nothing that can be read."""
    text = authorization if authorization is not None else query
    _, found, rest = text.partition(b"Credential=")
    if not found:
        return None
    credential = _CREDENTIAL_END.split(rest[: SIGNED_CREDENTIAL_BYTES_MAX + 1], maxsplit=1)[0]
    if (
        len(credential) > SIGNED_CREDENTIAL_BYTES_MAX
    ):  # strangers must not fill the cache with ballast
        return None
    try:
        return _scope(credential)
    except IncompleteSignature:
        return None


@lru_cache(maxsize=SIGNING_KEYS_MAX)
def _scope(credential: bytes) -> Scope:
    return read_scope(unquote_to_bytes(credential).decode("latin-1"))


def _presented(query: bytes, headers: Headers) -> Presented:
    authorization = headers.get(b"authorization")
    if authorization is not None:
        return from_header(authorization.decode("latin-1"), headers)
    if b"X-Amz-" in query:
        if query.count(b"&") >= HTTP_QUERY_FIELDS_MAX:
            raise IncompleteSignature("The query has too many parameters.")
        return from_query(_parameters(query))
    raise MissingAuthenticationToken("Request is missing Authentication Token")


def _check_time(presented: Presented, now_ms: int) -> None:
    """Recent enough, and not from the future; a presigned URL lives for as long as it says."""
    lifetime_ms = SIGNATURE_SKEW_MS if presented.expires_ms is None else presented.expires_ms
    if now_ms > presented.signed_at_ms + lifetime_ms:
        told = (
            f"Signature expired: {presented.time} is now earlier than "
            f"{basic_time(now_ms - lifetime_ms)} "
            f"({basic_time(now_ms)} - {lifetime_ms // 60_000} min.)"
        )
        raise RequestExpired(told, "set the clock of this machine")
    if now_ms < presented.signed_at_ms - SIGNATURE_SKEW_MS:
        told = (
            f"Signature not yet current: {presented.time} is still later than "
            f"{basic_time(now_ms + SIGNATURE_SKEW_MS)} "
            f"({basic_time(now_ms)} + {SIGNATURE_SKEW_MS // 60_000} min.)"
        )
        raise RequestExpired(told, "set the clock of this machine")


def _check_signed_headers(headers: Headers, signed: tuple[str, ...]) -> None:
    """What decides where a request goes and what it does must be covered by the signature."""
    if "host" not in signed:
        raise SignatureDoesNotMatch(
            "'Host' or ':authority' must be a 'SignedHeader' in the AWS Authorization."
        )
    if b"x-amz-target" in headers and "x-amz-target" not in signed:
        raise SignatureDoesNotMatch("The header 'X-Amz-Target' is present and was not signed.")


# -- What is signed -------------------------------------------------------------------------------


def _signature(request: Request, headers: Headers, presented: Presented, secret: str) -> bytes:
    scope = presented.scope
    canonical = _canonical_request(request, headers, presented.signed_headers)
    string_to_sign = (
        f"{ALGORITHM}\n{presented.time}\n"
        f"{scope.date}/{scope.region}/{scope.service}/aws4_request\n"
        f"{sha256(canonical).hexdigest()}"
    )
    key = _signing_key(secret, scope.date, scope.region, scope.service)
    return hmac.digest(key, string_to_sign.encode("latin-1"), "sha256").hex().encode()


@lru_cache(maxsize=SIGNING_KEYS_MAX)
def _signing_key(secret: str, date: str, region: str, service: str) -> bytes:
    # The secret is part of what the cache goes by: a new secret never meets an old key.
    key = ("AWS4" + secret).encode()
    for part in (date, region, service, "aws4_request"):
        key = hmac.digest(key, part.encode("latin-1"), "sha256")
    return key


def _canonical_request(
    request: Request, headers: Headers, signed_headers: tuple[str, ...]
) -> bytes:
    """The one form of a request that both sides can build, whatever happened to its spelling."""
    names = [name.encode("latin-1") for name in signed_headers]
    lines = [
        request.method.upper().encode("utf-8", "surrogatepass"),
        _canonical_path(request.path),
        _canonical_query(request.query) if request.query else b"",
    ]
    lines += [name + b":" + headers.get(name, b"") for name in names]
    lines += [b"", b";".join(names), _payload_hash(request.body, headers, signed_headers)]
    return b"\n".join(lines)


def _canonical_path(path: bytes) -> bytes:
    """Without dot segments and empty ones, and encoded once more than it was sent."""
    if _PLAIN_PATH.fullmatch(path):
        return path
    kept: list[bytes] = []
    segments = path.split(b"/")
    for segment in segments:
        if segment == b"..":
            del kept[-1:]
        elif segment not in (b"", b"."):
            kept.append(segment)
    ends_open = segments[-1] in (b"", b".", b"..")
    normal = b"/" + b"/".join(kept) + (b"/" if kept and ends_open else b"")
    return quote(normal, safe="/~").encode()


def _canonical_query(query: bytes) -> bytes:
    pairs = [
        (quote(name, safe="-_.~"), quote(value, safe="-_.~"))
        for name, value in _parameters(query)
        if name != b"X-Amz-Signature"
    ]
    return "&".join(f"{name}={value}" for name, value in sorted(pairs)).encode()


def _parameters(query: bytes) -> list[tuple[bytes, bytes]]:
    pairs = (pair.partition(b"=") for pair in query.split(b"&") if pair)
    return [(_decoded(name), _decoded(value)) for name, _, value in pairs]


def _decoded(text: bytes) -> bytes:
    return unquote_to_bytes(text.replace(b"+", b" "))


def _joined(headers: list[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """Headers as they are signed: without needless space, and those of one name as one."""
    joined: dict[bytes, bytes] = {}
    for name, value in headers:
        trimmed = value.strip()
        if b"  " in trimmed or b"\t" in trimmed:
            trimmed = b" ".join(trimmed.split())
        joined[name] = joined[name] + b"," + trimmed if name in joined else trimmed
    return joined


def _payload_hash(body: bytes, headers: Headers, signed_headers: tuple[str, ...]) -> bytes:
    """The hash of the body. A client may leave it out by saying so, but only in a signed header."""
    actual = sha256(body).hexdigest().encode()
    claimed = headers.get(b"x-amz-content-sha256")
    if claimed is None or claimed == actual:
        return actual
    if claimed == UNSIGNED_PAYLOAD and "x-amz-content-sha256" in signed_headers:
        return UNSIGNED_PAYLOAD
    raise SignatureDoesNotMatch(
        "The provided 'x-amz-content-sha256' header does not match what was computed."
    )
