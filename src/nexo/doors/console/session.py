"""Who is looking: the token in a cookie that no script can read, and proof that a change was asked
for by a page of ours; and what the next page tells them.

    cookie   HttpOnly, SameSite=Strict, for /console alone; Secure behind TLS
    origin   a change is refused unless the browser says that it comes from here
    proof    every form carries a value that is made from the cookie and a secret of this process,
             or of the cluster
    host     without access control, a public name in the address is refused: it could be the
             attacker's, made to point to this machine after its page was loaded
"""

from __future__ import annotations

import hmac
import ipaddress
import secrets
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import sha256
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from nexo.access.guard import bearer_of
from nexo.doors.console.request import DOOR, ROOT
from nexo.vocabulary.errors import Forbidden, Unauthorized
from nexo.vocabulary.limits import (
    CONSOLE_COOKIE_S,
    CONSOLE_NOTICE_CHARS_MAX,
    CONSOLE_NOTICE_S,
    CONSOLE_NOTICES_MAX,
)

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from nexo.access.caller import Caller
    from nexo.access.guard import Guard

COOKIE = "nexo_console"
_COOKIE = COOKIE.encode()
_LOCAL_ENDINGS = (".localhost", ".local", ".internal", ".lan", ".test", ".home.arpa")


class Sessions:
    def __init__(self, guard: Guard, secret: bytes | None = None) -> None:
        self._guard = guard
        self._secret = secret or secrets.token_bytes(32)

    def caller(self, request: Request) -> Caller:
        """Raises `Unauthorized` if nobody has signed in, or the token is no longer good."""
        token = cookie_of(request) or bearer_of(request.scope["headers"])
        if not token and self._guard.is_required:
            # Not asked of the guard: to open a page is no failed try.
            raise Unauthorized("you are not signed in", "sign in with a token")
        caller = self._guard.admit(token, peer_of(request), DOOR)
        caller.check_live()
        return caller

    def proof(self, request: Request) -> str:
        """What a form has to carry."""
        token = cookie_of(request)
        return hmac.new(self._secret, token.encode(), sha256).hexdigest()

    def check_origin(self, request: Request) -> None:
        """Raise unless the browser says that the change was asked for by a page of ours. The head
        is enough for this: a form of another site is not read."""
        origin = request.headers.get("origin", "")
        if _host_of(origin) != request.headers.get("host", "").lower():
            raise Forbidden(
                f"web pages from {origin or 'nowhere'!r:.100} may not make changes",
                "open the console and try again there",
            )

    def check_proof(self, request: Request, proof: str) -> None:
        """Raise unless the form was on a page that we made for this caller."""
        if not hmac.compare_digest(proof.encode(), self.proof(request).encode()):
            raise Forbidden(
                "this page is out of date, after a restart or a new sign-in", "reload it"
            )

    def check_host(self, request: Request) -> None:
        if not self._guard.is_required and not is_local(request.headers.get("host", "")):
            raise Forbidden(
                f"without --access required the console is not served as "
                f"{request.headers.get('host')!r:.100}",
                "use localhost or an IP address, or start the broker with --access required",
            )


def sign_in(response: Response, request: Request, token: str) -> None:
    response.set_cookie(
        COOKIE,
        token,
        max_age=CONSOLE_COOKIE_S,
        path=ROOT,
        httponly=True,
        samesite="strict",
        # As the browser sees it, which has been checked: a proxy may have ended the TLS before.
        secure=request.headers.get("origin", "").lower().startswith("https:"),
    )


def _host_of(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return None


def sign_out(response: Response) -> None:
    response.delete_cookie(COOKIE, path=ROOT, httponly=True, samesite="strict")


def cookie_of(request: Request) -> str:
    """The token that the browser keeps; empty if there is none. What else a cookie may be written
    as, in quotes and with escapes, ours never is: reading that takes the square of its length."""
    for name, value in request.scope["headers"]:
        if name == b"cookie":
            for part in value.split(b";"):
                key, _, token = part.strip().partition(b"=")
                if key == _COOKIE:
                    return str(token.decode("latin-1"))
    return ""


def peer_of(request: Request) -> str:
    return request.client.host if request.client is not None else ""


def is_local(host: str) -> bool:
    """Whether nobody outside can own this name: an address, or a name without public dots."""
    try:
        name = (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return False
    if "." not in name and ":" not in name:
        return bool(name)
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return name.endswith(_LOCAL_ENDINGS)
    return True


class Notices:
    """What a page says once after something was done. The text stays here and only its number
    travels in the address, so that nobody can make the console say something by a link."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def put(self, text: str) -> str:
        number = secrets.token_hex(8)
        self._texts[number] = text[:CONSOLE_NOTICE_CHARS_MAX]
        if len(self._texts) > CONSOLE_NOTICES_MAX:
            del self._texts[next(iter(self._texts))]
        return number

    def take(self, number: str) -> str | None:
        return self._texts.pop(number, None)


class SignedNotices(Notices):
    """The same where another broker may answer next, which knows the secret: so the text travels,
    signed, and is shown for a while."""

    def __init__(self, secret: bytes) -> None:
        super().__init__()
        self._secret = secret

    def put(self, text: str) -> str:
        until_s = int(time.time()) + CONSOLE_NOTICE_S
        told = f"{until_s:x}.{text[:CONSOLE_NOTICE_CHARS_MAX]}"
        return urlsafe_b64encode(self._signature(told) + told.encode()).decode()

    def take(self, number: str) -> str | None:
        try:
            packed = urlsafe_b64decode(number.encode())
            told = packed[sha256().digest_size :].decode()
        except ValueError:
            return None
        if not hmac.compare_digest(packed[: sha256().digest_size], self._signature(told)):
            return None
        until_s, _, text = told.partition(".")
        return text if time.time() < int(until_s, 16) else None

    def _signature(self, told: str) -> bytes:
        return hmac.new(self._secret, b"notice " + told.encode(), sha256).digest()
