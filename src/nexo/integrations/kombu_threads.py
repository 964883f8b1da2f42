"""How the transport of kombu waits: one thread for each consumer, and a bell for all of them."""

from __future__ import annotations

import contextlib
import os
import select
import threading
from typing import TYPE_CHECKING, Any

import nexo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


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
