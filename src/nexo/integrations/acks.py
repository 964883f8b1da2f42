"""What workers say of messages: acks that nobody waits for, many in one frame, and the end of one
that is not to be tried again."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections import deque
from typing import TYPE_CHECKING

import nexo
from nexo.client.message import acking, refused_ids

if TYPE_CHECKING:
    from nexo.client.receipts import SettleMany

_log = logging.getLogger("nexo.integrations")
ACKED_MAX = 1_000  # together
GATHER_S = 0.05  # how long an ack waits for others: each frame is a disk write at the broker
FLUSH_S = 30.0  # for what was said so far, at the end


def bury(client: nexo.Client, message: nexo.Message, reason: str, **attributes: str) -> None:
    """Move a message to the dead letters at once, whatever attempts it has left. The copy comes
    first: of a crash in between there are two, never none."""
    template = client.queue(message.queue).info().settings.dead_letter
    dead = client.queue(template.replace("{name}", message.queue), create=True)
    attributes = {**message.attributes, **attributes, "reason": reason}
    dead.push(message.body, priority=message.priority, attributes=attributes)
    message.ack()


class Acks:
    """Acks without keeping the consumer waiting for the disk: those of a moment are one frame, and
    so one disk write. Should this process die before, the messages come again, as those do that
    were not acked.

    Whoever adds the one that makes them enough sends them all, and does not wait for the answer.
    A thread looks for those that have waited, and for answers, only while there are any."""

    def __init__(self, client: nexo.Client) -> None:
        self._connection = client._connection
        self._lock = threading.Lock()  # not held while something is sent
        self._waiting: list[nexo.Message] = []
        self._sent: deque[SettleMany] = deque()
        self._stirred = threading.Event()
        self._stopped = threading.Event()
        self._is_watched = False  # the thread looks every now and then
        self._started_by = 0

    def add(self, message: nexo.Message, prefetch: int) -> None:
        """`prefetch`: how many messages the consumer may hold. It gets no more before these are
        acked, so they go at once when they are half of them."""
        taken: list[SettleMany] = []
        with self._lock:
            self._waiting.append(message)
            if 2 * len(self._waiting) >= min(prefetch, ACKED_MAX):
                taken = self._take()
            if not self._is_watched:
                self._watch()
        self._send(taken)

    def flush(self) -> None:
        """Wait until everything is acked."""
        if self._started_by != os.getpid():
            return
        with self._lock:
            taken, ends = self._take(), time.monotonic() + FLUSH_S
        self._send(taken)
        with contextlib.suppress(nexo.NexoError):  # what was not acked comes again
            for each in list(self._sent):
                self._connection.wait(each, ends, patient=True)
        self._report()

    def stop(self) -> None:
        self.flush()
        self._stopped.set()
        self._stirred.set()

    def _take(self) -> list[SettleMany]:
        """Under the lock: what waits, by queue."""
        by_queue: dict[str, list[nexo.Message]] = {}
        for message in self._waiting:
            by_queue.setdefault(message.queue, []).append(message)
        self._waiting = []
        taken = [acking(name, together) for name, together in by_queue.items()]
        self._sent += [each for each in taken if each is not None]
        return [each for each in taken if each is not None]

    def _send(self, taken: list[SettleMany]) -> None:
        for each in taken:
            try:
                self._connection.begin(each)
            except nexo.NexoError as error:  # the client is closed
                each.fail(error)

    def _report(self) -> None:
        """Of those that were answered, what went wrong."""
        with self._lock:
            done = []
            while self._sent and self._sent[0].done:
                done.append(self._sent.popleft())
        for each in done:
            lost = refused_ids(each, each.result) if each.result else each.error
            # A queue that was deleted has taken its messages along.
            if lost and not isinstance(lost, nexo.QueueNotFound):
                _log.warning(
                    "acks on queue %s were lost, these messages will be delivered again: %s",
                    each.queue,
                    lost,
                )

    def _watch(self) -> None:
        """Under the lock: see to what was not sent, and to what was not answered."""
        self._is_watched = True
        self._stirred.set()
        if self._started_by != os.getpid():
            self._started_by = os.getpid()
            threading.Thread(target=self._run, name="nexo-acks", daemon=True).start()

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._stirred.wait()
            self._stirred.clear()
            while not self._stopped.wait(GATHER_S):
                with self._lock:
                    taken = self._take()
                    self._is_watched = bool(self._sent)
                self._send(taken)
                self._report()
                if not self._is_watched:
                    break
