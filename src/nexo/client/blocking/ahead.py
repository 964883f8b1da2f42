"""The next message of a busy loop, asked for along with the ack of the last.

A loop of `pop` and `ack` pays two round trips a message, one of them only to hear what the broker
could have told with the first. Once such a loop is known to be one (`CYCLES` times in a row, each
pop right after its ack), the ack takes the next pop along. What it brings is not received until
the user comes for it; if that does not happen within milliseconds, or the user does anything else
with the queue, it goes back as if it had never left.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from nexo.client.asking import Pop
from nexo.vocabulary.limits import POP_BYTES_MAX
from nexo.wire import commands

if TYPE_CHECKING:
    from nexo.client.blocking.connection import Connection
    from nexo.client.delivery import Delivery
    from nexo.client.receipts import AckOne

CYCLES = 64
BUSY_S = 0.005  # from an ack to the next pop, in a busy loop
KEPT_S = 0.005  # how long a message waits here for the user


class Ahead:
    """Of one queue handle. A loop over several threads is no such loop: it never gets busy."""

    def __init__(self, connection: Connection, queue: str) -> None:
        self._connection = connection
        self._queue = queue
        self._cycles = 0
        self._acked_at = 0.0
        self.asked: Pop | None = None

    def take(self, usual: bool) -> Delivery | None:
        """The message that was asked for, if there is one; `usual` pops have no wishes that it
        was not asked for with."""
        busy = usual and time.monotonic() - self._acked_at < BUSY_S
        self._acked_at = 0.0  # one pop an ack
        self._cycles = self._cycles + 1 if busy else 0
        if self.asked is None:
            return None
        connection = self._connection
        with connection.lock:
            asked, self.asked = self.asked, None
            connection.aheads.discard(self)
            if asked is None:
                return None
            if not usual:
                self._return(asked)
                return None
        connection.wait_for(asked)
        delivery: Delivery | None = asked.outcome()
        if delivery is not None:
            with connection.lock:
                connection.session.receive_quietly(delivery)
            connection.written_later()
        return delivery

    def ack(self, acking: AckOne) -> Any:
        """An ack, with the next pop along if this is a busy loop."""
        along = self._next() if self._cycles >= CYCLES else None
        try:
            return self._connection.run(acking, along)
        finally:
            self._acked_at = time.monotonic()

    def _next(self) -> Pop | None:
        with self._connection.lock:
            if self.asked is not None:
                return None  # of another thread
            along = Pop(commands.Pop(self._queue, 1, POP_BYTES_MAX), auto_received=True)
            along.is_ahead = True
            self.asked = along
            self._connection.aheads.add(self)
            return along

    def cancel(self) -> None:
        """The user does something else."""
        with self._connection.lock:
            self.give_back()

    def expire(self, now: float) -> None:
        """Under the lock: nobody came for it."""
        if self._acked_at and now - self._acked_at > KEPT_S:
            self.give_back()

    def give_back(self) -> None:
        """Under the lock."""
        asked, self.asked = self.asked, None
        self._cycles = 0
        self._connection.aheads.discard(self)
        if asked is not None:
            self._return(asked)

    def _return(self, asked: Pop) -> None:
        session = self._connection.session
        if not asked.done:
            session.abandon(asked)
        elif asked.result is not None:
            session.give_back(asked.result)
