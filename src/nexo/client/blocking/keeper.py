"""The keeper: a thread that does what time calls for while the user's threads are elsewhere."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import weakref

    from nexo.client.blocking.connection import Connection


class Keeper(threading.Thread):
    """It holds its connection weakly, so a client that was forgotten can go."""

    def __init__(self, connection: weakref.ref[Connection]) -> None:
        super().__init__(name="nexo-keeper", daemon=True)
        self._connection = connection
        self._stirred = threading.Event()
        self._pause = 0.0

    def stay_awake(self, pause: float) -> None:
        """Come within `pause` seconds; costs nothing while it does anyway."""
        if self._pause > pause:
            self._stirred.set()

    def stir(self) -> None:
        self._stirred.set()

    def run(self) -> None:
        while True:
            connection = self._connection()
            if connection is None:
                return
            pause = connection.keep()
            del connection
            if not pause:
                return
            self._pause = pause
            if self._stirred.wait(pause):
                self._stirred.clear()
