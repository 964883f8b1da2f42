"""A session with a broker, without sockets: the half that both clients share.

Callers `submit` operations; the one who does I/O writes what `take_output` gives, hands in what
arrives with `receive`, and says when the connection is `connected` or `lost`. The session outlives
connections: what was not answered is sent again on the next one, subscriptions are opened again.
It takes no locks and reads no clock but the one it is given.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from nexo.client.delivery import Delivery
from nexo.client.operation import error_of
from nexo.client.pushes import Lane
from nexo.client.receipts import ReceiptLane
from nexo.client.subscriptions import Subscriptions
from nexo.vocabulary.errors import InvalidArgument, NexoError, NotReady, Unreachable
from nexo.vocabulary.limits import CONSUMER_CHARS_MAX
from nexo.wire import commands
from nexo.wire.columns import decode_parts
from nexo.wire.frame import Frame, FrameReader, Kind, ProtocolError, frame

if TYPE_CHECKING:
    from collections.abc import Callable

    from nexo.client.delivery import Range
    from nexo.client.operation import Exchange, Operation, Pieces, Request
    from nexo.client.subscriptions import SubscriptionState

SILENCE_FACTOR = 3  # heartbeats that may be missed before the broker counts as gone
RECEPTIONS_KEPT = 1_024  # receptions of pops that are said again on the next connection …
RECEPTIONS_KEPT_S = 30.0  # … if they are not older than this
AGAIN_S = 0.1  # a broker that is not ready yet is asked again after this long


class Session:
    def __init__(
        self,
        clock: Callable[[], float],
        *,
        name: str,
        producer: str,
        token: str | None,
        heartbeat_s: float,
        merging_window: int,
    ) -> None:
        self._clock = clock  # monotonic seconds
        self.name: str = name[:CONSUMER_CHARS_MAX]  # it is for people
        self.producer = producer
        self.merging_window = merging_window  # frames of single pushes under way to one queue
        self._token = token
        self.heartbeat_s: float = heartbeat_s
        self.connected: bool = False
        self.connection: int = 0  # counts connections
        self.instance: int = 0  # the run of the broker
        self.closed: NexoError | None = None
        self.requests: deque[Request] = deque()
        self._lanes: dict[tuple[Kind, str], Lane] = {}
        self._receipt_lanes: dict[str, ReceiptLane] = {}
        self._busy_lanes: dict[Lane, None] = {}  # those with something to write
        self._busy_receipts: dict[ReceiptLane, None] = {}
        self._pending: dict[int, Exchange] = {}
        self.postponed: list[tuple[float, Exchange]] = []  # until when: the broker was not ready
        self.subscriptions: Subscriptions = Subscriptions(self)
        self._out: Pieces = []
        self.has_quiet: bool = False  # receptions wait for the next output; they are in no hurry
        self._correlation = 0
        self._reader = FrameReader()
        self._heard = self._spoke = clock()
        self._skew_ms = 0
        self.due: float = clock()  # when `tick` is to be called
        self._popped: deque[tuple[float, str, Range]] = deque(maxlen=RECEPTIONS_KEPT)

    # -- The caller's side --------------------------------------------------------------------

    def submit(self, operation: Operation) -> None:
        if self.closed is not None:
            raise self.closed.anew()
        operation.enter(self)

    def abandon(self, operation: Operation) -> None:
        """The caller has gone. What was not sent will not be; of what was, the answer is dropped,
        and messages that it brings, or has brought, go back at once."""
        operation.abandon(self)

    def close(self, error: NexoError) -> None:
        """Everybody is told; nothing is taken any more."""
        self.closed = error
        self.fail(error)

    def fail(self, error: NexoError) -> None:
        """Nothing that waits will be done: everybody is told why."""
        self.subscriptions.fail(error)
        for exchange in list(self._pending.values()):
            exchange.failed(error)
        self._pending.clear()
        for request in self.requests:
            request.fail(error)
        self.requests.clear()
        for _, exchange in self.postponed:
            exchange.failed(error)
        self.postponed.clear()
        for lane in self._lanes.values():
            lane.fail(error)
        for receipts in self._receipt_lanes.values():
            receipts.fail(error)

    def lane(self, key: tuple[Kind, str]) -> Lane:
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = Lane(*key)
        self._busy_lanes[lane] = None
        return lane

    def touch(self, lane: Lane) -> None:
        """Something waits in this lane again."""
        self._busy_lanes[lane] = None

    def receipts(self, queue: str) -> ReceiptLane:
        lane = self._receipt_lanes.get(queue)
        if lane is None:
            lane = self._receipt_lanes[queue] = ReceiptLane(queue)
        self._busy_receipts[lane] = None
        return lane

    def receive_quietly(self, delivery: Delivery) -> None:
        """The reception ack that nobody waits for."""
        ranges = delivery.ranges(0, delivery.count)
        self.receipts(delivery.queue).quiet += ranges
        self.has_quiet = True
        if delivery.subscribed is None:
            now = self._clock()
            self._popped.extend([(now, delivery.queue, each) for each in ranges])

    def finish(self, delivery: Delivery, count: int) -> None:
        """Messages of a delivery are done with: a subscription has room for more."""
        subscribed = delivery.subscribed
        if count and subscribed is not None and subscribed.number:
            subscribed.finished(delivery, count)
            self.subscriptions.finished(subscribed)

    def give_back(self, delivery: Delivery) -> None:
        """Nobody will look at these messages."""
        self.give_back_ranges(delivery.queue, delivery.ranges(0, delivery.count))

    def give_back_ranges(self, queue: str, ranges: list[Range]) -> None:
        if ranges and self.connected:
            self.send(frame(Kind.GIVE_BACK, 0, commands.pack_ranges(queue, ranges)))

    def delivery(
        self,
        queue: str,
        answer: Frame,
        *,
        auto_received: bool,
        visibility_ms: int | None,
        subscribed: SubscriptionState | None = None,
    ) -> Delivery | None:
        """The messages of a POP's answer or of a DELIVER; None if there are none."""
        parts = decode_parts(answer.body)
        if not parts:
            return None
        head = commands.unpack_delivery(answer.head)
        self._skew_ms = head.now_ms - int(self._clock() * 1000)
        return Delivery(
            queue,
            head,
            parts,
            auto_received=auto_received,
            visibility_ms=visibility_ms,
            connection=self.connection,
            instance=self.instance,
            subscribed=subscribed,
        )

    def local_ms(self) -> int:
        return int(self._clock() * 1000)

    def now_ms(self) -> int:
        """The broker's clock, as far as it is known here."""
        return int(self._clock() * 1000) + self._skew_ms

    # -- The connection's side ----------------------------------------------------------------

    def hello(self) -> bytes:
        """The first frame of a connection."""
        self._reader = FrameReader()
        self._heard = self._clock()
        version = commands.PROTOCOL_VERSION
        hello = commands.Hello(
            commands.MAGIC,
            (version, version),
            self.name,
            self._token,
            round(self.heartbeat_s * 1000),
        )
        return frame(Kind.HELLO, 1, commands.pack(hello))

    def connect(self, welcome: Frame) -> None:
        """The broker has answered the greeting: take everything up again."""
        if welcome.kind is Kind.GOODBYE or welcome.kind is Kind.ERROR:
            raise _reason(welcome)
        if welcome.kind is not Kind.WELCOME:
            raise ProtocolError(f"the broker greets with {welcome.kind.name}")
        welcomed: commands.Welcome = commands.unpack(welcome.head, commands.Welcome)
        self.heartbeat_s = welcomed.heartbeat_ms / 1000
        self.instance = welcomed.instance
        self.connection += 1
        self.connected = True
        self._out.clear()
        self.subscriptions.connect()
        recent = self._clock() - RECEPTIONS_KEPT_S
        for at, queue, each in self._popped:
            if at >= recent:
                self.receipts(queue).quiet.append(each)

    def lose(self) -> None:
        """The connection is gone: what has no answer waits for the next one."""
        if not self.connected:
            return
        self.connected = False
        self._out.clear()
        for receipts in self._receipt_lanes.values():
            receipts.quiet.clear()
        pending, self._pending = self._pending, {}
        for exchange in pending.values():
            exchange.lost(self)
        postponed, self.postponed = self.postponed, []
        for _, exchange in postponed:
            exchange.lost(self)
        self.subscriptions.lose()

    def read(self, data: bytes) -> list[Frame]:
        self._heard = self._clock()
        return self._reader.feed(data)

    def receive(self, data: bytes) -> None:
        """Bytes have arrived. What breaks the protocol, or a goodbye, is raised: the connection
        is to be closed."""
        self._heard = self._clock()
        for arrived in self._reader.feed(data):
            self.dispatch(arrived)

    def dispatch(self, arrived: Frame) -> None:
        kind = arrived.kind
        if kind is Kind.OK:
            exchange = self._pending.pop(arrived.correlation, None)
            if exchange is not None:
                try:
                    exchange.answered(self, arrived)
                except ProtocolError as error:
                    exchange.failed(error)
                    raise
        elif kind is Kind.DELIVER:
            self.subscriptions.deliver(arrived)
        elif kind is Kind.ERROR:
            self._refuse(arrived)
        elif kind is Kind.ENDED:
            self.subscriptions.ended(arrived)
        elif kind is Kind.GOODBYE:
            raise _reason(arrived)
        elif kind is not Kind.HEARTBEAT:
            raise ProtocolError(f"a broker does not send {kind.name}")

    def take_output(self) -> Pieces:
        """Everything that is to be written now; what was merged is one frame."""
        if not self.connected:
            return []
        out, self._out = self._out, []
        self.has_quiet = False
        if self._busy_receipts:
            for receipts in self._busy_receipts:
                receipts.take(self, out)
            self._busy_receipts.clear()
        while self.requests:
            request = self.requests.popleft()
            if not request.abandoned:
                out += request.pieces(self.expect(request), self)
        if self._busy_lanes:
            busy, self._busy_lanes = self._busy_lanes, {}
            for lane in busy:
                for flight in lane.take(self):
                    out += flight.pieces(self.expect(flight))
                if lane.waiting:
                    self._busy_lanes[lane] = None
        if self.subscriptions.indebted:
            self.subscriptions.credit(out)
        if out:
            self._spoke = self._clock()
        return out

    @property
    def urgent(self) -> bool:
        """Whether something is to be written that nobody else will."""
        return bool(self._out or self.requests or self._busy_lanes or self.subscriptions.indebted)

    def tick(self) -> float:
        """Do what time has made due; returns in how many seconds to look again. Raises if nothing
        was heard of the broker for too long."""
        now = self._clock()
        postponed, self.postponed = self.postponed, []
        for due, exchange in postponed:
            if now >= due:
                exchange.lost(self)
            else:
                self.postponed.append((due, exchange))
        if not self.connected:
            return self._due_in(AGAIN_S)
        if now - self.due > self.heartbeat_s:
            self._heard = now  # it was this process that slept: what came meanwhile is not read yet
        silence = self.heartbeat_s * SILENCE_FACTOR
        if now - self._heard > silence:
            raise Unreachable(f"nothing was heard of the broker for {silence:.1f} s")
        if now - self._spoke >= self.heartbeat_s:
            self._out.append(frame(Kind.HEARTBEAT, 0))
        due_s = self.heartbeat_s / 2
        now_ms = self.now_ms()
        due_s = min(due_s, (self.subscriptions.tick(now_ms, self._out) - now_ms) / 1000)
        if self.postponed:
            due_s = min(due_s, AGAIN_S)
        return self._due_in(max(due_s, 0.01))

    def hurry(self, seconds: float) -> None:
        """Something will be due then: `tick` is to be called no later."""
        self.due = min(self.due, self._clock() + seconds)

    def _due_in(self, seconds: float) -> float:
        self.due = self._clock() + seconds
        return seconds

    def send(self, framed: bytes) -> None:
        """A frame for the next output."""
        self._out.append(framed)

    def send_quietly(self, framed: bytes) -> None:
        """The same, of one that is in no hurry."""
        self._out.append(framed)
        self.has_quiet = True

    def expect(self, exchange: Exchange) -> int:
        """A correlation for a frame that will be answered."""
        correlation = self._correlation
        while True:
            correlation = correlation + 1 & 0xFFFFFFFF or 1
            if correlation not in self._pending:
                break
        self._correlation = correlation
        self._pending[correlation] = exchange
        return correlation

    # -- Inside -------------------------------------------------------------------------------

    def _refuse(self, arrived: Frame) -> None:
        exchange = self._pending.pop(arrived.correlation, None)
        if exchange is None:
            return
        error = _reason(arrived)
        if isinstance(error, NotReady):
            self.postponed.append((self._clock() + AGAIN_S, exchange))
            self.hurry(AGAIN_S)
        else:
            exchange.refused(self, error)


def _reason(arrived: Frame) -> NexoError:
    """Why the broker refused or left."""
    if not arrived.head:
        return NotReady("the broker is closing", "it will be back, or another takes over")
    return error_of(commands.unpack(arrived.head, commands.Refusal))


def closed() -> NexoError:
    return InvalidArgument("this client is closed", "connect again")
