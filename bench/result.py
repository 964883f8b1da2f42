"""A measured figure and the bar it is held to."""

from __future__ import annotations

from typing import Literal

import msgspec


class Result(msgspec.Struct, frozen=True):
    """`bar` is the lowest or the highest value that will do; None where there is none."""

    name: str
    value: float
    unit: str
    bar: float | None = None
    side: Literal["least", "most"] = "least"

    @property
    def holds(self) -> bool:
        if self.bar is None:
            return True
        return self.value >= self.bar if self.side == "least" else self.value <= self.bar

    def line(self) -> str:
        mark = "     " if self.bar is None else "ok   " if self.holds else "BELOW"
        sign = "≥" if self.side == "least" else "≤"
        bar = "" if self.bar is None else f"   ({sign} {_number(self.bar)})"
        return f"{mark} {self.name:<58} {_number(self.value):>14} {self.unit}{bar}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1_000 else f"{value:.3g}"
