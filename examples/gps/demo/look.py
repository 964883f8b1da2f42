"""A look: the figures of everything at one moment, and rates since an earlier one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from examples.gps.dispatch import Handled
from examples.gps.progress_file import Told
from examples.gps.tally import PATHS, Total

if TYPE_CHECKING:
    from collections.abc import Sequence

RATE_OVER_S = 4.0


class Line(msgspec.Struct, frozen=True):
    """A queue or a topic, as far as the view shows it. `pushed` and `acked` are totals."""

    depth: int = 0
    in_flight: int = 0
    scheduled: int = 0
    pushed: int = 0
    acked: int = 0
    nacked: int = 0


class Letter(msgspec.Struct, frozen=True):
    """A dead letter: the alert, and why nobody could handle it."""

    alert: dict[str, Any]
    reason: str


class Look(msgspec.Struct, frozen=True):
    at_s: float
    is_up: bool = False  # whether the broker answers
    totals: dict[str, Total] = {}
    lines: dict[str, Line] = {}
    spark: Told | None = None
    handled_total: int = 0
    handled: list[Handled] = []  # the latest
    dead_letters: list[Letter] = []

    @property
    def sent(self) -> int:
        return sum(total.sent for total in self.totals.values())

    @property
    def confirmed(self) -> int:
        return sum(total.confirmed for total in self.totals.values())

    @property
    def batches(self) -> int:
        """Micro-batches so far, of all queries."""
        if self.spark is None:
            return 0
        return sum(batch.number + 1 for batch in self.spark.queries.values())

    @property
    def has_windows(self) -> bool:
        """Whether Spark has come to alerts, too."""
        return self.spark is not None and "windows" in self.spark.queries

    @property
    def rows_kept(self) -> int:
        """Rows that Spark has taken into the lake."""
        batch = self.spark.queries.get("positions") if self.spark is not None else None
        return batch.rows_total if batch is not None else 0

    def line(self, name: str) -> Line:
        return self.lines.get(name, Line())


class Course:
    """The looks of the last minutes."""

    def __init__(self) -> None:
        self.looks: list[Look] = [Look(0.0)]

    @property
    def last(self) -> Look:
        return self.looks[-1]

    def add(self, look: Look) -> None:
        self.looks.append(look)
        del self.looks[:-400]

    def arrivals(self, path: str) -> list[float]:
        """Confirmed positions a second, look after look."""
        return _rates(
            [(look.at_s, look.totals.get(path, Total()).confirmed) for look in self.looks]
        )

    def rate(self, name: str, total: str) -> float:
        """How fast a total of a queue grows now."""
        seen = [(look.at_s, getattr(look.line(name), total)) for look in self.looks if look.is_up]
        return _rates(seen)[-1] if len(seen) > 1 else 0.0

    def total_rate(self) -> float:
        return sum(self.arrivals(path)[-1] for path in PATHS) if len(self.looks) > 1 else 0.0


def _rates(seen: Sequence[tuple[float, int]]) -> list[float]:
    """At each moment, over the seconds before it."""
    found, start = [0.0], 0
    for at_s, count in seen[1:]:
        while at_s - seen[start + 1][0] > RATE_OVER_S:
            start += 1
        since_s, before = seen[start]
        found.append(max(0.0, (count - before) / max(at_s - since_s, 0.001)))
    return found
