"""What a queue handle does for each of its calls: create the queue first, and pop ahead.

A loop of `pop` and `ack` pays two round trips a message, one of them only to hear what the broker
could have said with the first. Once such a loop is known to be one (`CYCLES` times in a row, each
pop right after its ack and soon after the pop before), the ack takes the next pop along. What it
brings is not received until the user comes for it; if that does not happen within milliseconds, or
the user does anything else with the queue, it goes back as if it had never left. If the connection
ends and nobody comes back, the broker takes it back: the flag `ahead` has told it that nobody has
seen it.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any

from nexo.client import requests
from nexo.client.blocking.message import Message
from nexo.vocabulary.limits import (
    CLIENT_AHEAD_LATE_S,
    CLIENT_AHEAD_S,
    CLIENT_BUSY_S,
    CLIENT_CANCEL_S,
    CLIENT_HOT_S,
    POP_BYTES_MAX,
)
from nexo.wire import calls, commands

if TYPE_CHECKING:
    from collections.abc import Callable

    from nexo.client.blocking.connection import Connection
    from nexo.client.delivery import Delivery
    from nexo.client.operation import Operation
    from nexo.client.receipts import AckOne

CYCLES = 64


class QueueHandle:
    """The part of `Queue` that its twin does otherwise; making one does no I/O."""

    message_type: type[Message] = Message

    def __init__(self, connection: Connection, name: str, create: bool = False) -> None:
        self._connection = connection
        self._name = name
        self._to_create = create
        self._make = partial(self.message_type, connection)
        self._ahead = Ahead(connection, name)

    @property
    def name(self) -> str:
        return self._name

    def _run(self, operation: Operation) -> Any:
        if self._to_create:
            self._create()
        if self._ahead.asked is not None:
            self._ahead.cancel()
        return self._connection.run(operation)

    def _pop(
        self, wait: float, visibility_timeout: float | None, auto_received: bool
    ) -> Delivery | None:
        """One message, which may have come along with the last ack."""
        usual = visibility_timeout is None and auto_received
        delivery = self._ahead.take(usual)
        if delivery is None:
            asked = requests.pop(self._name, 1, wait, visibility_timeout, auto_received)
            delivery = self._run(asked)
        if usual and delivery is not None:
            delivery.ahead = self._ahead
        return delivery

    def _create(self) -> None:
        """The first use of a handle that creates."""
        if self._to_create:
            asked = requests.call(calls.CreateQueue(self._name, exist_ok=True))
            self._connection.run(asked)
            self._to_create = False

    def _prepare(self) -> None:
        """What has to be done before a subscription can be opened."""
        self._create()

    def _prepare_with(self, step: Callable[[], None]) -> None:
        """Something else that has to be done first."""
        step()


class Ahead:
    """Of one queue handle. A loop over several threads is no such loop: it never gets busy."""

    def __init__(self, connection: Connection, queue: str) -> None:
        self._connection = connection
        self._queue = queue
        self._cycles = 0
        self._popped_at = 0.0
        self._acked_at = 0.0
        self.asked: requests.Pop | None = None

    def take(self, usual: bool) -> Delivery | None:
        """The message that was asked for, if there is one; `usual` pops have no wishes that it
        was not asked for with."""
        now = time.monotonic()
        waited, self._acked_at = now - self._acked_at, 0.0  # one pop an ack
        cycle, self._popped_at = now - self._popped_at, now
        busy = usual and waited < CLIENT_BUSY_S and cycle < CLIENT_HOT_S
        self._cycles = self._cycles + 1 if busy else 0
        if self.asked is None:
            return None
        if not usual or waited > CLIENT_AHEAD_LATE_S:
            self.cancel()
            return None
        connection = self._connection
        with connection.lock:
            asked = self._forget()
            if asked is None:
                return None
            done = asked.done
            delivery = self._receive(asked) if done else None
        if not done:
            connection.wait_for(asked)
            with connection.lock:
                delivery = self._receive(asked)
        if delivery is not None:
            connection.written_later()
        return delivery

    def ack(self, acking: AckOne) -> Any:
        """An ack, with the next pop along if this is a busy loop."""
        connection = self._connection
        along = False
        try:
            with connection.lock:
                connection.session.submit(acking)
                if self._cycles >= CYCLES and self._queue not in connection.aheads:
                    wanted = commands.Pop(self._queue, 1, POP_BYTES_MAX, ahead=True)
                    self.asked = requests.Pop(wanted, auto_received=False)
                    connection.aheads[self._queue] = self
                    connection.session.submit(self.asked)
                    along = True
            connection.write()
            return connection.wait_for(acking)
        finally:
            self._acked_at = time.monotonic()
            if along:
                connection.keeper.come_by(self._acked_at + CLIENT_AHEAD_S)

    def cancel(self) -> None:
        """The user does something else, and that must not find the message gone: what is on its
        way is waited for and goes back first."""
        connection = self._connection
        with connection.lock:
            self._cycles = 0
            asked = self._forget()
        if asked is not None:
            try:
                connection.wait(asked, time.monotonic() + CLIENT_CANCEL_S, patient=True)
            finally:
                with connection.lock:
                    connection.session.abandon(asked)

    def expire(self, now: float) -> None:
        """Under the lock: nobody came for it."""
        if self._acked_at and now - self._acked_at > CLIENT_AHEAD_S:
            self.give_back()

    def give_back(self) -> None:
        """Under the lock, where nothing is waited for."""
        self._cycles = 0
        asked = self._forget()
        if asked is not None:
            self._connection.session.abandon(asked)

    def disown(self) -> None:
        """In the child of a fork: what was asked for is the parent's."""
        self.asked = None
        self._cycles = 0

    def _forget(self) -> requests.Pop | None:
        asked, self.asked = self.asked, None
        if asked is not None:
            self._connection.aheads.pop(self._queue, None)
        return asked

    def _receive(self, asked: requests.Pop) -> Delivery | None:
        """Under the lock: the user has come for it, unless it is the broker's again."""
        delivery: Delivery | None = asked.outcome()
        if delivery is None:
            return None
        session = self._connection.session
        now_ms = session.now_ms()
        here = session.connected and delivery.connection == session.connection
        if not here or now_ms >= delivery.deadline_ms:
            session.abandon(asked)
            return None
        delivery.receive_late(now_ms)
        session.receive_quietly(delivery)
        return delivery
