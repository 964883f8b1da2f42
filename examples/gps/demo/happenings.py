"""What happened, and when: kills, restarts, the end."""

from __future__ import annotations

import time
from typing import NamedTuple


class Happening(NamedTuple):
    at_s: float
    what: str
    is_bad: bool = False


class Happenings:
    """Counted from the start of the broker."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self.all: list[Happening] = []

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._began

    def tell(self, what: str, *, is_bad: bool = False) -> None:
        self.all.append(Happening(self.elapsed_s, what, is_bad))
