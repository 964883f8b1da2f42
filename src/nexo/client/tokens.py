"""Tokens as an admin sees them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from nexo.client import requests
from nexo.client.info import decoder
from nexo.vocabulary.errors import InvalidArgument
from nexo.vocabulary.limits import RETENTION_MS_MAX
from nexo.vocabulary.spoken import milliseconds

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nexo.client.operation import Request
    from nexo.vocabulary.changes import TokenDefined


class TokenInfo(msgspec.Struct, frozen=True):
    """What is known of a token; its secret is not."""

    name: str
    allow: list[str]
    created_at: datetime
    expires_at: datetime | None
    access_key_id: str | None  # of an AWS access key


class NewToken(msgspec.Struct, frozen=True, omit_defaults=True):
    """A token that was just made. The secret in it is shown this once: `token`, or of an AWS
    access key `secret_access_key`."""

    name: str
    allow: list[str]
    expires_at: datetime | None
    token: str | None = None
    access_key_id: str | None = None
    secret_access_key: str | None = None

    def __repr__(self) -> str:
        return f"NewToken({self.name!r})"  # it may end up in a log


class _Travelled(msgspec.Struct, frozen=True):
    name: str
    allow: list[str]
    created_ms: int
    expires_ms: int | None = None
    access_key_id: str | None = None
    token: str | None = None
    secret_access_key: str | None = None


_read_one = decoder(_Travelled)
_read_all = decoder(list[_Travelled])


def create(name: str, allow: Iterable[str], expires: float | None, aws: bool) -> Request:
    if isinstance(allow, str):
        raise InvalidArgument("`allow` is a list of permissions", "write ['orders.*:push,pop']")
    return requests.call(
        "create_token",
        lambda body: _new(_read_one(body)),
        name=name,
        allow=list(allow),
        expires_after_ms=None
        if expires is None
        else milliseconds(expires, "expires", RETENTION_MS_MAX),
        aws=aws,
    )


def listing() -> Request:
    return requests.call(
        "list_tokens",
        lambda body: [token_info(each, each.access_key_id) for each in _read_all(body)],
    )


def revoke(name: str) -> Request:
    return requests.call("revoke_token", None, name=name)


def new_token(
    defined: _Travelled | TokenDefined,
    token: str | None,
    access_key_id: str | None,
    secret: str | None,
) -> NewToken:
    expires_at = _moment(defined.expires_ms)
    return NewToken(defined.name, list(defined.allow), expires_at, token, access_key_id, secret)


def token_info(defined: _Travelled | TokenDefined, access_key_id: str | None) -> TokenInfo:
    created_at = datetime.fromtimestamp(defined.created_ms / 1000, UTC)
    expires_at = _moment(defined.expires_ms)
    return TokenInfo(defined.name, list(defined.allow), created_at, expires_at, access_key_id)


def _new(made: _Travelled) -> NewToken:
    return new_token(made, made.token, made.access_key_id, made.secret_access_key)


def _moment(at_ms: int | None) -> datetime | None:
    return None if at_ms is None else datetime.fromtimestamp(at_ms / 1000, UTC)
