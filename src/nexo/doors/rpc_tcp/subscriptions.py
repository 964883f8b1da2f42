"""The subscriptions of one connection: deliveries go out as they come, within the prefetch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nexo.doors.rpc_tcp.deliveries import delivery_frame
from nexo.vocabulary.errors import InvalidArgument
from nexo.wire import commands
from nexo.wire.frame import Kind, frame

if TYPE_CHECKING:
    from nexo.doors.rpc_tcp.connection import Connection
    from nexo.engine.queue_actor import QueueActor
    from nexo.engine.types import Delivery, Waiter
    from nexo.vocabulary.errors import NexoError

SUBSCRIPTIONS_MAX = 1_000  # of one connection
PREFETCH_MAX = 100_000
DELIVERY_BYTES_MAX = 4 * 1024 * 1024  # then a slow client is noticed before the next


class Subscriptions:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._open: dict[int, tuple[QueueActor, Waiter]] = {}
        self._paused = False

    def open(self, wanted: commands.Subscribe) -> None:
        if not 0 < wanted.prefetch <= PREFETCH_MAX:
            raise InvalidArgument(f"prefetch is {wanted.prefetch}, allowed is 1 to {PREFETCH_MAX}")
        if wanted.subscription in self._open:
            raise InvalidArgument(f"subscription {wanted.subscription} is open already")
        if len(self._open) >= SUBSCRIPTIONS_MAX:
            raise InvalidArgument(f"a connection has at most {SUBSCRIPTIONS_MAX} subscriptions")
        actor = self._connection.engine.queue(wanted.queue)
        number = wanted.subscription
        waiter = actor.subscribe(
            wanted.prefetch,
            lambda delivery: self._deliver(number, actor, delivery),
            lambda error: self._ended(number, error),
            consumer=wanted.consumer,
            visibility_ms=wanted.visibility_ms,
            one_ack=wanted.one_ack,
        )
        waiter.bytes_max = DELIVERY_BYTES_MAX
        self._open[number] = (actor, waiter)

    def grant(self, credit: commands.Credit) -> None:
        """The client has room for more."""
        found = self._open.get(credit.subscription)
        if found is not None:  # else it was closed while the credit was on its way
            actor, waiter = found
            if waiter.free + credit.count > PREFETCH_MAX:
                raise InvalidArgument(f"a subscription has at most {PREFETCH_MAX} credits")
            actor.grant(waiter, credit.count)

    def close_one(self, number: int, keep: bool = False) -> None:
        """No more deliveries. With `keep` the client still works on what it has, and gives back
        the rest by itself."""
        found = self._open.pop(number, None)
        if found is not None:
            actor, waiter = found
            if keep:
                waiter.leases.clear()
            actor.unsubscribe(waiter)

    def pause(self) -> None:
        """The client does not read: it takes no part until it does."""
        self._paused = True
        for actor, waiter in self._open.values():
            actor.room.rest(waiter)

    def resume(self) -> None:
        self._paused = False
        for actor, waiter in self._open.values():
            actor.room.wake(waiter)
            actor.serve()

    def close(self) -> None:
        for number in list(self._open):
            self.close_one(number)

    def _deliver(self, number: int, actor: QueueActor, delivery: Delivery) -> None:
        self._connection.send(delivery_frame(actor, delivery, 0, number))

    def _ended(self, number: int, error: NexoError) -> None:
        self._open.pop(number, None)
        refusal = commands.Refusal(error.code, error.message, error.hint, error.retryable)
        head = commands.pack(commands.Ended(number, refusal))
        self._connection.send([frame(Kind.ENDED, 0, head)])
