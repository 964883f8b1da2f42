"""Who may be sent how much: the rule against amplification.

The source of a datagram is easily forged, so a reply may go to somebody who never asked. On this
machine it cannot be forged. Anybody else is a stranger until it shows a cookie, which it can only
have from a reply that reached it, or a token that vouches for it; and a reply to a stranger is at
most `UDP_STRANGER_FACTOR` times as large as what was asked with. What does not fit is cut or not
sent at all. A cookie is a digest of the address, so nothing has to be remembered.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Any

import msgspec

from nexo.access.caller import ANYONE, Caller
from nexo.vocabulary.limits import UDP_COOKIE_S, UDP_REPLY_BYTES_MAX, UDP_STRANGER_FACTOR

Address = tuple[Any, ...]  # host and port; IPv6 adds two more

_COOKIE_BYTES = 8


class Asker(msgspec.Struct, frozen=True, gc=False):
    """Where a reply goes, how large it may be, and who it is that asks."""

    address: Address
    reply_bytes_max: int = UDP_REPLY_BYTES_MAX
    caller: Caller = ANYONE

    @property
    def is_stranger(self) -> bool:
        return self.reply_bytes_max < UDP_REPLY_BYTES_MAX

    @property
    def name(self) -> str:
        """Who holds what was delivered to this address, in the words of the broker."""
        return f"udp {self.address[0]} {self.address[1]}"


def stranger(address: Address, request_bytes: int) -> Asker:
    allowed = UDP_STRANGER_FACTOR * request_bytes
    return Asker(address, min(allowed, UDP_REPLY_BYTES_MAX - 1))


def is_local(address: Address) -> bool:
    """Whether the address is of this machine: such a source does not come in from a network."""
    host: str = address[0].removeprefix("::ffff:")
    return host == "::1" or host.startswith("127.")


class Cookies:
    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def give(self, address: Address, now_s: float) -> str:
        return self._cookie(address, int(now_s // UDP_COOKIE_S))

    def prove(self, address: Address, cookie: str, now_s: float) -> bool:
        """Whether this address was given this cookie not long ago."""
        period = int(now_s // UDP_COOKIE_S)
        given = cookie.encode()
        return any(
            hmac.compare_digest(given, self._cookie(address, each).encode())
            for each in (period, period - 1)
        )

    def _cookie(self, address: Address, period: int) -> str:
        said = f"{address[0]} {address[1]} {period}".encode()
        return hashlib.blake2b(said, key=self._secret, digest_size=_COOKIE_BYTES).hexdigest()
