"""What is known of each address: how much it may send, and how many errors it may still hear. One
table that does not grow.

An error is an answer that nobody may have wanted: its receiver may take it for something to answer
in turn, and two such ends would talk for ever. So an address hears a number of errors in a row.
What it says right gives it all of them back, and so does silence, which a loop never keeps.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from nexo.vocabulary.limits import (
    UDP_BURST,
    UDP_ERRORS_MAX,
    UDP_ERRORS_SILENCE_S,
    UDP_KNOWN_S,
    UDP_RATE_PER_S,
    UDP_RATES_MAX,
)

if TYPE_CHECKING:
    from nexo.doors.json_udp.strangers import Address


class _Bucket:
    __slots__ = ("at_s", "erred_s", "errors", "known_s", "tokens")

    def __init__(self, tokens: float, at_s: float) -> None:
        self.tokens = tokens
        self.at_s = at_s
        self.known_s: float | None = None  # when it last said something right
        self.errors = 0  # that it was told since then, in a row
        self.erred_s = at_s


class Rates:
    """Who is forgotten begins with a full bucket again: under a flood of forged addresses nobody
    gets less for it, and the table stays as it is."""

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
