"""How values spread: counts in fixed buckets, as Prometheus wants them."""

from __future__ import annotations

from bisect import bisect_left

# From half a millisecond to an hour: waits and work of messages.
LIFE_BOUNDS_S = (
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
    1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1_800.0, 3_600.0,
)  # fmt: skip
# What happens inside the broker is over in milliseconds, or something is wrong.
INNER_BOUNDS_S = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 2.5)


class Histogram:
    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)  # the last one is for what is above all bounds
        self.sum = 0.0

    def add(self, value: float, count: int = 1) -> None:
        """`count` values that are alike."""
        self.counts[bisect_left(self.bounds, value)] += count
        self.sum += value * count

    @property
    def count(self) -> int:
        return sum(self.counts)

    def merge(self, other: Histogram) -> None:
        assert self.bounds == other.bounds
        self.counts = [mine + its for mine, its in zip(self.counts, other.counts, strict=True)]
        self.sum += other.sum

    def quantile(self, share: float) -> float:
        """About where this share of the values lies below: straight lines inside the buckets."""
        wanted, seen, low = share * self.count, 0, 0.0
        for bound, count in zip(self.bounds, self.counts, strict=False):
            if count and seen + count >= wanted:
                return low + (bound - low) * max(0.0, wanted - seen) / count
            seen += count
            low = bound
        return low
