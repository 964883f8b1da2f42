"""What was seen, and when: how many orders came, were stored, and waited."""

from __future__ import annotations

from bisect import bisect_left
from typing import NamedTuple

SMOOTH_S = 0.5  # rates are those of this long


class Sample(NamedTuple):
    at_s: float
    pushed: int
    stored: int
    depth: int


class Point(NamedTuple):
    at_s: float
    arrivals: float  # a second
    departures: float
    depth: int


class Course:
    def __init__(self) -> None:
        self.samples: list[Sample] = [Sample(0.0, 0, 0, 0)]

    def add(self, sample: Sample) -> None:
        self.samples.append(sample)

    def points(self) -> list[Point]:
        """Rates at each sample, over the time just before it."""
        times = [sample.at_s for sample in self.samples]
        found = []
        for number, sample in enumerate(self.samples[1:], start=1):
            before = self.samples[min(number - 1, bisect_left(times, sample.at_s - SMOOTH_S))]
            took_s = sample.at_s - before.at_s
            arrivals = (sample.pushed - before.pushed) / took_s
            departures = (sample.stored - before.stored) / took_s
            found.append(Point(sample.at_s, arrivals, departures, sample.depth))
        return found
