"""Acks and receptions on their way: what waits for one queue when the client writes is one frame.

An ack that is sent again after a broken connection may find its delivery gone because the first
try had arrived. Such a `stale_receipt` counts as done if nothing else can have ended the delivery:
it came from a pop (the broker takes back what a subscription holds when its connection ends, and
a while later what was popped ahead), the broker is the same run that gave it out and was ready all
the time, and its deadline had not passed. In every other case the caller is told, and the message
may come again.
"""

from __future__ import annotations

from bisect import bisect_right
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import msgspec

from nexo.client.delivery import joined
from nexo.client.operation import Exchange, Operation, error_with
from nexo.vocabulary import limits
from nexo.vocabulary.errors import StaleReceipt, WrongState
from nexo.vocabulary.limits import CLIENT_RANGES_MAX
from nexo.wire import commands
from nexo.wire.frame import Frame, Kind, ProtocolError, frame

if TYPE_CHECKING:
    from collections.abc import Callable

    from nexo.client.delivery import Delivery, Range
    from nexo.client.operation import Pieces, Traffic
    from nexo.vocabulary.errors import NexoError

_NOTHING_REFUSED = b"\x90"
_decode_refused = msgspec.msgpack.Decoder(list[tuple[int, int, int, str]]).decode

Refused = list[tuple[int, int, int, str]]  # lease, first, end, code

_SAID = {
    StaleReceipt.code: (
        "this delivery is outdated: it was acked, timed out, or its connection broke",
        "do nothing: if the message is still there it is delivered again",
    ),
    WrongState.code: (
        "the message is not in the state for this",
        "call received() first, or pop with auto_received",
    ),
}


class Settling(Operation):
    """Something said of messages of one queue: ACK, RECEIVED, NACK, EXTEND. The result is what was
    refused of it, as ranges with their codes."""

    __slots__ = ("kind", "queue", "ranges", "tries")

    kind: Kind
    queue: str
    ranges: list[Range]
    tries: int

    def enter(self, lane: ReceiptLane) -> None:
        """Wait there for the next output."""
        raise NotImplementedError

    def delivery_of(self, lease: int) -> Delivery:
        raise NotImplementedError

    def conclude(self, traffic: Traffic, refused: Refused) -> None:
        if self.tries > 1 and refused:
            refused = [each for each in refused if not self._was_first_try(traffic, each)]
        self.finish(refused)

    def _was_first_try(self, traffic: Traffic, refused: tuple[int, int, int, str]) -> bool:
        delivery, now_ms = self.delivery_of(refused[0]), traffic.now_ms()
        return (
            refused[3] == StaleReceipt.code
            and delivery.holder is None
            and delivery.instance == traffic.instance
            and now_ms < delivery.deadline_of(refused[1])
            and (not delivery.is_ahead or now_ms < delivery.sent_ms + limits.AHEAD_KEPT_MS)
        )


class SettleMany(Settling):
    """Of any number of messages."""

    __slots__ = ("_deliveries",)

    def __init__(
        self, kind: Kind, queue: str, ranges: list[Range], deliveries: dict[int, Delivery]
    ) -> None:
        super().__init__()
        self.kind = kind
        self.queue = queue
        self.ranges = ranges
        self._deliveries = deliveries  # by lease
        self.tries = 0

    def delivery_of(self, lease: int) -> Delivery:
        return self._deliveries[lease]

    def enter(self, lane: ReceiptLane) -> None:
        if self.kind is Kind.ACK:
            lane.acks.append(self)
            self.release()
        else:
            lane.receptions.append(self)

    def release(self) -> None:
        """The messages are done with: a subscription has room for more."""
        for lease, first, end in self.ranges:
            delivery = self._deliveries[lease]
            delivery.give_credit(delivery.finish(first, end))


class AckOne(Settling):
    """The ack of one message, by the shortest way: most acks are this."""

    __slots__ = ("_seq", "delivery")

    def __init__(self, delivery: Delivery, seq: int) -> None:
        self.done: bool = False
        self.abandoned: bool = False
        self.result: Any = None
        self.error: NexoError | None = None
        self.notify: Callable[[Operation], None] | None = None
        self.kind: Kind = Kind.ACK
        self.queue: str = delivery.queue
        self.delivery: Delivery = delivery
        self._seq = seq
        self.ranges: list[Range] = [(delivery.lease, seq, seq + 1)]
        self.tries = 0

    def delivery_of(self, lease: int) -> Delivery:
        return self.delivery

    def enter(self, lane: ReceiptLane) -> None:
        lane.acks.append(self)
        delivery = self.delivery
        if delivery.finish_one(self._seq) and delivery.holder is not None:
            delivery.holder.give_credit(delivery, 1)


class SettleAlone(SettleMany, Exchange):
    """A frame of its own: NACK and EXTEND say more than which messages, and GIVE_BACK is rare."""

    __slots__ = ("head", "receipts")

    receipts: Receipts  # where it waits

    def __init__(
        self,
        kind: Kind,
        queue: str,
        ranges: list[Range],
        deliveries: dict[int, Delivery],
        head: bytes,
    ) -> None:
        super().__init__(kind, queue, ranges, deliveries)
        self.head: bytes = head

    def enter(self, lane: ReceiptLane) -> None:
        self.receipts = lane.receipts
        lane.others.append(self)
        if self.kind is not Kind.EXTEND:
            self.release()

    def answered(self, traffic: Traffic, answer: Frame) -> None:
        self.conclude(traffic, read_refused(answer))

    def refused(self, traffic: Traffic, error: NexoError) -> None:
        self.fail(error)

    def lost(self, traffic: Traffic) -> None:
        if not self.abandoned:
            self.receipts.enter(self)

    def failed(self, error: NexoError) -> None:
        self.fail(error)


class MergedSettling(Exchange):
    """One frame for many acks or receptions."""

    __slots__ = ("members", "receipts")

    def __init__(self, receipts: Receipts, members: list[Settling]) -> None:
        self.receipts: Receipts = receipts
        self.members: list[Settling] = members

    def answered(self, traffic: Traffic, answer: Frame) -> None:
        refused = read_refused(answer)
        if not refused:
            for settling in self.members:
                settling.finish(refused)
        elif len(self.members) == 1:
            self.members[0].conclude(traffic, refused)
        else:
            by_lease: dict[int, Refused] = {}
            for each in sorted(refused):
                by_lease.setdefault(each[0], []).append(each)
            for settling in self.members:
                settling.conclude(traffic, _part_of(settling, by_lease))

    def refused(self, traffic: Traffic, error: NexoError) -> None:
        self.failed(error)

    def lost(self, traffic: Traffic) -> None:
        for settling in self.members:
            if not settling.abandoned:
                self.receipts.enter(settling)

    def failed(self, error: NexoError) -> None:
        for settling in self.members:
            settling.fail(error)


class ReceiptLane:
    """What is to be said of the messages of one queue."""

    __slots__ = ("acks", "others", "queue", "receipts", "receptions")

    def __init__(self, receipts: Receipts, queue: str) -> None:
        self.receipts: Receipts = receipts
        self.queue: str = queue
        self.receptions: list[Settling] = []
        self.acks: list[Settling] = []
        self.others: list[SettleAlone] = []

    def take(self, traffic: Traffic, out: Pieces) -> None:
        """Receptions first: an ack of the same message would be out of order before them."""
        if self.receptions:
            waiting, self.receptions = self.receptions, []
            self._merge(traffic, Kind.RECEIVED, waiting, out)
        if self.acks:
            waiting, self.acks = self.acks, []
            self._receive_again(traffic, waiting, out)
            self._merge(traffic, Kind.ACK, waiting, out)
        others, self.others = self.others, []
        for settling in others:
            if not settling.abandoned:
                settling.tries += 1
                correlation = traffic.expect(settling)
                out.append(frame(settling.kind, correlation, settling.head))

    def fail(self, error: NexoError) -> None:
        for settling in (*self.receptions, *self.acks, *self.others):
            settling.fail(error)
        self.receptions.clear()
        self.acks.clear()
        self.others.clear()

    def _merge(self, traffic: Traffic, kind: Kind, waiting: list[Settling], out: Pieces) -> None:
        members: list[Settling] = []
        ranges: list[Range] = []
        for settling in waiting:
            if settling.abandoned:
                continue
            if ranges and len(ranges) + len(settling.ranges) > CLIENT_RANGES_MAX:
                out.append(self._frame(traffic, kind, members, ranges))
                members, ranges = [], []
            settling.tries += 1
            members.append(settling)
            ranges += settling.ranges
        if members:
            out.append(self._frame(traffic, kind, members, ranges))

    def _frame(
        self, traffic: Traffic, kind: Kind, members: list[Settling], ranges: list[Range]
    ) -> bytes:
        correlation = traffic.expect(MergedSettling(self.receipts, members))
        return frame(kind, correlation, commands.pack_ranges(self.queue, joined(ranges)))

    def _receive_again(self, traffic: Traffic, waiting: list[Settling], out: Pieces) -> None:
        """The reception ack of a pop may have been lost with its connection, and nobody waited for
        it; saying it twice changes nothing."""
        if traffic.connection == 1:
            return
        ranges = [
            each
            for settling in waiting
            for each in settling.ranges
            if (delivery := settling.delivery_of(each[0])).auto_received
            and delivery.connection != traffic.connection
        ]
        if ranges:
            out.append(frame(Kind.RECEIVED, 0, commands.pack_ranges(self.queue, joined(ranges))))


class Receipts:
    """The same for all queues."""

    def __init__(self) -> None:
        self._lanes: dict[str, ReceiptLane] = {}
        self.busy: dict[ReceiptLane, None] = {}  # those with something to write

    def enter(self, settling: Settling) -> None:
        lane = self._lanes.get(settling.queue)
        if lane is None:
            lane = self._lanes[settling.queue] = ReceiptLane(self, settling.queue)
        self.busy[lane] = None
        settling.enter(lane)

    def take(self, traffic: Traffic, out: Pieces) -> None:
        for lane in self.busy:
            lane.take(traffic, out)
        self.busy.clear()

    def fail(self, error: NexoError) -> None:
        for lane in self._lanes.values():
            lane.fail(error)


def read_refused(answer: Frame) -> Refused:
    if answer.head == _NOTHING_REFUSED:
        return []
    try:
        return _decode_refused(answer.head)
    except msgspec.DecodeError as error:
        raise ProtocolError(f"the broker's answer cannot be read: {error}") from None


def refusal_with(code: str) -> NexoError:
    """The exception of a refused ack: the broker tells only its code."""
    message, hint = _SAID.get(code, ("the broker refused this", ""))
    return error_with(code, message, hint)


def _part_of(settling: Settling, refused_by_lease: dict[int, Refused]) -> Refused:
    """The part of what was refused that concerns one of the merged. Refused ranges of a lease are
    in order and apart, so those that touch a range stand together."""
    part: Refused = []
    for lease, first, end in settling.ranges:
        refused = refused_by_lease.get(lease, [])
        at = max(0, bisect_right(refused, first, key=itemgetter(1)) - 1)
        while at < len(refused) and refused[at][1] < end:
            _, low, high, code = refused[at]
            if first < high:
                part.append((lease, max(first, low), min(end, high), code))
            at += 1
    return part
