"""Deliveries as frames, and the subscriptions of one connection: deliveries go out as they come,
within the prefetch."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from nexo.vocabulary.errors import InvalidArgument
from nexo.vocabulary.limits import (
    LINGER_AFTER,
    LINGER_AFTER_MAX,
    PREFETCH_MAX,
    RPC_DELIVERY_BYTES_MAX,
    SUBSCRIPTIONS_MAX,
)
from nexo.wire import commands
from nexo.wire.columns import WirePart, encode_parts
from nexo.wire.frame import Kind, frame, frame_parts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nexo.doors.rpc_tcp.connection import Connection
    from nexo.engine.queue_actor import QueueActor
    from nexo.engine.types import Delivery, Part
    from nexo.engine.waiting_room import Waiter
    from nexo.vocabulary.errors import NexoError


class Subscriptions:
    def __init__(self) -> None:
        self._open: dict[int, tuple[QueueActor, Waiter]] = {}
        self._prefetch: dict[int, int] = {}  # what each of them asked for
        self._paused = False

    def open(self, connection: Connection, wanted: commands.Subscribe) -> None:
        """Only what is open refers to the connection, so that one that has gone is free at once."""
        if wanted.subscription in self._open:
            raise InvalidArgument(f"subscription {wanted.subscription} is already open")
        if len(self._open) >= SUBSCRIPTIONS_MAX:
            raise InvalidArgument(f"a connection has at most {SUBSCRIPTIONS_MAX} subscriptions")
        actor = connection.engine.queue(wanted.queue)
        number = wanted.subscription
        lingering = Lingering(wanted.linger_ms) if wanted.linger_ms else None

        def deliver(delivery: Delivery) -> None:
            connection.send(delivery_frame(actor, delivery, 0, number))
            if lingering is not None:
                self._linger(number, lingering, delivery.count)

        waiter = actor.subscribe(
            max(0, wanted.prefetch - wanted.held),
            deliver,
            lambda error: self._ended(connection, number, error),
            consumer=wanted.consumer,
            visibility_ms=wanted.visibility_ms,
            one_ack=wanted.one_ack,
        )
        waiter.bytes_max = RPC_DELIVERY_BYTES_MAX
        if self._paused:
            actor.room.rest(waiter)
        self._open[number] = (actor, waiter)
        self._prefetch[number] = wanted.prefetch

    def held(self) -> Iterator[tuple[str, int, int, int]]:
        """The queue of each subscription, its prefetch, how many messages it holds, and how long
        it has held the oldest of them."""
        for number, (actor, waiter) in self._open.items():
            spans = [span for lease in waiter.leases for span in actor.spans_on(lease)]
            unacked = sum(span.end - span.first for span in spans)
            oldest_ms = min([span.delivered_ms for span in spans if span.delivered_ms], default=0)
            held_ms = actor.now_ms() - oldest_ms if oldest_ms else 0
            yield actor.name, self._prefetch.get(number, 0), unacked, held_ms

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
        self._prefetch.pop(number, None)
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

    def _linger(self, number: int, lingering: Lingering, count: int) -> None:
        """It has got so many messages: what comes in the next moment may go to it together. Who
        has taken all that it has room for is about to ask for more, and is not kept waiting."""
        actor, waiter = self._open[number]
        if waiter.free and (pause_ms := lingering.pause_ms(count, actor.now_ms())):
            actor.room.rest(waiter)
            loop = asyncio.get_running_loop()
            loop.call_later(pause_ms / 1000, self._go_on, number, waiter)

    def _go_on(self, number: int, waiter: Waiter) -> None:
        found = self._open.get(number)
        if found is not None and found[1] is waiter and not self._paused:
            actor = found[0]
            actor.room.wake(waiter)
            actor.serve()

    def close(self) -> None:
        for number in list(self._open):
            self.close_one(number)

    def _ended(self, connection: Connection, number: int, error: NexoError) -> None:
        self._open.pop(number, None)
        refusal = commands.Refusal(error.code, error.message, error.hint, error.retryable)
        head = commands.pack(commands.Ended(number, refusal))
        connection.send([frame(Kind.ENDED, 0, head)])


class Lingering:
    """Whether to gather what comes for one subscription that asked for it. A delivery costs the
    broker and the client as much as several messages do, but each message that waits is late. So it
    begins after many deliveries in close succession, goes on while it brings several messages
    together, and is tried less often each time it does not: of one who sends the next message
    when the last one is done, every pause would be lost time."""

    __slots__ = ("_has_paused", "_in_succession", "_last_ms", "_linger_ms", "_needed")

    def __init__(self, linger_ms: int) -> None:
        self._linger_ms = linger_ms
        self._last_ms = 0
        self._in_succession = 0
        self._needed = LINGER_AFTER
        self._has_paused = False  # before the delivery that comes next

    def pause_ms(self, count: int, now_ms: int) -> int:
        """How long to wait after a delivery of so many messages."""
        if self._has_paused:
            self._has_paused = count > 1
            self._needed = LINGER_AFTER if count > 1 else min(2 * self._needed, LINGER_AFTER_MAX)
            self._in_succession = 0
        else:
            is_close = now_ms - self._last_ms <= self._linger_ms
            self._in_succession = self._in_succession + 1 if is_close else 0
            self._has_paused = self._in_succession >= self._needed
        self._last_ms = now_ms
        return self._linger_ms if self._has_paused else 0


def delivery_frame(
    actor: QueueActor, delivery: Delivery, correlation: int, subscription: int = 0
) -> list[bytes | memoryview]:
    """The reply to a pop, or with a subscription what it gets."""
    head = commands.pack_delivery(
        commands.DeliveryHead(
            delivery.lease,
            delivery.deadline_ms,
            delivery.state,
            actor.queue.incarnation,
            subscription,
            actor.now_ms(),
            actor.queue.settings.visibility_timeout_ms,
        )
    )
    kind = Kind.DELIVER if subscription else Kind.OK
    return frame_parts(kind, correlation, head, encode_parts(wire_parts(delivery.parts)))


def wire_parts(parts: list[Part]) -> list[WirePart]:
    return [
        WirePart(
            part.first,
            part.created_ms,
            part.history.first_delivered_ms,
            part.history.attempts,
            part.batch(),
        )
        for part in parts
    ]
