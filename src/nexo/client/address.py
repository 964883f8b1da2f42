"""Where a broker is, and for TLS whom to trust there.

`ssl` takes a while to import, so only those who speak TLS do.
"""

from __future__ import annotations

import os
import re
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from nexo.vocabulary.errors import InvalidArgument, NexoError, Unreachable

if TYPE_CHECKING:
    import ssl

DEFAULT_URL = "nexo://127.0.0.1:9325"
_DEFAULT_PORT = 9325
_URL = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?:\[(?P<six>[0-9A-Fa-f:.%]+)\]|(?P<host>[^:/?#@\s]+))"
    r"(?::(?P<port>\d+))?/?"
)
_NOT_TLS = frozenset({"WRONG_VERSION_NUMBER", "UNKNOWN_PROTOCOL", "HTTP_REQUEST"})


class Tls(NamedTuple):
    """`ca` is a PEM file of whom to trust, None: whom this machine trusts. Without `verify` anyone
    is taken for the broker."""

    ca: str | None = None
    verify: bool = True

    def context(self) -> ssl.SSLContext:
        return _context(self)


class Silent(Unreachable):
    """Nothing was heard of the broker for too long."""


class Address(NamedTuple):
    host: str
    port: int
    tls: Tls | None = None
    others: tuple[tuple[str, int], ...] = ()  # nodes of the same cluster

    def next(self) -> Address:
        """Where to try next when this one does not answer."""
        if not self.others:
            return self
        (host, port), *rest = self.others
        return Address(host, port, self.tls, (*rest, (self.host, self.port)))

    def after(self, failure: NexoError) -> Address:
        """Where to connect when a connection to this one is over. Often it is back at once; but
        one that hangs still takes connections, and answers none."""
        return self.next() if isinstance(failure, Silent) else self

    def led_by(self, place: tuple[str, int]) -> Address:
        """The same, with a node to try before all of these."""
        places = ((self.host, self.port), *self.others)
        others = tuple(each for each in places if each != place)
        return Address(*place, self.tls, others)

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def address_of(url: str | None, tls_ca: str | None = None, tls_verify: bool = True) -> Address:
    """The address in a URL; without one that of `$NEXO_URL`, else of a broker on this machine. A
    URL may name several nodes of a cluster: `nexo://a:9325,b:9325`. Where it begins with nexos://
    TLS is spoken, and `tls_ca` (or `$NEXO_TLS_CA`) is trusted."""
    url = url or os.environ.get("NEXO_URL") or DEFAULT_URL
    scheme, mark, places = url.strip().partition("://")
    first, *more = places.split(",")
    address = _address_of(f"{scheme}{mark}{first}", url, tls_ca, tls_verify)
    if not more:
        return address
    found = [_address_of(f"{scheme}{mark}{each}", url, tls_ca, tls_verify) for each in more]
    return address._replace(others=tuple((each.host, each.port) for each in found))


def place_of(text: str) -> tuple[str, int] | None:
    """Host and port, as a node tells them; None: they cannot be read."""
    found = _URL.fullmatch(f"nexo://{text}")
    if found is None or not 0 < int(found["port"] or _DEFAULT_PORT) < 65536:
        return None
    return found["six"] or found["host"], int(found["port"] or _DEFAULT_PORT)


def _address_of(place: str, url: str, tls_ca: str | None, tls_verify: bool) -> Address:
    found = _URL.fullmatch(place)
    if found is None:
        raise InvalidArgument(f"{url!r:.100} is not a broker URL", f"write {DEFAULT_URL}")
    scheme = found["scheme"].lower()
    if scheme not in ("nexo", "nexos"):
        raise InvalidArgument(
            f"{url!r:.100} does not begin with nexo:// or nexos://",
            f"use the RPC port, such as {DEFAULT_URL} (9324 is the HTTP port)",
        )
    port = int(found["port"] or _DEFAULT_PORT)
    if not 0 < port < 65536:
        raise InvalidArgument(f"{port} is not a port", "a port is 1 to 65535")
    tls = None
    if scheme == "nexos":
        tls = Tls(tls_ca or os.environ.get("NEXO_TLS_CA") or None, tls_verify)
        tls.context()  # a wrong file is told here
    elif tls_ca is not None or not tls_verify:
        raise InvalidArgument(
            f"tls_ca was given, but {url!r:.100} does not use TLS", "use a nexos:// URL"
        )
    return Address(found["six"] or found["host"], port, tls)


def token_of(token: str | None) -> str | None:
    """The token that is given, else that of `$NEXO_TOKEN`. `@FILE` stands for what is in a file,
    so that the token itself is in no list of processes."""
    given = token or os.environ.get("NEXO_TOKEN") or None
    if given is None or not given.startswith("@"):
        return given
    try:
        return Path(given[1:]).expanduser().read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise InvalidArgument(
            f"the token file {given[1:]} cannot be read: {reason}", "check the path after the @"
        ) from None


class Untrusted(Unreachable):
    """What answers has not proved to be the broker that is meant, so nothing was said to it."""


@lru_cache(maxsize=16)
def _context(tls: Tls) -> ssl.SSLContext:
    import ssl

    try:
        context = ssl.create_default_context(cafile=tls.ca)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InvalidArgument(
            f"{tls.ca} is not a certificate file: {reason}", "tls_ca takes a PEM file"
        ) from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if not tls.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def tls_failure(where: str, error: OSError) -> Unreachable | None:
    """The failure of a handshake in words; None if the error is of another kind."""
    import ssl

    if isinstance(error, ssl.SSLCertVerificationError):
        return Untrusted(
            f"the certificate of {where} is not trusted: {error.verify_message}",
            "give the CA's certificate with tls_ca, --tls-ca or $NEXO_TLS_CA, and name the broker "
            "as its certificate does",
        )
    if isinstance(error, ssl.SSLError) and error.reason in _NOT_TLS:
        return Untrusted(
            f"the server at {where} does not use TLS", "use nexo:// instead of nexos://"
        )
    if isinstance(error, ssl.SSLError):
        return Unreachable(f"TLS with {where} failed: {error.reason or error}")
    return None
