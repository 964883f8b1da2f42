"""What a caller waits for, and what travels for it.

An operation is one call of the user; it is finished or failed once. An exchange is one frame that
expects an answer: a request of one operation, or a merged frame that stands for many. Both twins
use the same operations; only how they wait differs, and `notify` is that difference.

`Traffic` is what operations and exchanges see of their session: frames for the next output, answers
that are expected, deliveries that came, and the broker's clock.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from nexo.client.delivery import Delivery, joined
from nexo.vocabulary.errors import NexoError
from nexo.vocabulary.limits import (
    CLIENT_AGAIN_S,
    CLIENT_RANGES_MAX,
    CLIENT_RECEPTIONS_KEPT,
    CLIENT_RECEPTIONS_KEPT_S,
)
from nexo.wire import commands
from nexo.wire.columns import decode_parts
from nexo.wire.frame import Frame, Kind, ProtocolError, frame, frame_parts

if TYPE_CHECKING:
    from collections.abc import Callable

    from nexo.client.delivery import Holder, Range
    from nexo.wire.commands import Refusal

    Pieces = list[bytes | memoryview]


class Operation:
    """`wait_s` is how long the broker may take on purpose, beyond the client's timeout."""

    __slots__ = ("abandoned", "done", "error", "future", "notify", "result")

    wait_s: float = 0.0

    def __init__(self) -> None:
        self.done: bool = False
        self.abandoned: bool = False  # its caller has gone: nobody wants the answer
        self.result: Any = None
        self.error: NexoError | None = None
        self.notify: Callable[[Operation], None] | None = None
        self.future: Any = None  # of asyncio, for the twin that has such

    def abandon(self) -> Delivery | None:
        """Its caller has gone. Returns messages that came for it, and that nobody has seen."""
        self.abandoned = True
        return None

    def finish(self, result: Any) -> None:
        if not self.done:
            self.result = result
            self.done = True
            if self.notify is not None:
                self.notify(self)

    def fail(self, error: NexoError) -> None:
        if not self.done:
            self.error = error
            self.done = True
            if self.notify is not None:
                self.notify(self)

    def take_result(self) -> Any:
        """The result, which is nobody else's then."""
        result, self.result = self.result, None
        return result

    def outcome(self) -> Any:
        if self.error is not None:
            raise self.error
        return self.result


class Exchange:
    """A frame under way, known by its correlation."""

    __slots__ = ()

    def answered(self, traffic: Traffic, answer: Frame) -> None:
        raise NotImplementedError

    def refused(self, traffic: Traffic, error: NexoError) -> None:
        raise NotImplementedError

    def lost(self, traffic: Traffic) -> None:
        """The connection broke before the answer: go back to where it can be sent again."""
        raise NotImplementedError

    def failed(self, error: NexoError) -> None:
        """The client is closed."""
        raise NotImplementedError


class Request(Operation, Exchange):
    """One frame for one operation. It may be sent again: what it asks for is either the same when
    done twice, or nothing was lost when its first answer was."""

    __slots__ = ("body", "decode", "head", "kind", "tries")

    def __init__(
        self,
        kind: Kind,
        head: bytes,
        decode: Callable[[Frame], Any],
        body: Pieces | None = None,
    ) -> None:
        super().__init__()
        self.kind: Kind = kind
        self.head: bytes = head
        self.body: Pieces = body or []
        self.decode: Callable[[Frame], Any] = decode
        self.tries: int = 0

    def pieces(self, correlation: int, traffic: Traffic) -> Pieces:
        self.tries += 1
        return frame_parts(self.kind, correlation, self.head, self.body)

    def answered(self, traffic: Traffic, answer: Frame) -> None:
        try:
            self.finish(self.decode(answer))
        except ProtocolError as error:
            self.fail(error)
            raise

    def refused(self, traffic: Traffic, error: NexoError) -> None:
        self.fail(error)

    def lost(self, traffic: Traffic) -> None:
        if not self.abandoned:
            traffic.requests.append(self)

    def failed(self, error: NexoError) -> None:
        self.fail(error)


class Traffic:
    """It takes no locks and reads no clock but the one it is given."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock  # monotonic seconds
        self._skew_ms = 0
        self.due: float = clock()  # when `tick` of the session is to be called
        self.closed: NexoError | None = None
        self.connected: bool = False
        self.is_leaving: bool = False  # another connection is about to take the place of this one
        self.connection: int = 0  # counts connections
        self.instance: int = 0  # the run of the broker
        self._setbacks = 0  # how often it may have taken back what it had not confirmed
        self.has_quiet: bool = False  # receptions wait for the next output; they are in no hurry
        self.requests: deque[Request] = deque()  # for the next output
        self._postponed: list[tuple[float, Exchange]] = []  # until when: the broker was not ready
        self._out: Pieces = []
        self._pending: dict[int, Exchange] = {}  # by correlation
        self._correlation = 0
        self._quiet: dict[str, list[Range]] = {}  # by queue: receptions that nobody waits for
        self._popped: deque[tuple[float, str, Range]] = deque(maxlen=CLIENT_RECEPTIONS_KEPT)

    # -- The session's side -------------------------------------------------------------------

    def _end(self, error: NexoError) -> None:
        self.closed = error

    def _begin_connection(self, instance: int) -> None:
        self._out.clear()
        self._change_connection(instance)

    def _change_connection(self, instance: int) -> None:
        """What waits for the next output stays."""
        self.instance = instance + self._setbacks
        self.connection += 1
        self.connected = True

    def _set_back(self) -> None:
        """The broker was not ready: it may have lost its journal and loaded it anew, and with that
        forgotten deliveries. From now on it counts as another run."""
        self._setbacks += 1
        self.instance += 1

    def _end_connection(self) -> list[Exchange]:
        """Returns what has no answer."""
        self.connected = False
        self._out.clear()
        self._quiet.clear()
        pending, self._pending = self._pending, {}
        return list(pending.values())

    def _take(self) -> Pieces:
        """Frames for this output. Receptions come before what is said of the same messages."""
        out, self._out = self._out, []
        self.has_quiet = False
        if self._quiet:
            quiet, self._quiet = self._quiet, {}
            for queue, ranges in quiet.items():
                for at in range(0, len(ranges), CLIENT_RANGES_MAX):
                    head = commands.pack_ranges(queue, joined(ranges[at : at + CLIENT_RANGES_MAX]))
                    out.append(frame(Kind.RECEIVED, 0, head))
        return out

    # -- Frames -------------------------------------------------------------------------------

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

    # -- Deliveries ---------------------------------------------------------------------------

    def delivery(
        self,
        queue: str,
        answer: Frame,
        *,
        auto_received: bool,
        visibility_ms: int | None,
        holder: Holder | None = None,
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
            holder=holder,
        )

    def receive_quietly(self, delivery: Delivery) -> None:
        """The reception ack that nobody waits for."""
        ranges = delivery.ranges(0, delivery.count)
        self._quiet.setdefault(delivery.queue, []).extend(ranges)
        self.has_quiet = True
        if delivery.holder is None:
            now = self._clock()
            self._popped.extend([(now, delivery.queue, each) for each in ranges])

    def give_back(self, delivery: Delivery) -> None:
        """Nobody will look at these messages."""
        self.give_back_ranges(delivery.queue, delivery.ranges(0, delivery.count))

    def give_back_ranges(self, queue: str, ranges: list[Range]) -> None:
        if ranges and self.connected:
            self.send(frame(Kind.GIVE_BACK, 0, commands.pack_ranges(queue, ranges)))

    def _receive_popped_again(self) -> None:
        """The receptions of the last pops may have been lost with their connection."""
        recent = self._clock() - CLIENT_RECEPTIONS_KEPT_S
        for at, queue, each in self._popped:
            if at >= recent:
                self._quiet.setdefault(queue, []).append(each)

    # -- Time ---------------------------------------------------------------------------------

    def local_ms(self) -> int:
        return int(self._clock() * 1000)

    def now_ms(self) -> int:
        """The broker's clock, as far as it is known here."""
        return int(self._clock() * 1000) + self._skew_ms

    def _due_in(self, seconds: float) -> float:
        self.due = self._clock() + seconds
        return seconds

    def postpone(self, exchange: Exchange) -> None:
        """The broker was not ready for it: it is tried again."""
        self._postponed.append((self._clock() + CLIENT_AGAIN_S, exchange))
        self.hurry(CLIENT_AGAIN_S)

    def hurry(self, seconds: float) -> None:
        """Something will be due then: `tick` is to be called no later."""
        self.due = min(self.due, self._clock() + seconds)


def _tree(root: type[NexoError]) -> list[type[NexoError]]:
    return [root, *[each for child in root.__subclasses__() for each in _tree(child)]]


# A subclass that shares its parent's code (a broken protocol is an invalid argument) stands behind.
_KINDS = {kind.code: kind for kind in reversed(_tree(NexoError))}


def error_of(refusal: Refusal) -> NexoError:
    """The exception for a refusal. A code that this client does not know stays readable."""
    return error_with(refusal.code, refusal.message, refusal.hint)


def error_with(code: str, message: str, hint: str = "") -> NexoError:
    kind = _KINDS.get(code)
    if kind is None:
        return NexoError(f"{code}: {message}", hint or "upgrade the client to know this error")
    return kind(message, hint)
