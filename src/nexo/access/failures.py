"""How often somebody may be wrong: failures are counted by address, within a bounded table.

A right credential is admitted however often a wrong one came from the same address. Nobody guesses
256 bits, so nothing is gained by shutting an address out, and much is lost: a forgotten worker with
an old token would shut out its whole machine, and whoever forges addresses (UDP) anybody at all.
What is limited is what failures may cost: beyond the limit they are told `rate_limited`, which
makes clients slow down, and leave no lines in the log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

FAILURES_MAX = 10  # of one address within …
FAILURES_WINDOW_MS = 60_000
ADDRESSES_MAX = 10_000  # that are remembered; beyond, the one that began first is forgotten


class Failures:
    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._counts: dict[str, tuple[int, int]] = {}  # when the window began, and failures in it

    def __len__(self) -> int:
        return len(self._counts)

    def count(self, address: str) -> int:
        """One more; returns how many it were within the window."""
        now_ms = self._now_ms()
        began_ms, failures = self._counts.get(address, (now_ms, 0))
        if not 0 <= now_ms - began_ms < FAILURES_WINDOW_MS:  # below 0: the clock was set back
            del self._counts[address]  # so that it stands last again
            began_ms, failures = now_ms, 0
        elif address not in self._counts and len(self._counts) >= ADDRESSES_MAX:
            del self._counts[next(iter(self._counts))]
        self._counts[address] = (began_ms, failures + 1)
        return failures + 1
