"""The keeper: a thread that does what time calls for while the user's threads are elsewhere."""

from __future__ import annotations

import math
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import weakref

    from nexo.client.blocking.connection import Connection

HOT_S = 0.05  # receptions that follow each other closer than this travel with what comes next …
TICK_S = 0.005  # … or at the latest after this long
SLACK_S = 0.001  # nobody is woken to come by this little earlier
IDLE_READ_S = 0.25  # it reads for subscriptions that nobody reads for


class Keeper(threading.Thread):
    """It holds its connection weakly, so a client that was forgotten can go."""

    def __init__(self, connection: weakref.ref[Connection]) -> None:
        super().__init__(name="nexo-keeper", daemon=True)
        self._connection = connection
        self._stirred = threading.Event()
        self._comes_at = 0.0

    def come_by(self, due: float) -> None:
        """Come no later than that; costs nothing while it does anyway."""
        if self._comes_at > due + SLACK_S:
            self._stirred.set()

    def stir(self) -> None:
        self._stirred.set()

    def run(self) -> None:
        while True:
            connection = self._connection()
            if connection is None:
                return
            self._comes_at = math.inf  # whoever asks while it works is heard right after
            pause = connection.keep()
            del connection
            if not pause:
                return
            self._comes_at = time.monotonic() + pause
            if self._stirred.wait(pause):
                self._stirred.clear()
