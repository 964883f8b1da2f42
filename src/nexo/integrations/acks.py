"""What workers say of messages: acks that nobody waits for, many in one call, and the end of one
that is not to be tried again."""

from __future__ import annotations

import logging
import os
import queue
import threading
from typing import Any

import nexo

_log = logging.getLogger("nexo.integrations")
ACKED_MAX = 1_000  # together
FLUSH_S = 30.0  # for what was said so far, at the end


def bury(client: nexo.Client, message: nexo.Message, reason: str) -> None:
    """Move a message to the dead letters at once, whatever attempts it has left. The copy comes
    first: of a crash in between there are two, never none."""
    template = client.queue(message.queue).info().settings.dead_letter
    dead = client.queue(template.replace("{name}", message.queue), create=True)
    attributes = {**message.attributes, "reason": reason}
    dead.push(message.body, priority=message.priority, attributes=attributes)
    message.ack()


class Acks(threading.Thread):
    """Acks without keeping the consumer waiting for the disk: as many together as there are.
    Should this process die before, the messages come again, as those do that were not acked."""

    def __init__(self, client: nexo.Client) -> None:
        super().__init__(name="nexo-acks", daemon=True)
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
            done.wait(FLUSH_S)

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
                _log.warning(
                    "acks on queue %s were lost, these messages will be delivered again: %s",
                    name,
                    refused,
                )
