"""Where the traffic of a client's connection goes: at which node it would be at home.

Frames are counted over a window, those that this node serves and those that it passes on to each
other node. When most of them go to one other node, the client is told to connect there: its calls
and deliveries need no hop then. One that uses several nodes alike stays where it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nexo.vocabulary.limits import (
    CLUSTER_REDIRECT_AGAIN_S,
    CLUSTER_REDIRECT_FRAMES,
    CLUSTER_REDIRECT_SHARE,
    CLUSTER_REDIRECT_WINDOW_S,
)
from nexo.wire.frame import Kind

if TYPE_CHECKING:
    from collections.abc import Iterable


class Usage:
    """Of one connection, by the clock that its owner reads anyway."""

    __slots__ = ("_began_s", "_here", "_passed", "_quiet_until_s")

    def __init__(self, now_s: float) -> None:
        self._quiet_until_s = now_s
        self._begin(now_s)

    def count(self, node: str | None, now_s: float, frames: int = 1) -> str | None:
        """Frames for another node, or None: for this one. Returns where the client is to be sent,
        if it is."""
        if node is None:
            self._here += frames
        else:
            self._passed[node] = self._passed.get(node, 0) + frames
        if now_s - self._began_s < CLUSTER_REDIRECT_WINDOW_S:
            return None
        all_frames = self._here + sum(self._passed.values())
        if all_frames < CLUSTER_REDIRECT_FRAMES:
            return None
        passed = self._passed
        self._begin(now_s)
        most = max(passed, key=passed.__getitem__, default=None)
        if most is None or passed[most] < CLUSTER_REDIRECT_SHARE * all_frames:
            return None
        if now_s < self._quiet_until_s:
            return None
        self._quiet_until_s = now_s + CLUSTER_REDIRECT_AGAIN_S
        return most

    def _begin(self, now_s: float) -> None:
        self._began_s = now_s
        self._here = 0
        self._passed: dict[str, int] = {}


def deliveries_in(pieces: Iterable[bytes | memoryview]) -> int:
    """How many DELIVER frames are in whole frames, however they are cut: a piece begins with a
    frame or goes on with one, and what describes a frame is never cut."""
    found = skip = 0
    for piece in pieces:
        at, end = skip, len(piece)
        while at < end:
            found += piece[at + 4] == Kind.DELIVER
            at += 4 + int.from_bytes(piece[at : at + 4], "little")
        skip = at - end
    return found
