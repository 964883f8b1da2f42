"""Batches of messages: how one comes together, what happens to it once its verdict is known, and
how many there were."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from nexo.vocabulary.errors import NexoError
from nexo.vocabulary.limits import WORKER_LOOK_UP_S

if TYPE_CHECKING:
    from nexo.client.blocking.message import Message
    from nexo.client.blocking.queue import Queue
    from nexo.client.worker.invocation import Verdict


_log = logging.getLogger("nexo.worker")


class Intake:
    """Batches from a subscription: what is there at once, or comes within a window.

    Any number of slots share one, and take in turn. On a FIFO queue each slot has its own, with
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
            message = self._subscription.get(WORKER_LOOK_UP_S)
            if message is not None:
                batch.append(message)
        closes = time.monotonic() + self._window_s
        while len(batch) < self._batch_size and not self._stopped:
            message = self._subscription.get(max(0.0, closes - time.monotonic()))
            if message is None:
                break
            batch.append(message)
        return batch


class Settled(msgspec.Struct, frozen=True):
    """How many messages of a batch were done, failed, went back untried, or were too late: their
    lease was over, and they are somebody else's now."""

    handled: int = 0
    failed: int = 0
    returned: int = 0
    lost: int = 0


class Sorted(NamedTuple):
    """The messages of a batch by what is to be done with them."""

    done: list[Message]
    failed: dict[str, list[Message]]  # by reason
    behind: list[Message]  # of a group in which an earlier one failed


def sort(batch: list[Message], verdict: Verdict, fifo: bool) -> Sorted:
    """After the first failure of a FIFO group nothing of it counts as tried: were the later ones
    done, they would have overtaken it."""
    if verdict.error is not None:
        return Sorted([], {verdict.error: batch}, [])
    found = Sorted([], {}, [])
    broken: set[str | None] = set()
    for message in batch:
        if fifo and message.group_id in broken:
            found.behind.append(message)
        elif (reason := verdict.failed.get(message.id)) is not None:
            found.failed.setdefault(reason, []).append(message)
            broken.add(message.group_id)
        else:
            found.done.append(message)
    return found


def settle(queue: Queue, batch: list[Message], verdict: Verdict, fifo: bool) -> Settled:
    """Tell the broker. What it cannot be told now comes again, so the worker goes on."""
    found = sort(batch, verdict, fifo)
    handled = failed = returned = 0
    try:
        handled = len(found.done) - len(queue.ack_batch(found.done))
        for reason, messages in found.failed.items():
            failed += len(messages) - len(queue.nack_batch(messages, reason=reason))
            if verdict.error is None:  # else it was said where the handler was called
                facts = {"messages": len(messages), "reason": reason, "queue": queue.name}
                _log.warning("messages failed", extra=facts)
        returned = len(found.behind) - len(queue.give_back(found.behind))
    except NexoError as error:
        _log.warning(
            "the result of a batch could not be sent to the broker", extra={"reason": str(error)}
        )
    lost = len(batch) - handled - failed - returned
    if lost:
        facts = {"messages": lost, "queue": queue.name}
        _log.warning("messages were acked too late and will be delivered again", extra=facts)
    return Settled(handled, failed, returned, lost)


class Figures(msgspec.Struct, frozen=True):
    """Counts of messages, and of batches; `in_flight` are those being worked on."""

    handled: int = 0
    failed: int = 0
    returned: int = 0
    lost: int = 0
    batches: int = 0
    in_flight: int = 0


class Totals:
    """What a worker has done so far."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._figures = Figures()
        self._heard = time.monotonic()

    @property
    def figures(self) -> Figures:
        return self._figures

    def idle_s(self) -> float:
        """How long there has been nothing to do."""
        with self._lock:
            return 0.0 if self._figures.in_flight else time.monotonic() - self._heard

    def begin(self, count: int) -> None:
        with self._lock:
            now = self._figures
            self._figures = msgspec.structs.replace(now, in_flight=now.in_flight + count)

    def end(self, count: int, settled: Settled) -> None:
        with self._lock:
            now = self._figures
            self._heard = time.monotonic()
            self._figures = Figures(
                now.handled + settled.handled,
                now.failed + settled.failed,
                now.returned + settled.returned,
                now.lost + settled.lost,
                now.batches + 1,
                now.in_flight - count,
            )
