"""Messages as this client has them: held, in a batch that was delivered, or only looked at.

A held message is a view of one row of a delivery's columns, and `Messages` a view of many: each
is made only when it is asked for. What can be asked of them is here, for both twins; what can be
done with one is in `blocking.message` and `aio.message`.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, overload

from nexo.client.bodies import Body, decoded
from nexo.client.receipts import AckOne, SettleAlone, SettleMany
from nexo.vocabulary.attributes import decode_attributes
from nexo.vocabulary.errors import InvalidArgument, InvalidBody
from nexo.vocabulary.identity import message_id, priority_of
from nexo.vocabulary.limits import DELAY_MS_MAX, REASON_CHARS_MAX, TIMEOUT_MS_MAX
from nexo.vocabulary.states import State
from nexo.vocabulary.units import milliseconds
from nexo.wire import commands
from nexo.wire.frame import Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from nexo.client.delivery import Delivery, Range
    from nexo.vocabulary import batch
    from nexo.vocabulary.message import Message
    from nexo.wire.columns import WirePart

_log = logging.getLogger("nexo.client")


class Content:
    """Something with a body."""

    __slots__ = ()

    @property
    def body(self) -> bytes:
        raise NotImplementedError

    @property
    def text(self) -> str:
        """The body as UTF-8."""
        return self.body.decode()

    @overload
    def json(self) -> Any: ...

    @overload
    def json(self, kind: type[Body]) -> Body: ...

    @overload
    def json(self, kind: Any) -> Any: ...

    def json(self, kind: Any = Any) -> Any:
        """The body decoded from JSON. With a type, as a value of it: a msgspec struct, a dataclass,
        an attrs class, a pydantic model, or anything made of built-in types, such as `list[Order]`.
        Raises `InvalidBody` if the body does not match."""
        return decoded(self.body, kind)


class DeadLetter:
    """Why a message is in a dead-letter queue."""

    __slots__ = ("attempts", "consumer", "first_failed_at", "last_failed_at", "reason", "source")

    reason: str
    source: str  # the queue it came from
    attempts: int
    first_failed_at: datetime
    last_failed_at: datetime
    consumer: str  # who had it last; empty if that is not known

    def __init__(self, travelled: batch.DeadLetter) -> None:
        self.reason = travelled.reason
        self.source = travelled.source
        self.attempts = travelled.attempts
        self.first_failed_at = time_of(travelled.first_failed_ms)
        self.last_failed_at = time_of(travelled.last_failed_ms)
        self.consumer = travelled.consumer

    def __repr__(self) -> str:
        return f"<DeadLetter from {self.source!r} after {self.attempts}: {self.reason!r:.60}>"


class HeldMessage(Content):
    __slots__ = ("_at", "_delivery", "_part")

    def __init__(self, delivery: Delivery, part: WirePart, at: int) -> None:
        self._delivery = delivery
        self._part = part
        self._at = at

    @property
    def id(self) -> str:
        """It never changes, even if the message moves to another queue."""
        origin = self._part.batch.origins and self._part.batch.origins[self._at]
        return origin.id if origin else message_id(self._delivery.incarnation, self._seq)

    @property
    def body(self) -> bytes:
        return self._part.batch.body(self._at)

    @property
    def queue(self) -> str:
        return self._delivery.queue

    @property
    def priority(self) -> int:
        return priority_of(self._seq)

    @property
    def attempts(self) -> int:
        """Number of deliveries, including this one: 1 on the first."""
        return self._part.attempts

    @property
    def created_at(self) -> datetime:
        part = self._part
        origin = part.batch.origins and part.batch.origins[self._at]
        if origin:
            return time_of(origin.created_ms)
        created = part.batch.created
        return time_of(part.created_ms if created is None else created[self._at])

    @property
    def visible_at(self) -> datetime:
        """When it is delivered again if it is not acked."""
        return time_of(self._delivery.deadline_of(self._seq))

    @property
    def delayed_until(self) -> datetime | None:
        """Always None for a delivered message. See `peek`."""
        return None

    @property
    def state(self) -> State:
        received = self._delivery.auto_received or self._delivery.state == State.RECEIVED
        return State.RECEIVED if received else State.SENT

    @property
    def attributes(self) -> dict[str, str]:
        column = self._part.batch.attributes
        return decode_attributes(column[self._at] if isinstance(column, list) else column)

    @property
    def group_id(self) -> str | None:
        column = self._part.batch.groups
        return column[self._at] if isinstance(column, list) else column

    @property
    def deduplication_id(self) -> str | None:
        column = self._part.batch.deduplication_ids
        return column[self._at] if column else None

    @property
    def dead_letter(self) -> DeadLetter | None:
        """Why it failed, if this is a dead-letter queue; else None."""
        origin = self._part.batch.origins and self._part.batch.origins[self._at]
        return DeadLetter(origin.dead_letter) if origin and origin.dead_letter else None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} of {self.queue!r}: {self.body!r:.60}>"

    @property
    def _seq(self) -> int:
        return self._part.first + self._at

    @property
    def _finished(self) -> bool:
        return self._delivery.is_finished(self._seq)

    def _acking(self) -> AckOne:
        return AckOne(self._delivery, self._part.first + self._at)

    def _settling(self, kind: Kind) -> SettleMany:
        return SettleMany(kind, self._delivery.queue, *self._receipt())

    def _nacking(self, delay: float | None, reason: str) -> SettleAlone:
        return _nack(self._delivery.queue, *self._receipt(), delay, reason)

    def _extending(self, seconds: float) -> SettleAlone:
        return _extension(self._delivery.queue, *self._receipt(), seconds)

    def _receipt(self) -> tuple[list[Range], dict[int, Delivery]]:
        delivery, seq = self._delivery, self._part.first + self._at
        return [(delivery.lease, seq, seq + 1)], {delivery.lease: delivery}

    def _extended(self, now_ms: int, seconds: float) -> None:
        """The broker has said yes."""
        self._delivery.move_deadline(self._seq, self._seq + 1, now_ms + round(seconds * 1000))


class PeekedMessage(Content):
    __slots__ = ("_queue", "_seen")

    def __init__(self, queue: str, seen: Message) -> None:
        self._queue = queue
        self._seen = seen

    @property
    def id(self) -> str:
        return self._seen.id

    @property
    def body(self) -> bytes:
        return self._seen.body

    @property
    def queue(self) -> str:
        return self._queue

    @property
    def state(self) -> State:
        """Ready, scheduled, or one of the states in flight."""
        return self._seen.state

    @property
    def priority(self) -> int:
        return self._seen.priority

    @property
    def attempts(self) -> int:
        """Number of deliveries so far."""
        return self._seen.attempts

    @property
    def created_at(self) -> datetime:
        return time_of(self._seen.created_ms)

    @property
    def visible_at(self) -> datetime | None:
        """When a message in flight is delivered again if it is not acked; None otherwise."""
        return time_of(self._seen.visible_ms) if self._seen.visible_ms else None

    @property
    def delayed_until(self) -> datetime | None:
        """When a scheduled message becomes ready; None otherwise."""
        return time_of(self._seen.delayed_until_ms) if self._seen.delayed_until_ms else None

    @property
    def attributes(self) -> dict[str, str]:
        return decode_attributes(self._seen.attributes)

    @property
    def group_id(self) -> str | None:
        return self._seen.group_id

    @property
    def deduplication_id(self) -> str | None:
        return self._seen.deduplication_id

    @property
    def dead_letter(self) -> DeadLetter | None:
        return DeadLetter(self._seen.dead_letter) if self._seen.dead_letter else None

    def __repr__(self) -> str:
        return f"<PeekedMessage {self.id} of {self.queue!r}, {self.state.name}: {self.body!r:.60}>"


M = TypeVar("M", bound=HeldMessage)


class Messages(Sequence[M], Generic[M]):
    """The result of `pop_batch` and `subscribe_batches`. `bodies()` is the fastest way to read it,
    and `ack_batch(messages)` acks all of it as one range."""

    __slots__ = ("_delivery", "_make", "_start", "_stop")

    def __init__(
        self,
        delivery: Delivery | None,
        start: int,
        stop: int,
        make: Callable[[Delivery, WirePart, int], M],
    ) -> None:
        self._delivery = delivery
        self._start = start
        self._stop = stop
        self._make = make

    def bodies(self) -> list[bytes]:
        """Only the bodies, without creating an object for each message."""
        delivery = self._delivery
        if delivery is None:
            return []
        found: list[bytes] = []
        for part, at in zip(delivery.parts, delivery.starts, strict=True):
            offsets, payload = part.batch.offsets, part.batch.payload
            low, high = max(self._start - at, 0), min(self._stop - at, len(offsets) - 1)
            if low < high:
                bounds = offsets[low : high + 1].tolist()
                found += [payload[a:b] for a, b in pairwise(bounds)]
        return found

    def __len__(self) -> int:
        return self._stop - self._start

    @overload
    def __getitem__(self, index: int) -> M: ...

    @overload
    def __getitem__(self, index: slice) -> list[M]: ...

    def __getitem__(self, index: int | slice) -> M | list[M]:
        if isinstance(index, slice):
            return [self[each] for each in range(*index.indices(len(self)))]
        if index < 0:
            index += len(self)
        if not 0 <= index < len(self) or self._delivery is None:
            raise IndexError("there is no such message")
        part, at = self._delivery.locate(self._start + index)
        return self._make(self._delivery, part, at)

    def __iter__(self) -> Iterator[M]:
        delivery, make = self._delivery, self._make
        if delivery is None:
            return
        for part, start in zip(delivery.parts, delivery.starts, strict=True):
            low = max(self._start - start, 0)
            for at in range(low, min(self._stop - start, len(part.batch.offsets) - 1)):
                yield make(delivery, part, at)

    def __add__(self, other: Iterable[M]) -> list[M]:
        return [*self, *other]

    def __radd__(self, other: Iterable[M]) -> list[M]:
        return [*other, *self]

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Sequence) and not isinstance(other, (str, bytes)):
            return len(self) == len(other) and all(
                isinstance(theirs, HeldMessage) and ours.id == theirs.id
                for ours, theirs in zip(self, other, strict=True)
            )
        return NotImplemented

    __hash__: ClassVar[None] = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        queue = "" if self._delivery is None else f" of {self._delivery.queue!r}"
        return f"<{len(self)} messages{queue}>"

    def _held(self, queue: str) -> tuple[list[Range], dict[int, Delivery]]:
        """All of them, without looking at each."""
        delivery = self._delivery
        if delivery is None:
            return [], {}
        _check_queue(queue, delivery.queue)
        return delivery.ranges(self._start, self._stop), {delivery.lease: delivery}


def acking(queue: str, messages: Iterable[Any]) -> SettleMany | None:
    """The ack of many messages of one queue; None if there are none."""
    ranges, deliveries = _held(queue, messages)
    return SettleMany(Kind.ACK, queue, ranges, deliveries) if ranges else None


def nacking(
    queue: str, messages: Iterable[Any], delay: float | None, reason: str
) -> SettleAlone | None:
    """The nack of many messages of one queue, all for the same reason."""
    ranges, deliveries = _held(queue, messages)
    return _nack(queue, ranges, deliveries, delay, reason) if ranges else None


def extending(queue: str, messages: Iterable[Any], seconds: float) -> SettleAlone | None:
    """The extension of many messages of one queue, all to the same time."""
    ranges, deliveries = _held(queue, messages)
    return _extension(queue, ranges, deliveries, seconds) if ranges else None


def giving_back(queue: str, messages: Iterable[Any]) -> SettleAlone | None:
    """The return of many messages that were not worked on."""
    ranges, deliveries = _held(queue, messages)
    if not ranges:
        return None
    head = commands.pack_ranges(queue, ranges)
    return SettleAlone(Kind.GIVE_BACK, queue, ranges, deliveries, head)


def _nack(
    queue: str,
    ranges: list[Range],
    deliveries: dict[int, Delivery],
    delay: float | None,
    reason: str,
) -> SettleAlone:
    delay_ms = None if delay is None else milliseconds(delay, "delay", DELAY_MS_MAX)
    head = commands.pack(commands.Nack(queue, ranges, delay_ms, reason[:REASON_CHARS_MAX]))
    return SettleAlone(Kind.NACK, queue, ranges, deliveries, head)


def _extension(
    queue: str, ranges: list[Range], deliveries: dict[int, Delivery], seconds: float
) -> SettleAlone:
    timeout_ms = milliseconds(seconds, "seconds", TIMEOUT_MS_MAX)
    head = commands.pack(commands.Extend(queue, ranges, timeout_ms))
    return SettleAlone(Kind.EXTEND, queue, ranges, deliveries, head)


def _held(queue: str, messages: Iterable[Any]) -> tuple[list[Range], dict[int, Delivery]]:
    """Which messages of which deliveries these are."""
    if isinstance(messages, Messages):
        return messages._held(queue)
    deliveries: dict[int, Delivery] = {}
    ranges: list[Range] = []
    for message in messages:
        if not isinstance(message, HeldMessage):
            raise InvalidArgument(
                f"{message!r:.60} is not a message that was popped",
                "a peeked message cannot be acked",
            )
        delivery, seq = message._delivery, message._seq
        _check_queue(queue, delivery.queue)
        deliveries[delivery.lease] = delivery
        if ranges and ranges[-1][0] == delivery.lease and ranges[-1][2] == seq:
            ranges[-1] = (delivery.lease, ranges[-1][1], seq + 1)
        else:
            ranges.append((delivery.lease, seq, seq + 1))
    return ranges, deliveries


def refused_ids(
    settling: SettleMany, refused: list[tuple[int, int, int, str]]
) -> list[tuple[str, str]]:
    """What of an ack was refused: the id of each message and the code of the error."""
    return [
        (settling.delivery_of(lease).id_of(seq), code)
        for lease, first, end, code in refused
        for seq in range(first, end)
    ]


def _check_queue(queue: str, theirs: str) -> None:
    if theirs != queue:
        raise InvalidArgument(f"a message of queue {theirs!r} cannot be acked on {queue!r}")


def goes_on_after(error: BaseException, message: HeldMessage) -> bool:
    """Whether a `with` block around a message ends the error that it was left with. Only a body
    that cannot be read, and only in a loop: whoever sends one must not stop those who read."""
    if not isinstance(error, InvalidBody) or message._delivery.holder is None:
        return False
    log_failure(message, error)
    return True


def log_failure(message: HeldMessage, error: BaseException) -> None:
    """Of a body that cannot be read the reason says all; of a handler the traceback is needed."""
    told = "message %s of queue %s failed: %s"
    trace = None if isinstance(error, InvalidBody) else error
    _log.error(told, message.id, message.queue, reason_of(error), exc_info=trace)


def reason_of(error: BaseException) -> str:
    """An exception as the reason of a nack."""
    if isinstance(error, InvalidBody):
        return f"{error.code}: {error.message}"
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def time_of(unix_ms: int) -> datetime:
    try:
        return datetime.fromtimestamp(unix_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):  # delays of centuries
        return datetime.max.replace(tzinfo=UTC)
