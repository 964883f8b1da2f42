"""The end of a command that goes on until it is told: Ctrl-C and SIGTERM are its normal end."""

import signal
import time
from collections.abc import Callable
from types import FrameType
from typing import Any, Self

SLICE_S = 0.05  # how long a sleep may take no notice


class Ending:
    """For the length of a `with` block, the first signal only says that the end is near, so that
    a step under way is finished and counted. The second one interrupts. `tell` is called with
    the first one, in the middle of whatever the program does."""

    def __init__(self, tell: Callable[[], None] = lambda: None) -> None:
        self.is_near = False
        self._also = tell
        self._before: dict[int, Any] = {}

    def sleep(self, seconds: float) -> None:
        """Sleep, unless the end is near."""
        until = time.monotonic() + seconds
        while not self.is_near and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, SLICE_S))

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._tell)
        return self

    def __exit__(self, *failure: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _tell(self, number: int, frame: FrameType | None) -> None:
        if self.is_near:
            raise KeyboardInterrupt
        self.is_near = True
        self._also()
