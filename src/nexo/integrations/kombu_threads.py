"""What the transport of kombu does in threads of its own: it waits for messages, and acks."""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import select
import threading
from typing import TYPE_CHECKING, Any

import nexo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_log = logging.getLogger("nexo.kombu")
ACKED_MAX = 1_000  # together


class Bell:
    """Wakes one thread, which waits for it or watches its file descriptor."""

    def __init__(self) -> None:
        self._inside, self._outside = os.pipe()
        for end in (self._inside, self._outside):
            os.set_blocking(end, False)
        self._rung = False

    def fileno(self) -> int:
        return self._inside

    def ring(self) -> None:
        if not self._rung:
            self._rung = True
            with contextlib.suppress(BlockingIOError):  # it is rung already
                os.write(self._outside, b"!")

    def hush(self) -> None:
        """Before one looks: what comes from here on rings again."""
        if self._rung:
            with contextlib.suppress(BlockingIOError):
                os.read(self._inside, 4096)
            self._rung = False

    def wait(self, seconds: float | None) -> None:
        select.select([self._inside], [], [], None if seconds is None else max(0.0, seconds))

    def __del__(self) -> None:
        os.close(self._inside)
        os.close(self._outside)


class Pump(threading.Thread):
    """Waits for the messages of one consumer."""

    callback: Callable[[Any], None]
    failed: Callable[[nexo.NexoError], None]
    no_ack: bool

    def __init__(
        self,
        source: nexo.Queue,
        prefetch: int,
        arrive: Callable[[Iterable[nexo.Message]], None],
    ) -> None:
        super().__init__(name=f"nexo-kombu-{source.name}", daemon=True)
        self._source = source
        self._subscription = source.subscribe_batches(prefetch, prefetch=prefetch, auto_extend=True)
        self._arrive = arrive
        self._stopped = False

    def run(self) -> None:
        try:
            for messages in self._subscription:
                if self._stopped:
                    self._source.give_back(messages)
                    break
                self._arrive(messages)
        except nexo.NexoError as error:
            if not self._stopped:
                self.failed(error)

    def stop(self, waiting: list[nexo.Message]) -> None:
        """Take no more; what nobody has seen yet goes back as if it had never been here."""
        self._stopped = True
        with contextlib.suppress(nexo.NexoError):
            self._subscription.close()
            self._source.give_back(waiting)


class Acks(threading.Thread):
    """Acks without keeping the consumer waiting for the disk: as many together as there are.
    Should this process die before, the messages come again, as those do that were not acked."""

    def __init__(self, client: nexo.Client) -> None:
        super().__init__(name="nexo-kombu-acks", daemon=True)
        self._client = client
        self._messages: queue.SimpleQueue[nexo.Message | threading.Event] = queue.SimpleQueue()
        self._stopped = False
        self._started_by = 0

    def add(self, message: nexo.Message) -> None:
        self._begin()
        self._messages.put(message)

    def flush(self) -> None:
        """Wait until everything so far is acked."""
        if self._started_by == os.getpid() and self.is_alive():
            done = threading.Event()
            self._messages.put(done)
            done.wait(30.0)

    def stop(self) -> None:
        self._stopped = True
        self.flush()

    def run(self) -> None:
        while not self._stopped or not self._messages.empty():
            taken = [self._messages.get()]
            while len(taken) < ACKED_MAX and not self._messages.empty():
                taken.append(self._messages.get())
            self._ack([each for each in taken if not isinstance(each, threading.Event)])
            for each in taken:
                if isinstance(each, threading.Event):
                    each.set()

    def _begin(self) -> None:
        if not self._started_by:
            self._started_by = os.getpid()
            self.start()

    def _ack(self, messages: list[nexo.Message]) -> None:
        by_queue: dict[str, list[nexo.Message]] = {}
        for message in messages:
            by_queue.setdefault(message.queue, []).append(message)
        for name, together in by_queue.items():
            try:
                refused: Any = self._client.queue(name).ack_batch(together)
            except nexo.NexoError as error:
                refused = error
            if refused:
                _log.warning("acks of queue %s were lost, so these come again: %s", name, refused)
