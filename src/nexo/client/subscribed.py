"""The shared half of a subscription: what it holds, what it owes, and when.

Credits go back to the broker as messages are finished, many at once, so that deliveries stay
large. What waits in the prefetch has its lease extended until someone takes it; what was handed
out is extended only with `auto_extend`. Messages that nobody finished by their deadline are the
broker's again: their credit returns too, so a careless consumer is not starved for ever.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from nexo.wire import commands
from nexo.wire.frame import Kind, frame

if TYPE_CHECKING:
    from collections.abc import Callable

    from nexo.client.delivery import Delivery, Range
    from nexo.client.operation import Pieces
    from nexo.client.session import Session
    from nexo.vocabulary.errors import NexoError

EXTEND_SHARE = 3  # a lease is extended when a third of it is over


class Subscribed:
    __slots__ = (
        "auto_extend",
        "auto_received",
        "buffer",
        "consumer",
        "error",
        "held",
        "number",
        "owed",
        "prefetch",
        "queue",
        "session",
        "visibility_ms",
        "wake",
    )

    def __init__(
        self,
        session: Session,
        queue: str,
        prefetch: int,
        *,
        auto_received: bool,
        auto_extend: bool,
        visibility_ms: int | None,
        wake: Callable[[], None],
    ) -> None:
        self.session: Session = session
        self.number: int = 0  # 0: not open
        self.queue: str = queue
        self.prefetch: int = prefetch
        self.auto_received: bool = auto_received
        self.auto_extend: bool = auto_extend
        self.visibility_ms: int | None = visibility_ms
        self.wake: Callable[[], None] = wake  # something came, or it is over
        self.buffer: deque[Delivery] = deque()
        self.held: dict[int, Delivery] = {}  # by lease: what is not finished
        self.owed: int = 0
        self.error: NexoError | None = None  # why it is over

    # -- The session's side -------------------------------------------------------------------

    def head(self) -> bytes:
        return commands.pack(
            commands.Subscribe(
                self.queue, self.number, self.prefetch, self.session.name, self.visibility_ms
            )
        )

    def deliver(self, delivery: Delivery) -> None:
        self.buffer.append(delivery)
        self.held[delivery.lease] = delivery
        self.wake()

    def lost(self) -> None:
        """The connection is gone, and with it all that was held: the broker has it back."""
        self.buffer.clear()
        self.held.clear()
        self.owed = 0

    def end(self, error: NexoError) -> None:
        self.lost()
        self.error = error
        self.wake()

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
                continue
            start = 0 if self.auto_extend else delivery.handed
            if start < delivery.count and delivery.visibility_ms and self.auto_received:
                extend_ms = delivery.deadline_ms - delivery.visibility_ms * 2 // EXTEND_SHARE
                if now_ms >= extend_ms:
                    self._extend(delivery, start, now_ms, out)
                    extend_ms = now_ms + delivery.visibility_ms // EXTEND_SHARE
                due_ms = min(due_ms, extend_ms)
            due_ms = min(due_ms, delivery.latest_ms)
        return due_ms

    def _extend(self, delivery: Delivery, start: int, now_ms: int, out: Pieces) -> None:
        ranges = delivery.unfinished(start, delivery.count)
        delivery.deadline_ms = now_ms + delivery.visibility_ms
        delivery.latest_ms = max(delivery.latest_ms, delivery.deadline_ms)
        if ranges:
            head = commands.Extend(self.queue, ranges, delivery.visibility_ms)
            out.append(frame(Kind.EXTEND, 0, commands.pack(head)))

    def _let_go(self, delivery: Delivery) -> None:
        if delivery in self.buffer:
            self.buffer.remove(delivery)
        self.finished(delivery, delivery.finish_all())

    # -- The consumer's side ------------------------------------------------------------------

    def take(self, count_max: int) -> tuple[Delivery, int, int] | None:
        """Messages to hand out: of which delivery, from where to where. None: nothing is here."""
        buffer = self.buffer
        while buffer:
            delivery = buffer[0]
            start = delivery.handed
            if not start and self.session.now_ms() >= delivery.latest_ms:
                self._let_go(delivery)  # this process slept, and the broker took it back
                continue
            stop = start + count_max
            if stop > delivery.count:
                stop = delivery.count
            delivery.handed = stop
            if stop == delivery.count:
                buffer.popleft()
            return delivery, start, stop
        return None

    def unread(self) -> list[Range]:
        """What was prefetched and never handed out; it is not here any more then."""
        ranges: list[Range] = []
        for delivery in self.buffer:
            ranges += delivery.ranges(delivery.handed, delivery.count)
        self.buffer.clear()
        self.held.clear()
        self.owed = 0
        return ranges
