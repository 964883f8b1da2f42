"""What workers say of messages: acks that nobody waits for, many in one call, and the end of one
that is not to be tried again."""

from __future__ import annotations

import logging
import os
import threading
from typing import Any

import nexo

_log = logging.getLogger("nexo.integrations")
ACKED_MAX = 1_000  # together
THREADS = 2  # one waits for the disk while the other gathers
FLUSH_S = 30.0  # for what was said so far, at the end


def bury(client: nexo.Client, message: nexo.Message, reason: str) -> None:
    """Move a message to the dead letters at once, whatever attempts it has left. The copy comes
    first: of a crash in between there are two, never none."""
    template = client.queue(message.queue).info().settings.dead_letter
    dead = client.queue(template.replace("{name}", message.queue), create=True)
    attributes = {**message.attributes, "reason": reason}
    dead.push(message.body, priority=message.priority, attributes=attributes)
    message.ack()


class Acks:
    """Acks without keeping the consumer waiting for the disk: as many together as there are, while
    others are on their way. Should this process die before, the messages come again, as those do
    that were not acked."""

    def __init__(self, client: nexo.Client) -> None:
        self._client = client
        self._changed = threading.Condition()
        self._waiting: list[nexo.Message] = []
        self._on_their_way = 0  # calls
        self._is_stopped = False
        self._started_by = 0

    def add(self, message: nexo.Message) -> None:
        with self._changed:
            if not self._started_by:
                self._started_by = os.getpid()
                for _ in range(THREADS):
                    threading.Thread(target=self._run, name="nexo-acks", daemon=True).start()
            self._waiting.append(message)
            self._changed.notify()

    def flush(self) -> None:
        """Wait until everything is acked."""
        if self._started_by == os.getpid():
            with self._changed:
                self._changed.wait_for(self._is_done, FLUSH_S)

    def stop(self) -> None:
        self.flush()
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()

    def _is_done(self) -> bool:
        return not (self._waiting or self._on_their_way)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._is_stopped)
                if not self._waiting:
                    return
                taken = self._waiting[:ACKED_MAX]
                del self._waiting[:ACKED_MAX]
                self._on_their_way += 1
            self._ack(taken)
            with self._changed:
                self._on_their_way -= 1
                self._changed.notify_all()

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
