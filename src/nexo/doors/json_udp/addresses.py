"""Addresses: who may be sent how much, and what is known of each.

The rule against amplification. The source of a datagram is easily forged, so a reply may go to
somebody who never asked. On this machine it cannot be forged. Anybody else is a stranger until it
shows a cookie, which it can only have from a reply that reached it, or a token that vouches for it;
and a reply to a stranger is at most `UDP_STRANGER_FACTOR` times as large as what was asked with.
What does not fit is cut or not sent at all. A cookie is a digest of the address, so nothing has to
be remembered.

The rule against loops. An error is an answer that nobody may have wanted: its receiver may take it
for something to answer in turn, and two such ends would talk for ever. So an address hears a number
of errors in a row. What it says right gives it all of them back, and so does silence, which a loop
never keeps.
"""

from __future__ import annotations

import hashlib
import hmac
from collections import OrderedDict
from typing import Any

import msgspec

from nexo.access.caller import ANYONE, Caller
from nexo.vocabulary.limits import (
    UDP_BURST,
    UDP_COOKIE_S,
    UDP_ERRORS_MAX,
    UDP_ERRORS_SILENCE_S,
    UDP_KNOWN_S,
    UDP_RATE_PER_S,
    UDP_RATES_MAX,
    UDP_REPLY_BYTES_MAX,
    UDP_STRANGER_FACTOR,
)

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


class _Bucket:
    __slots__ = ("at_s", "erred_s", "errors", "known_s", "tokens")

    def __init__(self, tokens: float, at_s: float) -> None:
        self.tokens = tokens
        self.at_s = at_s
        self.known_s: float | None = None  # when it last said something right
        self.errors = 0  # that it was told since then, in a row
        self.erred_s = at_s


class Rates:
    """How much each address may send, and how many errors it may still hear: one table that does
    not grow. Who is forgotten begins with a full bucket again: under a flood of forged addresses
    nobody gets less for it, and the table stays as it is."""

    def __init__(
        self,
        per_s: float = UDP_RATE_PER_S,
        burst: float = UDP_BURST,
        addresses_max: int = UDP_RATES_MAX,
    ) -> None:
        self._per_s = per_s
        self._burst = burst
        self._addresses_max = addresses_max
        self._buckets: OrderedDict[Address, _Bucket] = OrderedDict()  # the longest silent first

    def __len__(self) -> int:
        return len(self._buckets)

    def allow(self, address: Address, now_s: float) -> bool:
        """Whether a datagram of this address is listened to; it costs a token."""
        bucket = self._buckets.get(address)
        if bucket is None:
            bucket = self._begin(address, now_s)
        elif now_s != bucket.at_s:
            tokens = bucket.tokens + (now_s - bucket.at_s) * self._per_s
            bucket.tokens = min(tokens, self._burst)
            bucket.at_s = now_s
            self._buckets.move_to_end(address)
        if bucket.tokens < 1:
            return False
        bucket.tokens -= 1
        return True

    def welcome(self, address: Address, now_s: float) -> None:
        """The address, which has just been allowed, said something right."""
        bucket = self._buckets[address]
        bucket.known_s = now_s
        bucket.errors = 0

    def is_known(self, address: Address, now_s: float) -> bool:
        """Whether the address said something right not long ago."""
        bucket = self._buckets.get(address)
        return (
            bucket is not None
            and bucket.known_s is not None
            and now_s - bucket.known_s < UDP_KNOWN_S
        )

    def may_err(self, address: Address, now_s: float) -> bool:
        """Whether the address, which has just been heard, is told of one more error."""
        bucket = self._buckets[address]
        if now_s - bucket.erred_s >= UDP_ERRORS_SILENCE_S:
            bucket.errors = 0
        bucket.erred_s = now_s
        bucket.errors += 1
        return bucket.errors <= UDP_ERRORS_MAX

    def _begin(self, address: Address, now_s: float) -> _Bucket:
        if len(self._buckets) >= self._addresses_max:
            self._buckets.popitem(last=False)
        bucket = self._buckets[address] = _Bucket(self._burst, now_s)
        return bucket
