"""Messages of one delivery, as a sequence: each is made only when it is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, overload

from nexo.client.held import HeldMessage
from nexo.client.receipts import SettleAlone, SettleMany
from nexo.vocabulary.errors import InvalidArgument
from nexo.vocabulary.limits import DELAY_MS_MAX, REASON_CHARS_MAX, TIMEOUT_MS_MAX
from nexo.vocabulary.spoken import milliseconds
from nexo.wire import commands
from nexo.wire.frame import Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from nexo.client.delivery import Delivery, Range
    from nexo.wire.columns import WirePart

M = TypeVar("M", bound=HeldMessage)


class Messages(Sequence[M], Generic[M]):
    """What `pop_batch` and `subscribe_batches` give. `bodies()` is the quickest way through it,
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
        """The bodies alone, without an object for each message."""
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
    if not ranges:
        return None
    delay_ms = None if delay is None else milliseconds(delay, "delay", DELAY_MS_MAX)
    head = commands.pack(commands.Nack(queue, ranges, delay_ms, reason[:REASON_CHARS_MAX]))
    return SettleAlone(Kind.NACK, queue, ranges, deliveries, head)


def extending(queue: str, messages: Iterable[Any], seconds: float) -> SettleAlone | None:
    """The extension of many messages of one queue, all to the same time."""
    ranges, deliveries = _held(queue, messages)
    if not ranges:
        return None
    timeout_ms = milliseconds(seconds, "seconds", TIMEOUT_MS_MAX)
    head = commands.pack(commands.Extend(queue, ranges, timeout_ms))
    return SettleAlone(Kind.EXTEND, queue, ranges, deliveries, head)


def giving_back(queue: str, messages: Iterable[Any]) -> SettleAlone | None:
    """The return of many messages that were not worked on."""
    ranges, deliveries = _held(queue, messages)
    if not ranges:
        return None
    head = commands.pack_ranges(queue, ranges)
    return SettleAlone(Kind.GIVE_BACK, queue, ranges, deliveries, head)


def _held(queue: str, messages: Iterable[Any]) -> tuple[list[Range], dict[int, Delivery]]:
    """Which messages of which deliveries these are."""
    if isinstance(messages, Messages):
        return messages._held(queue)
    deliveries: dict[int, Delivery] = {}
    ranges: list[Range] = []
    for message in messages:
        if not isinstance(message, HeldMessage):
            raise InvalidArgument(
                f"{message!r:.60} is not a message that was popped", "a peeked one cannot be acked"
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
