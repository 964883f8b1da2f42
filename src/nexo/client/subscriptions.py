"""The subscriptions of a session: opened again on every connection, closed without losing what
was handed out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nexo.client.operation import Request
from nexo.client.refusals import error_of
from nexo.vocabulary.errors import InvalidArgument, NotReady
from nexo.wire import commands
from nexo.wire.frame import Frame, Kind, frame

if TYPE_CHECKING:
    from nexo.client.delivery import Delivery
    from nexo.client.operation import Pieces
    from nexo.client.session import Session
    from nexo.client.subscribed import Subscribed
    from nexo.vocabulary.errors import NexoError


class Subscriptions:
    def __init__(self, session: Session) -> None:
        self._session = session
        self._open: dict[int, Subscribed] = {}
        self._leaving: dict[int, str] = {}  # those being closed: their queues
        self._kept: list[Delivery] = []  # of those that were closed: extended while worked on
        self._last_number = 0
        self.indebted: set[Subscribed] = set()  # those with credits to give

    def __len__(self) -> int:
        """What there has to be a connection for."""
        return len(self._open) + len(self._kept)

    # -- The consumer's side ------------------------------------------------------------------

    def open(self, subscribed: Subscribed) -> None:
        session = self._session
        if session.closed is not None:
            raise session.closed
        self._last_number += 1
        subscribed.number = self._last_number
        subscribed.error = None
        self._open[subscribed.number] = subscribed
        if session.connected:
            self._subscribe(subscribed)

    def close(self, subscribed: Subscribed) -> None:
        """No more deliveries; what was not handed out goes back at once. What was stays with the
        consumer, and is extended as before."""
        number, subscribed.number = subscribed.number, 0
        if self._open.pop(number, None) is None:
            return
        self.indebted.discard(subscribed)
        unread, kept = subscribed.leave()
        if self._session.connected:
            self._kept += kept
            self._leaving[number] = subscribed.queue
            head = commands.pack_unsubscribe(number, keep=True)
            leave = Request(Kind.UNSUBSCRIBE, head, lambda _: self._leaving.pop(number, None))
            leave.abandoned = True  # on the next connection there is nothing to leave
            self._session.send(frame(Kind.UNSUBSCRIBE, self._session.expect(leave), head))
            self._session.give_back_ranges(subscribed.queue, unread)

    def finished(self, subscribed: Subscribed) -> None:
        """One of them has finished messages."""
        self.indebted.add(subscribed)

    def fail(self, error: NexoError) -> None:
        for subscribed in list(self._open.values()):
            self.close(subscribed)
            subscribed.end(error)

    def disown(self) -> None:
        """In the child of a fork: all of these are the parent's."""
        error = InvalidArgument(
            "this subscription is of the parent process", "subscribe after the fork"
        )
        for subscribed in self._open.values():
            subscribed.number = 0
            subscribed.end(error)
        self._open.clear()
        self._kept.clear()

    # -- The session's side -------------------------------------------------------------------

    def connect(self) -> None:
        """A new connection: subscribe to everything again."""
        self._leaving.clear()
        for subscribed in self._open.values():
            self._subscribe(subscribed)

    def lose(self) -> None:
        self.indebted.clear()
        for subscribed in self._open.values():
            subscribed.lost()

    def deliver(self, arrived: Frame) -> None:
        session = self._session
        number = commands.unpack_delivery(arrived.head).subscription
        subscribed = self._open.get(number)
        if subscribed is None:
            queue = self._leaving.get(number)
            if queue is not None:  # it was on its way when the subscription was left
                late = session.delivery(queue, arrived, auto_received=False, visibility_ms=None)
                if late is not None:
                    session.give_back(late)
            return
        delivery = session.delivery(
            subscribed.queue,
            arrived,
            auto_received=subscribed.auto_received,
            visibility_ms=subscribed.visibility_ms,
            subscribed=subscribed,
        )
        if delivery is not None:
            if subscribed.auto_received:
                session.receive_quietly(delivery)
            subscribed.deliver(delivery)
            session.hurry(subscribed.patience_ms(delivery) / 1000)

    def ended(self, arrived: Frame) -> None:
        """The broker has ended one: its queue was deleted."""
        ended: commands.Ended = commands.unpack(arrived.head, commands.Ended)
        error = error_of(ended.refusal)
        subscribed = self._open.get(ended.subscription)
        # When the broker only stops, the subscription goes on once it is back.
        if subscribed is not None and not isinstance(error, NotReady):
            self.end(subscribed, error)

    def end(self, subscribed: Subscribed, error: NexoError) -> None:
        number, subscribed.number = subscribed.number, 0
        self._open.pop(number, None)
        self.indebted.discard(subscribed)
        subscribed.end(error)

    def credit(self, out: Pieces) -> None:
        self.indebted = {each for each in self.indebted if not each.credit(out)}

    def tick(self, now_ms: int, out: Pieces) -> int:
        """Extend what is due, let go of what is over; returns when to look again."""
        due_ms = now_ms + 60_000
        for subscribed in self._open.values():
            due_ms = min(due_ms, subscribed.tick(now_ms, out))
            if subscribed.owed:
                self.indebted.add(subscribed)
        if self._kept:
            self._kept = [each for each in self._kept if each.left and now_ms < each.latest_ms]
            for delivery in self._kept:
                assert delivery.subscribed is not None
                due_ms = min(due_ms, delivery.subscribed.keep(delivery, now_ms, out))
        return due_ms

    def _subscribe(self, subscribed: Subscribed) -> None:
        opening = _Opening(subscribed)
        head = subscribed.head()
        self._session.send(frame(Kind.SUBSCRIBE, self._session.expect(opening), head))


class _Opening(Request):
    """SUBSCRIBE: every open subscription is opened again on the next connection anyway."""

    __slots__ = ("_subscribed",)

    def __init__(self, subscribed: Subscribed) -> None:
        super().__init__(Kind.SUBSCRIBE, b"", lambda _: None)
        self._subscribed = subscribed
        self.abandoned = True

    def refused(self, session: Session, error: NexoError) -> None:
        session.subscriptions.end(self._subscribed, error)
