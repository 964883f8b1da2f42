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
GATHER_S = 0.05  # how long an ack waits for others: each call is a disk write at the broker
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
    """Acks without keeping the consumer waiting for the disk: those of a moment are one call, and
    so one disk write. Should this process die before, the messages come again, as those do that
    were not acked."""

    def __init__(self, client: nexo.Client) -> None:
        self._client = client
        self._changed = threading.Condition()
        self._waiting: list[nexo.Message] = []
        self._is_gathering = False  # one of the threads waits for more
        self._is_urgent = False  # what waits is to go now
        self._on_their_way = 0  # calls
        self._is_stopped = False
        self._started_by = 0

    def add(self, message: nexo.Message, prefetch: int) -> None:
        """`prefetch`: how many messages the consumer may hold. It gets no more before these are
        acked, so they go at once when they are half of them."""
        with self._changed:
            if not self._started_by:
                self._started_by = os.getpid()
                for _ in range(THREADS):
                    threading.Thread(target=self._run, name="nexo-acks", daemon=True).start()
            self._waiting.append(message)
            is_urgent = 2 * len(self._waiting) >= prefetch
            if len(self._waiting) == 1 or is_urgent > self._is_urgent:
                self._is_urgent = is_urgent
                self._changed.notify_all()

    def flush(self) -> None:
        """Wait until everything is acked."""
        if self._started_by == os.getpid():
            with self._changed:
                self._is_urgent = True
                self._changed.notify_all()
                self._changed.wait_for(self._is_done, FLUSH_S)

    def stop(self) -> None:
        self.flush()
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()

    def _is_done(self) -> bool:
        return not (self._waiting or self._on_their_way)

    def _run(self) -> None:
        while taken := self._gather():
            self._ack(taken)
            with self._changed:
                self._on_their_way -= 1
                self._changed.notify_all()

    def _gather(self) -> list[nexo.Message]:
        """Those of a moment; none when it is over."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._is_stopped or (self._waiting and not self._is_gathering)
            )
            self._is_gathering = True
            self._changed.wait_for(lambda: self._is_stopped or self._is_urgent, GATHER_S)
            self._is_gathering = self._is_urgent = False
            taken = self._waiting[:ACKED_MAX]
            del self._waiting[:ACKED_MAX]
            self._on_their_way += bool(taken)
            return taken

    def _ack(self, messages: list[nexo.Message]) -> None:
        by_queue: dict[str, list[nexo.Message]] = {}
        for message in messages:
            by_queue.setdefault(message.queue, []).append(message)
        for name, together in by_queue.items():
            try:
                refused: Any = self._client.queue(name).ack_batch(together)
            except nexo.QueueNotFound:  # it was deleted, and its messages with it
                continue
            except nexo.NexoError as error:
                refused = error
            if refused:
                _log.warning(
                    "acks on queue %s were lost, these messages will be delivered again: %s",
                    name,
                    refused,
                )
