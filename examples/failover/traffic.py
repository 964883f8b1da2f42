"""Producers and consumers of the demo, and what they were told: the ledger."""

from __future__ import annotations

import threading
import time
from collections import Counter

import nexo

QUEUES = tuple(f"parcels{number}" for number in range(12))
BATCH = 10
PAUSE_S = 0.05  # of a producer between two batches
PATIENCE_S = 60.0  # of a call: a failover takes some seconds of it
VISIBILITY_S = 10.0  # what was taken and not acked comes again after this


class Ledger:
    """What was sent, confirmed, delivered and acked, by the text of a message."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.sent: set[str] = set()
        self.confirmed: set[str] = set()
        self.delivered: Counter[str] = Counter()
        self.acked: set[str] = set()
        self.ids: dict[str, set[str]] = {}  # the messages that a text arrived in
        self.came_back: set[str] = set()  # delivered again after its ack was confirmed
        self.errors: list[str] = []
        self.longest_push_s = 0.0

    @property
    def unseen(self) -> set[str]:
        """Confirmed, and not delivered yet."""
        with self.lock:
            return self.confirmed - self.delivered.keys()


class Traffic:
    """A producer and a consumer for each queue, until they are told to stop."""

    def __init__(self, address: str) -> None:
        self._address = address
        self.ledger = Ledger()
        self._no_more_pushes = threading.Event()
        self._no_more_pops = threading.Event()
        self._threads: list[threading.Thread] = []

    def begin(self) -> None:
        with nexo.connect(self._address, timeout=PATIENCE_S) as client:
            for queue in QUEUES:
                client.create_queue(queue, visibility_timeout=VISIBILITY_S, max_attempts=None)
        for queue in QUEUES:
            for work, until in (
                (self._produce, self._no_more_pushes),
                (self._consume, self._no_more_pops),
            ):
                thread = threading.Thread(target=self._work, args=(queue, work, until), daemon=True)
                thread.start()
                self._threads.append(thread)

    def stop_producers(self) -> None:
        self._no_more_pushes.set()

    def end(self) -> None:
        self._no_more_pushes.set()
        self._no_more_pops.set()
        for thread in self._threads:
            thread.join(PATIENCE_S)

    def waiting(self) -> int:
        """Messages that are still in the queues."""
        with nexo.connect(self._address, timeout=PATIENCE_S) as client:
            return sum(client.queue(queue).info().depth for queue in QUEUES)

    def _work(self, name: str, work, until: threading.Event) -> None:
        turn = 0
        with nexo.connect(self._address, timeout=PATIENCE_S) as client:
            queue = client.queue(name)
            while not until.is_set():
                turn += 1
                try:
                    work(queue, name, turn)
                except nexo.NexoError as error:  # a client sees time pass, and nothing else
                    with self.ledger.lock:
                        self.ledger.errors.append(f"{type(error).__name__}: {error}")

    def _produce(self, queue: nexo.Queue, name: str, turn: int) -> None:
        texts = [f"{name}/{turn}/{number}" for number in range(BATCH)]
        ledger = self.ledger
        with ledger.lock:
            ledger.sent.update(texts)
        began_s = time.monotonic()
        queue.push_batch([text.encode() for text in texts])
        took_s = time.monotonic() - began_s
        with ledger.lock:
            ledger.confirmed.update(texts)
            ledger.longest_push_s = max(ledger.longest_push_s, took_s)
        self._no_more_pushes.wait(PAUSE_S)

    def _consume(self, queue: nexo.Queue, _name: str, _turn: int) -> None:
        messages = queue.pop_batch(100, wait=0.5)
        ledger = self.ledger
        with ledger.lock:
            for message in messages:
                text = message.body.decode()
                ledger.delivered[text] += 1
                ledger.ids.setdefault(text, set()).add(message.id)
                if text in ledger.acked:
                    ledger.came_back.add(text)
        refused = {message_id for message_id, _ in queue.ack_batch(messages)}
        with ledger.lock:
            ledger.acked.update(
                message.body.decode() for message in messages if message.id not in refused
            )
