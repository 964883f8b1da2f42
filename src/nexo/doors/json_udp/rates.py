"""How much each address may ask: a bucket of tokens each, in a table that does not grow."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from nexo.vocabulary.limits import UDP_BURST, UDP_RATE_PER_S, UDP_RATES_MAX

if TYPE_CHECKING:
    from nexo.doors.json_udp.strangers import Address


class _Bucket:
    __slots__ = ("at_s", "tokens")

    def __init__(self, tokens: float, at_s: float) -> None:
        self.tokens = tokens
        self.at_s = at_s


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

    def _begin(self, address: Address, now_s: float) -> _Bucket:
        if len(self._buckets) >= self._addresses_max:
            self._buckets.popitem(last=False)
        bucket = self._buckets[address] = _Bucket(self._burst, now_s)
        return bucket
