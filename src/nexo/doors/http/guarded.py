"""An app for those who may: a token is asked for before the app sees the request.

Apps that decide by themselves who may do what get the caller in `scope["state"]`, as `caller`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from nexo.access.permissions import Action
from nexo.vocabulary.errors import NexoError, RateLimited, Unauthorized

if TYPE_CHECKING:
    from nexo.access.caller import Caller
    from nexo.access.guard import Guard
    from nexo.doors.http.front import App, Receive, Scope, Send

_CHALLENGE = (b"www-authenticate", b'Bearer realm="nexo"')


class Guarded:
    """`name` is what the caller must be allowed to `peek` at; None: any token will do, and the app
    looks at what it allows."""

    def __init__(self, app: App, guard: Guard, door: str, name: str | None = None) -> None:
        self._app = app
        self._guard = guard
        self._door = door
        self._name = name

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            caller = caller_of(self._guard, scope, self._door)
            if self._name is not None:
                caller.check(Action.PEEK, self._name)
        except NexoError as error:
            await refuse(send, error)
            return
        scope.setdefault("state", {})["caller"] = caller
        await self._app(scope, receive, send)


def caller_of(guard: Guard, scope: Scope, door: str) -> Caller:
    """Who makes a request: by `Authorization: Bearer`. Raises `Unauthorized` or `RateLimited`."""
    peer = (scope.get("client") or ("",))[0]
    return guard.admit_http(scope["headers"], peer, door)


async def refuse(send: Send, error: NexoError) -> None:
    """The refusal as JSON, with the status that it has."""
    told = {"code": error.code, "message": error.message, "hint": error.hint}
    body = msgspec.json.encode({"error": told})
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
    ]
    if isinstance(error, Unauthorized):
        headers.append(_CHALLENGE)
    if isinstance(error, RateLimited):
        headers.append((b"retry-after", b"60"))
    await send({"type": "http.response.start", "status": error.http_status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
