"""Tokens, and the audit log: for admins."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta

from nexo.access.tokens import access_key_id
from nexo.doors.admin_http.operation import Operation
from nexo.doors.admin_http.request import (
    Limit,
    Moment,
    Paging,
    TokenName,
    moment,
    moment_or_none,
)
from nexo.vocabulary.limits import (
    ADMIN_PERMISSION_CHARS_MAX,
    RETENTION_MS_MAX,
    TOKEN_PERMISSIONS_MAX,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nexo.doors.admin_http.operation import Call
    from nexo.vocabulary.changes import TokenDefined

_ALL = "/api/v1/tokens"


class AtToken(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: TokenName


class TokenInfo(msgspec.Struct, frozen=True):
    """A token without its secret."""

    name: str
    allow: list[str]
    created_at: Moment
    expires_at: Moment | None
    access_key_id: str | None


class TokenPage(msgspec.Struct, frozen=True):
    """Pass `next` as `after` to get the following page; it is null on the last page."""

    tokens: list[TokenInfo]
    next: str | None


Permitted = Annotated[str, Meta(min_length=1, max_length=ADMIN_PERMISSION_CHARS_MAX)]


class NewToken(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`allow`: permissions such as `orders.*:push,pop`; `expires`: lifetime in seconds; `aws`:
    create an access key pair for the SQS API instead."""

    name: TokenName
    allow: Annotated[list[Permitted], Meta(min_length=1, max_length=TOKEN_PERMISSIONS_MAX)]
    expires: Annotated[float, Meta(ge=0.001, le=RETENTION_MS_MAX / 1000)] | None = None
    aws: bool = False


class MadeToken(msgspec.Struct, frozen=True):
    """The secret in it is shown this once: `token`, or of an AWS access key
    `secret_access_key`."""

    name: str
    allow: list[str]
    created_at: Moment
    expires_at: Moment | None
    token: str | None
    access_key_id: str | None
    secret_access_key: str | None


class AuditQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    limit: Limit = 100


class AuditLine(msgspec.Struct, frozen=True):
    """Who did what. `door` is the protocol, `peer` the address, `outcome` is `done` or the code
    of the error. `count` is the number of equal refusals in this entry."""

    at: Moment
    who: str
    peer: str
    door: str
    action: str
    resource: str
    outcome: str
    count: int


class AuditLines(msgspec.Struct, frozen=True):
    entries: list[AuditLine]


async def _list(call: Call) -> TokenPage:
    tokens = {each.name: each for each in call.engine.tokens.all()}
    names, following = _page(tokens, call.query)
    return TokenPage([_described(tokens[name]) for name in names], following)


def _page(names: Iterable[str], wanted: Paging) -> tuple[list[str], str | None]:
    """The names of one page, and the name to go on behind; None: there are no more."""
    listed = sorted(name for name in names if name > wanted.after)
    shown = listed[: wanted.limit]
    return shown, shown[-1] if len(listed) > len(shown) else None


def _described(defined: TokenDefined) -> TokenInfo:
    return TokenInfo(
        defined.name,
        list(defined.allow),
        moment(defined.created_ms),
        moment_or_none(defined.expires_ms),
        access_key_id(defined.id) if defined.aws_secret else None,
    )


async def _create(call: Call) -> MadeToken:
    wanted = call.body
    minted = await call.engine.tokens.create(
        wanted.name,
        wanted.allow,
        expires_after_ms=None if wanted.expires is None else round(wanted.expires * 1000),
        aws=wanted.aws,
    )
    told = _described(minted.defined)
    return MadeToken(
        told.name,
        told.allow,
        told.created_at,
        told.expires_at,
        minted.token or None,
        minted.access_key_id or None,
        minted.secret_access_key or None,
    )


async def _revoke(call: Call) -> None:
    await call.engine.tokens.revoke(call.path.name)


async def _audit(call: Call) -> AuditLines:
    # In a thread: files of many megabytes may have to be read.
    entries = await asyncio.to_thread(call.guard.audit.read, call.query.limit)
    return AuditLines(
        [
            AuditLine(
                moment(each.at_ms),
                each.who,
                each.peer,
                each.door,
                each.action,
                each.resource,
                each.outcome,
                each.count,
            )
            for each in entries
        ]
    )


TOKENS = (
    Operation(
        "list_tokens",
        "GET",
        _ALL,
        "List tokens by name, without their secrets",
        _list,
        TokenPage,
        query=Paging,
    ),
    Operation(
        "create_token",
        "POST",
        _ALL,
        "Create a token; its secret is only in this answer",
        _create,
        MadeToken,
        status=201,
        body=NewToken,
        refusals=(409,),
    ),
    Operation(
        "revoke_token",
        "DELETE",
        "/api/v1/tokens/{name}",
        "Revoke a token, at once and also on open connections",
        _revoke,
        status=204,
        parameters=AtToken,
        refusals=(404,),
    ),
    Operation(
        "audit",
        "GET",
        "/api/v1/audit",
        "The audit log, newest first",
        _audit,
        AuditLines,
        query=AuditQuery,
    ),
)
