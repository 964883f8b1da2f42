"""Tokens as an admin sees them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from nexo.client import requests
from nexo.vocabulary.errors import InvalidArgument
from nexo.vocabulary.limits import RETENTION_MS_MAX
from nexo.vocabulary.units import milliseconds
from nexo.wire import calls

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nexo.client.operation import Request
    from nexo.vocabulary.changes import TokenDefined
    from nexo.wire.calls import TokenFigures


class TokenInfo(msgspec.Struct, frozen=True):
    """A token without its secret."""

    name: str
    allow: list[str]
    created_at: datetime
    expires_at: datetime | None
    access_key_id: str | None  # of an AWS access key


class NewToken(msgspec.Struct, frozen=True, omit_defaults=True):
    """A new token. It is the only place with the secret: `token`, or `secret_access_key` of an AWS
    access key."""

    name: str
    allow: list[str]
    expires_at: datetime | None
    token: str | None = None
    access_key_id: str | None = None
    secret_access_key: str | None = None

    def __repr__(self) -> str:
        return f"NewToken({self.name!r})"  # it may end up in a log


def create(name: str, allow: Iterable[str], expires: float | None, aws: bool) -> Request:
    if isinstance(allow, str):
        raise InvalidArgument("`allow` is a list of permissions", "write ['orders.*:push,pop']")
    after_ms = None if expires is None else milliseconds(expires, "expires", RETENTION_MS_MAX)
    return requests.call(calls.CreateToken(name, list(allow), after_ms, aws), _new)


def listing() -> Request:
    return requests.call(
        calls.ListTokens(),
        lambda listed: [token_info(each, each.access_key_id) for each in listed],
    )


def revoke(name: str) -> Request:
    return requests.call(calls.RevokeToken(name))


def new_token(
    defined: TokenFigures | TokenDefined,
    token: str | None,
    access_key_id: str | None,
    secret: str | None,
) -> NewToken:
    expires_at = _moment(defined.expires_ms)
    return NewToken(defined.name, list(defined.allow), expires_at, token, access_key_id, secret)


def token_info(defined: TokenFigures | TokenDefined, access_key_id: str | None) -> TokenInfo:
    created_at = datetime.fromtimestamp(defined.created_ms / 1000, UTC)
    expires_at = _moment(defined.expires_ms)
    return TokenInfo(defined.name, list(defined.allow), created_at, expires_at, access_key_id)


def _new(made: TokenFigures) -> NewToken:
    return new_token(made, made.token or None, made.access_key_id, made.secret_access_key or None)


def _moment(at_ms: int | None) -> datetime | None:
    return None if at_ms is None else datetime.fromtimestamp(at_ms / 1000, UTC)
