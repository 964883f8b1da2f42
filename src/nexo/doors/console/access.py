"""Access: tokens and the audit log, for admins; and the sign-in."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec
from starlette.responses import RedirectResponse, Response

from nexo.access.tokens import access_key_id
from nexo.doors.console.request import DOOR, ROOT, as_number, at, whole_number
from nexo.doors.console.session import peer_of, sign_in, sign_out
from nexo.vocabulary.limits import CONSOLE_AUDIT_SHOWN, CONSOLE_AUDIT_SHOWN_MAX

if TYPE_CHECKING:
    from nexo.access.tokens import Minted
    from nexo.doors.console.request import Call
    from nexo.engine.engine import Engine

_DAY_MS = 86_400_000


class TokenRow(msgspec.Struct, frozen=True):
    name: str
    allow: tuple[str, ...]
    created_ms: int
    expires_ms: int | None
    access_key_id: str
    is_expired: bool


async def access(call: Call) -> Response:
    return await _page(call, None)


async def _page(call: Call, minted: Minted | None) -> Response:
    limit = whole_number(call.query("entries"), CONSOLE_AUDIT_SHOWN, 1, CONSOLE_AUDIT_SHOWN_MAX)
    # In a thread: files of many megabytes may have to be read.
    entries = await asyncio.to_thread(call.shared.guard.audit.read, limit)
    return await call.page(
        "access.html", tokens=_tokens(call.engine), entries=entries, minted=minted
    )


def _tokens(engine: Engine) -> list[TokenRow]:
    now_ms = engine.wall_ms()
    return [
        TokenRow(
            each.name,
            each.allow,
            each.created_ms,
            each.expires_ms,
            access_key_id(each.id) if each.aws_secret else "",
            each.expires_ms is not None and each.expires_ms <= now_ms,
        )
        for each in engine.tokens.all()
    ]


async def create_token(call: Call) -> Response:
    """The secret is on the page that answers, and nowhere else: so it is no redirect."""
    with call.told():
        days = as_number(call.field("days"), "the number of days")
        minted = await call.engine.tokens.create(
            call.field("name"),
            call.field("allow").replace("\n", " ").split(),
            expires_after_ms=None if days is None else round(days * _DAY_MS),
            aws=bool(call.field("aws")),
        )
    return await _page(call, minted)


async def revoke_token(call: Call) -> Response:
    name = call.field("name")
    with call.told():
        await call.engine.tokens.revoke(name)
    return call.back(at("access"), f"Revoked token {name}.")


async def login(call: Call) -> Response:
    """Take a token, and if it is a good one, keep it in the cookie."""
    request, token = call.request, call.field("token")
    call.shared.guard.admit(token, peer_of(request), DOOR)
    response = RedirectResponse(safe_next(call.field("next")), 303)
    sign_in(response, request, token)
    return response


async def logout(call: Call) -> Response:
    response = RedirectResponse(at("login"), 303)
    sign_out(response)
    return response


def safe_next(wanted: str) -> str:
    """Where to go after the sign-in: a page of the console, never another site."""
    try:
        parts = urlsplit(wanted)
    except ValueError:  # what looks like an address of IPv6 and is none
        return ROOT
    is_ours = parts.path == ROOT or parts.path.startswith(f"{ROOT}/")
    if parts.scheme or parts.netloc or not is_ours or "\\" in wanted:
        return ROOT
    return parts.path + (f"?{parts.query}" if parts.query else "")
