"""Where a broker is."""

from __future__ import annotations

import os
import re
from typing import NamedTuple

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

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def address_of(url: str | None) -> Address:
    """The address in a URL; without one that of `$NEXO_URL`, else of a broker on this machine."""
    url = url or os.environ.get("NEXO_URL") or DEFAULT_URL
    found = _URL.fullmatch(url.strip())
    if found is None:
        raise InvalidArgument(f"{url!r:.100} is not a URL of a broker", f"write {DEFAULT_URL}")
    if found["scheme"].lower() != "nexo":
        raise InvalidArgument(
            f"{url!r:.100} does not begin with nexo://",
            f"clients speak the native protocol: {DEFAULT_URL} (9324 is the HTTP port)",
        )
    port = int(found["port"] or _DEFAULT_PORT)
    if not 0 < port < 65536:
        raise InvalidArgument(f"{port} is not a port", "a port is 1 to 65535")
    return Address(found["six"] or found["host"], port)


def token_of(token: str | None) -> str | None:
    return token or os.environ.get("NEXO_TOKEN") or None
