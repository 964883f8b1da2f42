"""What has come over a connection and waits for its turn.

One read may bring thousands of small frames, as of a client that sends without waiting for answers.
They are taken for a few milliseconds; then others get their turn, and nothing more is read from
this client until the rest is taken too.
"""

from __future__ import annotations

from collections import deque
from time import perf_counter
from typing import TYPE_CHECKING

from nexo.vocabulary.limits import RPC_TURN_MS

if TYPE_CHECKING:
    from collections.abc import Callable

    from nexo.wire.frame import Frame

_TURN_S = RPC_TURN_MS / 1000


class Inbox:
    """`is_waiting`: there is a rest, and `go_on` was called for."""

    __slots__ = ("_frames", "is_waiting")

    def __init__(self) -> None:
        self._frames: deque[Frame] = deque()
        self.is_waiting = False

    def add(self, frames: list[Frame]) -> None:
        self._frames += frames

    def take(self, take: Callable[[Frame], None]) -> None:
        """Take what there is, for one turn; the caller looks at `is_waiting`."""
        frames, ends_s = self._frames, perf_counter() + _TURN_S
        self.is_waiting = False
        while frames:
            take(frames.popleft())
            if frames and perf_counter() >= ends_s:
                self.is_waiting = True
                return

    def clear(self) -> None:
        """The connection ends: nobody waits for what it asked for."""
        self._frames.clear()
        self.is_waiting = False
