"""The named calls about tokens: create one, list them, revoke one. They are for admins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from nexo.access.tokens import access_key_id
from nexo.vocabulary import allowed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from nexo.engine.engine import Engine
    from nexo.vocabulary.changes import TokenDefined

    Calling = Callable[[Engine, Any], Awaitable[Any]]


class CreateToken(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: allowed.Name
    allow: list[allowed.PermissionText]
    expires_after_ms: allowed.LifeMs | None = None  # counted from now; None: never
    aws: bool = False  # an access key pair for the SQS API


class ListTokens(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """No parameters."""


class RevokeToken(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: allowed.Name


async def _create(engine: Engine, wanted: CreateToken) -> dict[str, Any]:
    minted = await engine.keys.create(
        wanted.name, wanted.allow, expires_after_ms=wanted.expires_after_ms, aws=wanted.aws
    )
    told = _described(minted.defined)
    if wanted.aws:
        told["secret_access_key"] = minted.secret_access_key
    else:
        told["token"] = minted.token
    return told


async def _list(engine: Engine, _: ListTokens) -> list[dict[str, Any]]:
    return [_described(each) for each in engine.keys.all()]


async def _revoke(engine: Engine, wanted: RevokeToken) -> None:
    await engine.keys.revoke(wanted.name)


def _described(defined: TokenDefined) -> dict[str, Any]:
    """All that is no secret."""
    return {
        "name": defined.name,
        "id": defined.id,
        "allow": defined.allow,
        "created_ms": defined.created_ms,
        "expires_ms": defined.expires_ms,
        "access_key_id": access_key_id(defined.id) if defined.aws_secret else None,
    }


TOKEN_CALLS: dict[str, tuple[type[msgspec.Struct], Calling]] = {
    "create_token": (CreateToken, _create),
    "list_tokens": (ListTokens, _list),
    "revoke_token": (RevokeToken, _revoke),
}
