"""How long a stream waits for a micro-batch that is worth it: until enough messages are there, or
the last one is too long ago."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from nexo.spark.options import Options


class Patience:
    def __init__(self, options: Options, clock: Callable[[], float] = time.monotonic) -> None:
        self._least = options.messages_min or 1
        self._delay_max_s = options.delay_max_s
        self._clock = clock
        self._began = clock()

    @property
    def is_asked(self) -> bool:
        """Whether somebody wants to wait at all."""
        return self._least > 1

    def waits(self, there: int) -> bool:
        """Whether so many messages are too few for now."""
        return there < self._least and self._clock() < self._began + self._delay_max_s

    def begin(self) -> None:
        """A micro-batch begins: from now on counts the time until the next one."""
        self._began = self._clock()
