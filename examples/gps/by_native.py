"""With the client of Nexo: it waits for a broker that is away, and never doubles what it sends
again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import nexo
from examples.gps.names import POSITIONS
from examples.gps.position import encode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from examples.gps.position import Position

TIMEOUT_S = 30.0


class NativeSender:
    path = "native"

    def __init__(self, url: str) -> None:
        self._client = nexo.connect(url, timeout=TIMEOUT_S)
        self._queue = self._client.queue(POSITIONS)

    def send(self, positions: Sequence[Position]) -> list[str]:
        """Returns those that have an id, which is all of them or none."""
        try:
            ids = self._queue.push_batch([encode(position) for position in positions])
        except nexo.NexoError:
            return []  # the broker was away for too long
        return [position.id for position, _ in zip(positions, ids, strict=True)]

    def close(self) -> None:
        self._client.close()
