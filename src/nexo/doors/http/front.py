"""The front: finds the app that serves a path, and who may come that far. `/health` it answers by
itself.

An app may be guarded: a token is asked for before it sees the request. And where anyone on this
machine may do everything, a page that its user has opened must not: a web site can make a browser
send requests to loopback, forms and images to `127.0.0.1`, or anything at all to a name of its own
that it lets point there (DNS rebinding). Such requests come from a browser and name another site:
in `Origin`, `Sec-Fetch-Site` or `Host`. Programs send none of these headers, and are not looked at
any further.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable, MutableMapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

import msgspec

from nexo.access.operations import Named, check
from nexo.vocabulary.errors import Forbidden, NexoError, RateLimited, Unauthorized
from nexo.vocabulary.limits import HTTP_ORIGIN_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nexo.access.caller import Caller
    from nexo.access.guard import Guard
    from nexo.access.operations import Operation
    from nexo.doors.http.body import Headers
    from nexo.doors.http.exchange import Exchange

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
App = Callable[[Any, Any, Any], Awaitable[None]]

# `/health` is open to anyone: paths and the like, which an error may name, stay in the log.
_IN_THE_LOG = "see the broker's log"
_REASONS = {
    "not_ready": f"no write to {{store}} has finished for a while; {_IN_THE_LOG}",
    "read_only": f"{{store}} is full or failing, new messages are refused; {_IN_THE_LOG}",
}
_CONSOLE = "/console"
_TO_THE_CONSOLE = b"location: /console\r\ncontent-length: 0\r\nvary: accept\r\n"
_CHALLENGE = (b"www-authenticate", b'Bearer realm="nexo"')
_OWN = frozenset({b"same-origin", b"none"})  # of Sec-Fetch-Site: none is a person who typed it
_BROWSER = b"Mozilla/"  # as all of them begin
_PAGES = (_CONSOLE, "/health")  # a link on another site may lead there


class Beginning(Protocol):
    """Whoever takes requests as they come, without a task for each."""

    def begin(self, exchange: Exchange) -> None:
        """Answer with `exchange.reply`, now or later."""


class Front:
    """`apps` are ASGI apps, mounted by the first segment of the path, as `/console`; everything
    else goes to `root`. `no_other_sites`: in development mode on loopback."""

    def __init__(
        self,
        root: Beginning,
        apps: Mapping[str, App],
        refusal: Callable[[], NexoError | None],
        no_other_sites: bool = False,
        more_health: Callable[[], dict[str, Any]] | None = None,
        has_console: bool = False,
        store: str = "the disk",
    ) -> None:
        """`more_health` is told with the health; `has_console` says that `root` serves it; `store`
        is what messages are written to."""
        self._root, self._store = root, store
        self._more_health = more_health
        self._has_console = has_console
        self._apps = dict(apps)
        self._refusal = refusal
        self._no_other_sites = no_other_sites

    def mount(self, path: str, app: App) -> None:
        self._apps[path] = app

    def begin(self, exchange: Exchange) -> None:
        fields = exchange.fields
        if (
            self._no_other_sites
            and (
                b"origin" in fields
                or b"sec-fetch-site" in fields
                or (b"user-agent" in fields and fields[b"user-agent"].startswith(_BROWSER))
            )
            and _refuses_other_site(exchange)
        ):
            return
        path = exchange.path
        if path == "/":  # nearly all
            if exchange.method == "GET" and self._is_visit(exchange):
                exchange.reply(302, _TO_THE_CONSOLE, b"")
            else:
                self._root.begin(exchange)
            return
        app = self._apps.get("/" + path[1:].partition("/")[0])
        if app is not None:
            exchange.run(app)
        elif path == "/health":
            self._health(exchange)
        else:
            self._root.begin(exchange)

    def _is_visit(self, exchange: Exchange) -> bool:
        """Whether a person has typed the address into a browser. A program that calls the SQS API
        by GET names its action in the query, and does not ask for a page."""
        if exchange.query or not (self._has_console or _CONSOLE in self._apps):
            return False
        return b"text/html" in exchange.fields.get(b"accept", b"")

    def _health(self, exchange: Exchange) -> None:
        refusal = self._refusal()
        told: dict[str, Any] = {"status": "ok"}
        if refusal is not None:
            reason = _REASONS.get(refusal.code, _IN_THE_LOG).format(store=self._store)
            told = {"status": refusal.code, "reason": reason}
        if self._more_health is not None:
            told |= self._more_health()
        body = msgspec.json.encode(told)
        exchange.reply(200 if refusal is None else 503, _lines(_headers_of(body)), body)


class Guarded:
    """An app for those who may do this one operation of the broker; None: any token will do, and
    the app looks at what it allows: it finds the caller in `scope["state"]`, as `caller`."""

    def __init__(
        self, app: App, guard: Guard, door: str, operation: Operation | None = None
    ) -> None:
        self._app = app
        self._guard = guard
        self._door = door
        self._operation = operation

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            caller = caller_of(self._guard, scope, self._door)
            if self._operation is not None:
                check(caller, self._operation, Named())
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
    headers, body = _refused(error)
    await send({"type": "http.response.start", "status": error.http_status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _refused(error: NexoError) -> tuple[Headers, bytes]:
    told = {"code": error.code, "message": error.message, "hint": error.hint}
    body = msgspec.json.encode({"error": told})
    headers = _headers_of(body)
    if isinstance(error, Unauthorized):
        headers.append(_CHALLENGE)
    if isinstance(error, RateLimited):
        headers.append((b"retry-after", b"60"))
    return headers, body


def _headers_of(body: bytes) -> Headers:
    """Of JSON that is true at this moment."""
    length = (b"content-length", str(len(body)).encode())
    return [(b"content-type", b"application/json"), length, (b"cache-control", b"no-store")]


def _lines(headers: Headers) -> bytes:
    return b"".join(b"%b: %b\r\n" % each for each in headers)


def _refuses_other_site(exchange: Exchange) -> bool:
    """Answer a browser that another site sent here; whether one did."""
    if _is_ours(exchange.fields, exchange):
        return False
    headers, body = _refused(_REFUSAL)
    exchange.reply(_REFUSAL.http_status, _lines(headers), body)
    return True


def _is_ours(told: dict[bytes, bytes], exchange: Exchange) -> bool:
    if not _is_local(b"//" + told.get(b"host", b"")):
        return False
    if b"origin" in told and not _is_local(told[b"origin"]):
        return False
    if told.get(b"sec-fetch-site", b"none") in _OWN:
        return True
    is_page = exchange.method == "GET" and exchange.path.startswith(_PAGES)
    return is_page and told.get(b"sec-fetch-mode") == b"navigate"


def _is_local(url: bytes) -> bool:
    """Whether a URL names this machine by a name that nobody else can give away."""
    return len(url) <= HTTP_ORIGIN_BYTES_MAX and _is_local_url(url)


@lru_cache(maxsize=256)
def _is_local_url(url: bytes) -> bool:
    try:
        host = urlsplit(url.decode("ascii")).hostname or ""
    except ValueError:
        return False
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


_REFUSAL = Forbidden(
    "web pages of other sites may not use this broker",
    "open it as localhost, or start the broker with --access required",
)
