"""Batches for a worker, from a subscription: what is there at once, or comes within a window."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nexo.client.blocking.message import Message
    from nexo.client.blocking.queue import Queue

LOOK_UP_S = 1.0  # how long a wait may take no notice of `stop`, should it have begun just then


class Intake:
    """Any number of slots share one, and take in turn. On a FIFO queue each slot has its own, with
    no more prefetched than one batch: all that it holds of a group is then in one batch, and the
    broker gives out no more of that group until the batch is done."""

    def __init__(self, queue: Queue, prefetch: int, batch_size: int, window_s: float) -> None:
        self._queue = queue
        self._batch_size = batch_size
        self._window_s = window_s
        self._subscription = queue.subscribe(prefetch, auto_extend=True)
        self._turn = threading.Lock()
        self._stopped = False

    def take(self) -> list[Message]:
        """The next batch; empty when there will be none."""
        with self._turn:
            batch = self._gather()
        if not self._stopped:
            return batch
        self._queue.give_back(batch)
        self._subscription.close()  # a wait that began just then has opened it again
        return []

    def stop(self) -> None:
        """Give out no more batches; what was prefetched goes back at once."""
        self._stopped = True
        self._subscription.close()

    def _gather(self) -> list[Message]:
        batch: list[Message] = []
        while not batch and not self._stopped:
            message = self._subscription.get(LOOK_UP_S)
            if message is not None:
                batch.append(message)
        closes = time.monotonic() + self._window_s
        while len(batch) < self._batch_size and not self._stopped:
            message = self._subscription.get(max(0.0, closes - time.monotonic()))
            if message is None:
                break
            batch.append(message)
        return batch
