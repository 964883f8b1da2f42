"""Where anyone on this machine may do everything, a page that its user has opened must not.

A web site can make a browser send requests to loopback: forms and images to `127.0.0.1`, or
anything at all to a name of its own that it lets point there (DNS rebinding). Such requests come
from a browser and name another site: in `Origin`, `Sec-Fetch-Site` or `Host`. Programs send none of
these headers, and are not looked at any further.
"""

from __future__ import annotations

import ipaddress
from functools import lru_cache
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from nexo.doors.http.guarded import refuse
from nexo.vocabulary.errors import Forbidden

if TYPE_CHECKING:
    from nexo.doors.http.front import App, Receive, Scope, Send

_TOLD = frozenset({b"host", b"origin", b"sec-fetch-site", b"sec-fetch-mode", b"user-agent"})
_OWN = frozenset({b"same-origin", b"none"})  # of Sec-Fetch-Site: none is a person who typed it
_PAGES = ("/console", "/health")  # a link on another site may lead there
_URL_BYTES_MAX = 300  # a name has at most 253 characters; strangers must not fill the memory


class NoOtherSites:
    """An ASGI app around all others, in development mode on loopback."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        told = {name: value for name, value in scope["headers"] if name in _TOLD}
        if _is_browser(told) and not _is_ours(told, scope):
            await refuse(send, _REFUSAL)
            return
        await self._app(scope, receive, send)


def _is_browser(told: dict[bytes, bytes]) -> bool:
    if b"origin" in told or b"sec-fetch-site" in told:
        return True
    return told.get(b"user-agent", b"").startswith(b"Mozilla/")


def _is_ours(told: dict[bytes, bytes], scope: Scope) -> bool:
    if not _is_local(b"//" + told.get(b"host", b"")):
        return False
    if b"origin" in told and not _is_local(told[b"origin"]):
        return False
    if told.get(b"sec-fetch-site", b"none") in _OWN:
        return True
    is_page = scope["method"] == "GET" and scope["path"].startswith(_PAGES)
    return is_page and told.get(b"sec-fetch-mode") == b"navigate"


def _is_local(url: bytes) -> bool:
    """Whether a URL names this machine by a name that nobody else can give away."""
    return len(url) <= _URL_BYTES_MAX and _is_local_url(url)


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
    "a page of another site may not speak to this broker",
    "call it as localhost, or start it with --access required",
)
