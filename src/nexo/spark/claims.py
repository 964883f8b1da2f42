"""The claims of one streaming query on a queue: the driver's side.

A consumer is a query with its checkpoint, whichever process runs it; opening its claims fences
the process before. A claimed batch falls back to the queue unless its driver is heard of, so a
thread tells of it until Spark has planned it.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from nexo.vocabulary.errors import Fenced, LeaseLost, NexoError
from nexo.wire import calls
from nexo.wire.calls import Sealed

if TYPE_CHECKING:
    from nexo.spark.link import Link
    from nexo.wire.calls import Claimed

CLAIM_TIMEOUT_MS = 30_000  # an unplanned batch of a driver that died is back after this long
_KEEP_S = CLAIM_TIMEOUT_MS / 1000 / 3
_log = logging.getLogger(__name__)


class Claims:
    """Begins with the first command: making one asks nothing."""

    def __init__(self, link: Link, queue: str, consumer: str) -> None:
        self._link = link
        self._queue = queue
        self.consumer = consumer
        self.epoch = 0
        self._acked = 0
        self._unplanned = threading.Event()  # a batch is claimed and not sealed yet
        self._ended = threading.Event()
        self._keeper: threading.Thread | None = None

    def claim(self, after: int, count: int, bytes_max: int, wait_ms: int = 0) -> Claimed:
        """The batch after `after`, which Spark has committed and which is acked by this. Asking
        again gives the same batch."""
        self._open()
        got = self._link.call(
            calls.Claim(
                name=self._queue,
                consumer=self.consumer,
                epoch=self.epoch,
                after=after,
                count=count,
                timeout_ms=CLAIM_TIMEOUT_MS,
                bytes_max=bytes_max,
                wait_ms=wait_ms,
            )
        )
        self._acked = max(self._acked, after)
        if got.number:
            self._keep()
        return got

    def seal(self, number: int, count: int, bytes_max: int) -> Sealed:
        """Spark has planned this batch: from now on only its ack, or an operator, ends it."""
        self._open()
        try:
            sealed = self._seal(number)
        except LeaseLost:
            # It lapsed while no driver was there. Nobody has read it, so it may as well have
            # other messages now; if it was acked instead, this claim is refused.
            got = self.claim(number - 1, count, bytes_max)
            _log.warning(
                "the claim of batch %d of consumer %s expired: the batch now has %d messages",
                number,
                self.consumer,
                got.messages,
            )
            sealed = self._seal(number) if got.number else empty(number)
        self._unplanned.clear()
        return sealed

    def ack(self, through: int) -> None:
        """Spark has committed every batch up to this one."""
        if through > self._acked or not self.epoch:
            self._open()
            self._link.call(calls.AckClaims(self._queue, self.consumer, self.epoch, through))
            self._acked = through

    def abandon(self) -> None:
        """Give everything back that this consumer holds, for good."""
        self._ended.set()
        self._unplanned.set()  # so that the keeper looks up
        self._link.call(calls.Release(self._queue, self.consumer))

    def _open(self) -> None:
        if not self.epoch:
            self.epoch = self._link.call(calls.OpenClaims(self._queue, self.consumer))

    def _seal(self, number: int) -> Sealed:
        wanted = calls.SealClaim(self._queue, self.consumer, self.epoch, number)
        return self._link.call(wanted)

    def _keep(self) -> None:
        self._unplanned.set()
        if self._keeper is None:
            self._keeper = threading.Thread(target=self._keep_on, name="nexo-claims", daemon=True)
            self._keeper.start()

    def _keep_on(self) -> None:
        while True:
            self._unplanned.wait()
            if self._ended.wait(_KEEP_S):
                return
            if self._unplanned.is_set():
                try:
                    self._link.call(
                        calls.KeepClaims(self._queue, self.consumer, self.epoch, CLAIM_TIMEOUT_MS)
                    )
                except Fenced:
                    return  # another driver keeps it; the next command tells Spark
                except NexoError as error:  # the next command will meet it too, and tell Spark
                    _log.warning("could not renew the claim of %s: %s", self.consumer, error)


def empty(number: int) -> Sealed:
    """A batch that was given back: there is nothing in it."""
    return Sealed(number, messages=0, payload_bytes=0, incarnation=0)
