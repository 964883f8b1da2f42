"""The subscriptions of a session: what each holds, what it owes, and when.

They are opened again on every connection, and closed without losing what was handed out. Credits
go back to the broker as messages are finished, many at once, so that deliveries stay large. What
waits in the prefetch has its lease extended until someone takes it, and once more then; what was
handed out is extended only with `auto_extend`. Messages that nobody finished by their deadline are
the broker's again: their credit returns too, so a careless consumer is not starved for ever.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from nexo.client.delivery import joined
from nexo.client.operation import Request, error_of
from nexo.vocabulary.errors import InvalidArgument, NotReady
from nexo.wire import commands
from nexo.wire.frame import Frame, Kind, frame

if TYPE_CHECKING:
    from collections.abc import Callable

    from nexo.client.delivery import Delivery, Range
    from nexo.client.operation import Pieces, Traffic
    from nexo.vocabulary.errors import NexoError

EXTEND_SHARE = 3  # a lease is extended when a third of it is over …
RENEW_SHARE = 50  # … and before its messages are handed out, when a fiftieth is


class SubscriptionState:
    __slots__ = (
        "auto_extend",
        "auto_received",
        "buffer",
        "consumer",
        "error",
        "held",
        "linger_ms",
        "number",
        "opening",
        "owed",
        "prefetch",
        "queue",
        "subscriptions",
        "visibility_ms",
        "wake",
    )

    def __init__(
        self,
        subscriptions: Subscriptions,
        queue: str,
        prefetch: int,
        *,
        auto_received: bool,
        auto_extend: bool,
        visibility_ms: int | None,
        wake: Callable[[], None],
        linger_ms: int = 0,
    ) -> None:
        self.subscriptions: Subscriptions = subscriptions
        self.number: int = 0  # 0: not open
        self.opening: _Opening | None = None  # the last SUBSCRIBE
        self.queue: str = queue
        self.prefetch: int = prefetch
        self.auto_received: bool = auto_received
        self.auto_extend: bool = auto_extend
        self.visibility_ms: int | None = visibility_ms
        self.linger_ms: int = linger_ms  # what comes within that time comes together
        self.wake: Callable[[], None] = wake  # something came, or it is over
        self.buffer: deque[Delivery] = deque()
        self.held: dict[int, Delivery] = {}  # by lease: what is not finished
        self.owed: int = 0
        self.error: NexoError | None = None  # why it is over

    # -- The session's side -------------------------------------------------------------------

    def head(self) -> bytes:
        return commands.pack(
            commands.Subscribe(
                self.queue,
                self.number,
                self.prefetch,
                self.subscriptions.consumer,
                self.visibility_ms,
                held=sum(delivery.left for delivery in self.held.values()),
                linger_ms=self.linger_ms,
            )
        )

    def deliver(self, delivery: Delivery) -> None:
        self.buffer.append(delivery)
        self.held[delivery.lease] = delivery
        self.wake()

    def patience_ms(self, delivery: Delivery) -> int:
        """When a new delivery is to be looked at, from now."""
        extend_ms = delivery.visibility_ms // EXTEND_SHARE
        if self.auto_received:
            return extend_ms
        return min(extend_ms, _return_ms(delivery) - delivery.sent_ms)

    def lost(self) -> None:
        """The connection is gone, and with it all that was held: the broker has it back."""
        self.buffer.clear()
        self.held.clear()
        self.owed = 0

    def end(self, error: NexoError) -> None:
        self.lost()
        self.error = error
        self.wake()

    def give_credit(self, delivery: Delivery, count: int) -> None:
        """The user has acked or nacked messages of a delivery, or given them back."""
        if self.number:
            self.finished(delivery, count)
            self.subscriptions.indebted.add(self)

    def finished(self, delivery: Delivery, count: int) -> None:
        """Messages of a delivery were acked, nacked or dropped."""
        if delivery.lease not in self.held:
            return  # of a connection that is gone, with its credits
        if not delivery.left:
            del self.held[delivery.lease]
        self.owed += count

    def credit(self, out: Pieces) -> bool:
        """Give the broker room for more once that is worth a frame, or nothing is left here.
        Returns whether nothing is owed any more."""
        if self.owed and self.number and (self.owed * 2 >= self.prefetch or not self.buffer):
            out.append(frame(Kind.CREDIT, 0, commands.pack_credit(self.number, self.owed)))
            self.owed = 0
        return not self.owed

    def tick(self, now_ms: int, out: Pieces) -> int:
        """Extend what is due, let go of what is over; returns when to look again."""
        due_ms = now_ms + 60_000
        for delivery in list(self.held.values()):
            if now_ms >= delivery.latest_ms:
                self._let_go(delivery)
            else:
                due_ms = min(due_ms, self.keep(delivery, now_ms, out))
        return due_ms

    def keep(self, delivery: Delivery, now_ms: int, out: Pieces) -> int:
        """The same for one delivery."""
        if not self.auto_received:
            return self._keep_sent(delivery, now_ms, out)
        if now_ms >= delivery.deadline_ms:
            self._release_unread(delivery)
        visibility_ms = delivery.visibility_ms
        start = 0 if self.auto_extend else delivery.handed
        if start == delivery.count or not delivery.left or not visibility_ms:
            return delivery.latest_ms
        extend_ms = delivery.deadline_ms - visibility_ms * 2 // EXTEND_SHARE
        if now_ms >= extend_ms:
            out.append(self._extension(delivery, now_ms))
            extend_ms = now_ms + visibility_ms // EXTEND_SHARE
        return min(extend_ms, delivery.latest_ms)

    def _keep_sent(self, delivery: Delivery, now_ms: int, out: Pieces) -> int:
        """Of what has no reception ack only the time to give it can be bought: by giving back what
        nobody has taken, so that it comes anew. What the user has received is extended."""
        due_ms = delivery.latest_ms
        if delivery.handed < delivery.count:
            return_ms = _return_ms(delivery)
            if now_ms >= return_ms:
                self._give_back_unread(delivery)
            else:
                due_ms = min(due_ms, return_ms)
        visibility_ms = delivery.visibility_ms
        if self.auto_extend and visibility_ms:
            due_ms = min(due_ms, now_ms + visibility_ms // EXTEND_SHARE)
            latest_ms = now_ms + visibility_ms * 2 // EXTEND_SHARE
            ranges = [
                (delivery.lease, seq, seq + 1)
                for seq, deadline_ms in (delivery.moved or {}).items()
                if deadline_ms <= latest_ms and not delivery.is_finished(seq)
            ]
            if ranges:
                head = commands.Extend(self.queue, joined(sorted(ranges)), visibility_ms)
                out.append(frame(Kind.EXTEND, 0, commands.pack(head)))
                for _, seq, end in ranges:
                    delivery.move_deadline(seq, end, now_ms + visibility_ms)
        return due_ms

    def _extension(self, delivery: Delivery, now_ms: int) -> bytes:
        """Of what waits here, and with `auto_extend` of what is worked on."""
        start = 0 if self.auto_extend else delivery.handed
        if start == delivery.handed:
            ranges = delivery.ranges(start, delivery.count)
        else:
            ranges = delivery.unfinished(start, delivery.count)
        delivery.renew(start, now_ms + delivery.visibility_ms)
        head = commands.Extend(self.queue, ranges, delivery.visibility_ms)
        return frame(Kind.EXTEND, 0, commands.pack(head))

    def _let_go(self, delivery: Delivery) -> None:
        if delivery in self.buffer:
            self.buffer.remove(delivery)
        self.finished(delivery, delivery.finish_all())

    def _release_unread(self, delivery: Delivery) -> list[Range]:
        """What was not handed out will not be; its room is free again."""
        ranges = delivery.ranges(delivery.handed, delivery.count)
        if ranges:
            self.buffer.remove(delivery)
            delivery.handed = delivery.count
            self.finished(delivery, sum(delivery.finish(first, end) for _, first, end in ranges))
        return ranges

    def _give_back_unread(self, delivery: Delivery) -> None:
        ranges = self._release_unread(delivery)
        self.subscriptions.traffic.give_back_ranges(self.queue, ranges)

    # -- The consumer's side ------------------------------------------------------------------

    def take(self, count_max: int) -> tuple[Delivery, int, int] | None:
        """Messages to hand out: of which delivery, from where to where. None: nothing is here.
        What this leaves to be said waits quietly for the next output."""
        buffer = self.buffer
        while buffer:
            delivery = buffer[0]
            now_ms, visibility_ms = self.subscriptions.traffic.now_ms(), delivery.visibility_ms
            fresh_ms = delivery.deadline_ms - visibility_ms + visibility_ms // RENEW_SHARE
            fresh = self.auto_received and now_ms <= fresh_ms
            if not fresh and not self._has_time(delivery, now_ms):
                continue
            start = delivery.handed
            stop = start + count_max
            if stop > delivery.count:
                stop = delivery.count
            delivery.handed = stop
            if stop == delivery.count:
                buffer.popleft()
            return delivery, start, stop
        return None

    def _has_time(self, delivery: Delivery, now_ms: int) -> bool:
        """Whether what is handed out now can be worked on. It has all of its visibility timeout
        then: the lease of what has waited here is renewed first, many at once."""
        if not self.auto_received:
            if now_ms < _return_ms(delivery):
                return True
            self._give_back_unread(delivery)
        elif now_ms < delivery.deadline_ms:
            self.subscriptions.traffic.send_quietly(self._extension(delivery, now_ms))
            return True
        else:
            self._release_unread(delivery)  # this process slept, and the broker took it back
        self.subscriptions.indebted.add(self)
        self.subscriptions.traffic.has_quiet = True
        return False

    def leave(self) -> tuple[list[Range], list[Delivery]]:
        """Nothing is held here any more. Returns what was never handed out, and what is to be
        extended as long as it is worked on."""
        unread = [each for delivery in list(self.buffer) for each in self._release_unread(delivery)]
        kept = list(self.held.values()) if self.auto_extend else []
        self.lost()
        return unread, kept


class Subscriptions:
    def __init__(self, traffic: Traffic, consumer: str) -> None:
        self.traffic: Traffic = traffic
        self.consumer: str = consumer  # how the client calls itself
        self._open: dict[int, SubscriptionState] = {}
        self._leaving: dict[int, str] = {}  # those being closed: their queues
        # Of those that were closed: what is extended as long as it is worked on.
        self._kept: list[tuple[SubscriptionState, Delivery]] = []
        self._parted: set[int] = set()  # those that hold what they have whatever the connection
        self._last_number = 0
        self.indebted: set[SubscriptionState] = set()  # those with credits to give

    def __len__(self) -> int:
        """What there has to be a connection for."""
        return len(self._open) + len(self._kept)

    # -- The consumer's side ------------------------------------------------------------------

    def open(self, state: SubscriptionState) -> None:
        traffic = self.traffic
        if traffic.closed is not None:
            raise traffic.closed
        self._last_number += 1
        state.subscriptions = self  # in the child of a fork they are others
        state.number = self._last_number
        state.error = None
        self._open[state.number] = state
        if traffic.connected:
            self._subscribe(state)

    def close(self, state: SubscriptionState) -> None:
        """No more deliveries; what was not handed out goes back at once. What was stays with the
        consumer, and is extended as before."""
        number, state.number = state.number, 0
        if self._open.pop(number, None) is None:
            return
        self.indebted.discard(state)
        unread, kept = state.leave()
        if self.traffic.connected:
            self._kept += [(state, delivery) for delivery in kept]
            self._leaving[number] = state.queue
            head = commands.pack_unsubscribe(number, keep=True)
            leave = Request(Kind.UNSUBSCRIBE, head, lambda _: self._leaving.pop(number, None))
            leave.abandoned = True  # on the next connection there is nothing to leave
            self.traffic.send(frame(Kind.UNSUBSCRIBE, self.traffic.expect(leave), head))
            self.traffic.give_back_ranges(state.queue, unread)

    def fail(self, error: NexoError) -> None:
        for state in list(self._open.values()):
            self.close(state)
            state.end(error)

    def disown(self) -> None:
        """In the child of a fork: all of these are the parent's."""
        error = InvalidArgument(
            "this subscription belongs to the parent process", "subscribe after the fork"
        )
        for state in self._open.values():
            state.number = 0
            state.end(error)
        self._open.clear()
        self._kept.clear()

    # -- The session's side -------------------------------------------------------------------

    def connect(self) -> None:
        """A new connection: subscribe to everything again."""
        self._leaving.clear()
        for state in self._open.values():
            self._subscribe(state)

    def lose(self) -> None:
        self.indebted.clear()
        self._parted.clear()
        for state in self._open.values():
            state.lost()

    def leave(self, out: Pieces) -> None:
        """Before a planned change of the connection: no more deliveries on this one. What came
        stays here; its leases are the client's own from then on, and do not end with it."""
        for number in self._open:
            head = commands.pack_unsubscribe(number, keep=True)
            out.append(frame(Kind.UNSUBSCRIBE, self.traffic.expect(_Parting(self, number)), head))

    def parted(self, number: int) -> None:
        self._parted.add(number)

    def move(self, left: set[int]) -> None:
        """The change itself: those that were `left` go on with what they hold. Where the broker
        has not said so in time, it takes back what they held."""
        self._leaving.clear()
        parted, self._parted = self._parted, set()
        for number in left & self._open.keys():
            state = self._open[number]
            if number not in parted:
                state.lost()
            state.owed = 0
            self.indebted.discard(state)
            self._subscribe(state)

    @property
    def numbers(self) -> set[int]:
        return set(self._open)

    def deliver(self, arrived: Frame) -> None:
        traffic = self.traffic
        number = commands.unpack_delivery(arrived.head).subscription
        state = self._open.get(number)
        if state is None:
            queue = self._leaving.get(number)
            if queue is not None:  # it was on its way when the subscription was left
                late = traffic.delivery(queue, arrived, auto_received=False, visibility_ms=None)
                if late is not None:
                    traffic.give_back(late)
            return
        delivery = traffic.delivery(
            state.queue,
            arrived,
            auto_received=state.auto_received,
            visibility_ms=state.visibility_ms,
            holder=state,
        )
        if delivery is not None:
            if state.auto_received:
                traffic.receive_quietly(delivery)
            state.deliver(delivery)
            traffic.hurry(state.patience_ms(delivery) / 1000)

    def ended(self, arrived: Frame) -> None:
        """The broker has ended one: its queue was deleted."""
        ended: commands.Ended = commands.unpack(arrived.head, commands.Ended)
        error = error_of(ended.refusal)
        state = self._open.get(ended.subscription)
        if state is None:
            return
        if isinstance(error, NotReady):  # it goes on as soon as the broker does
            state.opening = _Opening(state)
            self.traffic.postpone(state.opening)
        else:
            self.end(state, error)

    def end(self, state: SubscriptionState, error: NexoError) -> None:
        number, state.number = state.number, 0
        self._open.pop(number, None)
        self.indebted.discard(state)
        state.end(error)

    def credit(self, out: Pieces) -> None:
        self.indebted = {each for each in self.indebted if not each.credit(out)}

    def tick(self, now_ms: int, out: Pieces) -> int:
        """Extend what is due, let go of what is over; returns when to look again."""
        due_ms = now_ms + 60_000
        for state in self._open.values():
            due_ms = min(due_ms, state.tick(now_ms, out))
            if state.owed:
                self.indebted.add(state)
        if self._kept:
            self._kept = [
                (state, each) for state, each in self._kept if each.left and now_ms < each.latest_ms
            ]
            for state, delivery in self._kept:
                due_ms = min(due_ms, state.keep(delivery, now_ms, out))
        return due_ms

    def _subscribe(self, state: SubscriptionState) -> None:
        opening = state.opening = _Opening(state)
        head = state.head()
        self.traffic.send(frame(Kind.SUBSCRIBE, self.traffic.expect(opening), head))

    def subscribe_again(self, opening: _Opening) -> None:
        """The broker was not ready for it. On the next connection everything is opened again; on
        this one nobody else would."""
        state = opening.state
        is_last = state.opening is opening and state.number in self._open
        if is_last and self.traffic.connected and not self.traffic.is_leaving:
            self._subscribe(state)


class _Parting(Request):
    """UNSUBSCRIBE of one that goes on with another connection."""

    __slots__ = ()

    def __init__(self, subscriptions: Subscriptions, number: int) -> None:
        super().__init__(Kind.UNSUBSCRIBE, b"", lambda _: subscriptions.parted(number))
        self.abandoned = True


class _Opening(Request):
    """SUBSCRIBE."""

    __slots__ = ("state",)

    def __init__(self, state: SubscriptionState) -> None:
        super().__init__(Kind.SUBSCRIBE, b"", lambda _: None)
        self.state: SubscriptionState = state

    def refused(self, traffic: Traffic, error: NexoError) -> None:
        self.state.subscriptions.end(self.state, error)

    def lost(self, traffic: Traffic) -> None:
        self.state.subscriptions.subscribe_again(self)


def _return_ms(delivery: Delivery) -> int:
    """When what nobody has taken goes back, for want of a reception ack."""
    return delivery.deadline_ms - (delivery.deadline_ms - delivery.sent_ms) // EXTEND_SHARE
