"""Where a broker is."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

from nexo.client.tls import Tls
from nexo.vocabulary.errors import InvalidArgument

DEFAULT_URL = "nexo://127.0.0.1:9325"
_DEFAULT_PORT = 9325
_URL = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?:\[(?P<six>[0-9A-Fa-f:.%]+)\]|(?P<host>[^:/?#@\s]+))"
    r"(?::(?P<port>\d+))?/?"
)


class Address(NamedTuple):
    host: str
    port: int
    tls: Tls | None = None

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def address_of(url: str | None, tls_ca: str | None = None, tls_verify: bool = True) -> Address:
    """The address in a URL; without one that of `$NEXO_URL`, else of a broker on this machine.
    Where it begins with nexos:// TLS is spoken, and `tls_ca` (or `$NEXO_TLS_CA`) is trusted."""
    url = url or os.environ.get("NEXO_URL") or DEFAULT_URL
    found = _URL.fullmatch(url.strip())
    if found is None:
        raise InvalidArgument(f"{url!r:.100} is not a URL of a broker", f"write {DEFAULT_URL}")
    scheme = found["scheme"].lower()
    if scheme not in ("nexo", "nexos"):
        raise InvalidArgument(
            f"{url!r:.100} does not begin with nexo:// or nexos://",
            f"clients speak the native protocol: {DEFAULT_URL} (9324 is the HTTP port)",
        )
    port = int(found["port"] or _DEFAULT_PORT)
    if not 0 < port < 65536:
        raise InvalidArgument(f"{port} is not a port", "a port is 1 to 65535")
    tls = None
    if scheme == "nexos":
        tls = Tls(tls_ca or os.environ.get("NEXO_TLS_CA") or None, tls_verify)
        tls.context()  # a wrong file is told here
    elif tls_ca is not None or not tls_verify:
        raise InvalidArgument(f"{url!r:.100} does not speak TLS", "write nexos:// for it")
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
