"""The front: finds the app that serves a path. `/health` it answers by itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nexo.vocabulary.errors import NexoError

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
App = Callable[[Any, Any, Any], Awaitable[None]]

_JSON = (b"content-type", b"application/json")
# `/health` is open to anyone: paths and the like, which an error may name, stay in the log.
_IN_THE_LOG = "the log of the broker says why"
_REASONS = {
    "not_ready": f"nothing reaches the disk any more, and calls wait for it; {_IN_THE_LOG}",
    "read_only": f"the disk is full or failed, and nothing new is accepted; {_IN_THE_LOG}",
}


class Front:
    """An ASGI app. `apps` are mounted by the first segment of the path, as `/console`; everything
    else goes to `root`."""

    def __init__(
        self, root: App, apps: Mapping[str, App], refusal: Callable[[], NexoError | None]
    ) -> None:
        self._root = root
        self._apps = dict(apps)
        self._refusal = refusal

    def mount(self, path: str, app: App) -> None:
        self._apps[path] = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope["path"]
        if path == "/":  # nearly all
            await self._root(scope, receive, send)
            return
        first = "/" + path[1:].partition("/")[0]
        app = self._apps.get(first)
        if app is not None:
            await app(scope, receive, send)
        elif path == "/health":
            await self._health(send)
        else:
            await self._root(scope, receive, send)

    async def _health(self, send: Send) -> None:
        refusal = self._refusal()
        told: dict[str, str] = {"status": "ok"}
        if refusal is not None:
            told = {"status": refusal.code, "reason": _REASONS.get(refusal.code, _IN_THE_LOG)}
        body = msgspec.json.encode(told)
        status = 200 if refusal is None else 503
        length = (b"content-length", str(len(body)).encode())
        headers = [_JSON, length, (b"cache-control", b"no-store")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})
