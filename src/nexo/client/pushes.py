"""Pushes and publishes on their way: merged, numbered, and sent again without being doubled.

What waits for one queue when the client writes becomes one frame. Every frame has a number that
the broker remembers, so a frame that is sent again after a broken connection adds nothing. The
broker remembers the last `PRODUCER_RESULTS_KEPT` numbers of a producer: the oldest unconfirmed and
the newest number are never further apart than that, whatever waits behind them.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, overload

import msgspec

from nexo.client.operation import Exchange, Operation
from nexo.vocabulary.batch import OFFSET_TYPE, Batch, batch_of
from nexo.vocabulary.errors import Timeout
from nexo.vocabulary.identity import message_id
from nexo.vocabulary.limits import (
    CLIENT_MERGED_BYTES_MAX,
    CLIENT_MERGED_MESSAGES_MAX,
    PRODUCER_RESULTS_KEPT,
    SEQUENCE_BITS,
)
from nexo.wire import commands
from nexo.wire.columns import encode_batch
from nexo.wire.frame import Frame, Kind, ProtocolError, frame_parts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from nexo.client.operation import Pieces, Traffic
    from nexo.vocabulary.errors import NexoError

_COUNTER = (1 << SEQUENCE_BITS) - 1
_DIGITS = SEQUENCE_BITS // 4  # of an id, at its end; inside a range only they change
_read_offsets = msgspec.msgpack.Decoder(tuple[int, int]).decode


class Push(Operation):
    """One message. Its columns are merged with those of others; `alone` once a merged frame was
    refused, so that each gets an answer of its own."""

    __slots__ = (
        "alone",
        "attributes",
        "body",
        "deduplication_id",
        "delay_ms",
        "group",
        "lane",
        "plain",
        "priority",
    )

    def __init__(
        self,
        lane: tuple[Kind, str],
        body: bytes,
        priority: int = 0,
        delay_ms: int | None = None,
        group: str | None = None,
        deduplication_id: str | None = None,
        attributes: bytes | None = None,
    ) -> None:
        self.done: bool = False
        self.abandoned: bool = False
        self.alone: bool = False
        self.result: Any = None
        self.error: NexoError | None = None
        self.notify: Callable[[Operation], None] | None = None
        self.lane: tuple[Kind, str] = lane
        self.body: bytes = body
        self.priority: int = priority
        self.delay_ms: int | None = delay_ms
        self.group: str | None = group
        self.deduplication_id: str | None = deduplication_id
        self.attributes: bytes | None = attributes
        self.plain: bool = not (
            priority
            or delay_ms is not None
            or group is not None
            or deduplication_id is not None
            or attributes is not None
        )


class PushBatch(Operation):
    """Messages that the caller pushes together: accepted or refused as one."""

    __slots__ = ("batch", "lane")

    def __init__(self, lane: tuple[Kind, str], batch: Batch) -> None:
        super().__init__()
        self.lane: tuple[Kind, str] = lane
        self.batch: Batch = batch


class Flight(Exchange):
    """A numbered frame that is not confirmed yet."""

    __slots__ = ("frame_body", "head", "lane", "members", "number")

    def __init__(
        self, lane: Lane, number: int, members: list[Push] | PushBatch, head: bytes, body: Pieces
    ) -> None:
        self.lane: Lane = lane
        self.number: int = number
        self.members: list[Push] | PushBatch = members
        self.head: bytes = head
        self.frame_body: Pieces = body

    def pieces(self, correlation: int) -> Pieces:
        return frame_parts(self.lane.kind, correlation, self.head, self.frame_body)

    @property
    def wanted(self) -> bool:
        """Whether anybody still waits for it."""
        if isinstance(self.members, PushBatch):
            return not self.members.abandoned
        return not all(push.abandoned for push in self.members)

    def answered(self, traffic: Traffic, answer: Frame) -> None:
        self.lane.flying.pop(self.number, None)
        members = self.members
        if self.lane.kind is Kind.PUBLISH:
            self._published(answer)
            return
        accepted = commands.unpack_accepted(answer.head)
        ranges = accepted.ranges
        if not ranges:
            self.failed(
                Timeout(
                    "these messages were accepted earlier, but their IDs are no longer known",
                    "nothing is lost; do not push them again",
                )
            )
        elif isinstance(members, PushBatch):
            members.finish(MessageIds(accepted.incarnation, ranges))
        elif len(members) == 1:
            members[0].finish(message_id(accepted.incarnation, ranges[0]))
        else:
            ids = list_of_ids(accepted.incarnation, ranges)
            if len(ids) != len(members):
                raise ProtocolError(f"{len(ids)} ids for {len(members)} messages")
            for push, each in zip(members, ids, strict=True):
                push.finish(each)

    def refused(self, traffic: Traffic, error: NexoError) -> None:
        """A merged frame is refused for the fault of one, or for their number: each is tried by
        itself, under a number of its own, because nothing of this one was stored."""
        self.lane.flying.pop(self.number, None)
        members = self.members
        if isinstance(members, PushBatch):
            members.fail(error)
        elif len(members) == 1:
            members[0].fail(error)
        else:
            for push in members:
                push.alone = True
            self.lane.waiting.extendleft(reversed(members))
            self.lane.touch()

    def lost(self, traffic: Traffic) -> None:
        if self.wanted:
            self.lane.again.append(self)
            self.lane.touch()
        else:
            self.lane.flying.pop(self.number, None)

    def failed(self, error: NexoError) -> None:
        for push in [self.members] if isinstance(self.members, PushBatch) else self.members:
            push.fail(error)

    def _published(self, answer: Frame) -> None:
        try:
            first, end = _read_offsets(answer.head)
        except msgspec.DecodeError as error:
            raise ProtocolError(f"the broker's answer cannot be read: {error}") from None
        if isinstance(self.members, PushBatch):
            self.members.finish(list(range(first, end)))
        else:
            for offset, push in enumerate(self.members, first):
                push.finish(offset)


class Lane:
    """What goes to one queue or topic."""

    __slots__ = ("again", "flying", "kind", "name", "next_number", "pushes", "waiting")

    def __init__(self, pushes: Pushes, kind: Kind, name: str) -> None:
        self.pushes: Pushes = pushes
        self.kind: Kind = kind
        self.name: str = name
        self.waiting: deque[Push | PushBatch] = deque()
        self.flying: dict[int, Flight] = {}  # by number, the oldest first
        self.again: list[Flight] = []
        self.next_number: int = 1

    def touch(self) -> None:
        """Something waits in this lane."""
        self.pushes.busy[self] = None

    def take(self) -> list[Flight]:
        """The frames that may go out now."""
        waiting, flying = self.waiting, self.flying
        again, self.again = self.again, []
        flights = [flight for flight in again if flight.wanted]
        if len(flights) < len(again):  # their callers have given up
            for flight in again:
                if not flight.wanted:
                    del flying[flight.number]
        while waiting:
            if flying and self.next_number - next(iter(flying)) >= PRODUCER_RESULTS_KEPT:
                break
            first = waiting[0]
            if first.abandoned:
                waiting.popleft()
                continue
            members: list[Push] | PushBatch
            if isinstance(first, PushBatch):
                waiting.popleft()
                members, batch = first, first.batch
            elif first.alone or len(flying) < self.pushes.merging_window:
                members = self._run()
                batch = merged(members)
            else:
                break
            number, self.next_number = self.next_number, self.next_number + 1
            head = self._head(self.pushes.producer, number)
            flying[number] = flight = Flight(self, number, members, head, encode_batch(batch))
            flights.append(flight)
        return flights

    def fail(self, error: NexoError) -> None:
        for push in self.waiting:
            push.fail(error)
        for flight in self.flying.values():
            flight.failed(error)
        self.waiting.clear()
        self.flying.clear()
        self.again.clear()

    def _head(self, producer: str, number: int) -> bytes:
        if self.kind is Kind.PUBLISH:
            return commands.pack(commands.Publish(self.name, producer, number))
        return commands.pack_push(commands.Push(self.name, producer, number))

    def _run(self) -> list[Push]:
        """Single messages from the front that fit one frame."""
        waiting = self.waiting
        first = waiting.popleft()
        assert isinstance(first, Push)
        run, size, delayed = [first], len(first.body), first.delay_ms is None
        if first.alone:
            return run
        while waiting and len(run) < CLIENT_MERGED_MESSAGES_MAX:
            push = waiting[0]
            if push.abandoned:
                waiting.popleft()
                continue
            # A batch carries a delay for each message or for none of them.
            if isinstance(push, PushBatch) or push.alone or (push.delay_ms is None) != delayed:
                break
            size += len(push.body)
            if size > CLIENT_MERGED_BYTES_MAX:
                break
            run.append(push)
            waiting.popleft()
        return run


class Pushes:
    """What goes to all queues and topics. At most `merging_window` frames of single pushes are
    under way to each; what comes meanwhile is merged."""

    def __init__(self, producer: str, merging_window: int) -> None:
        self.producer: str = producer
        self.merging_window: int = merging_window
        self.busy: dict[Lane, None] = {}  # those with something to write
        self._lanes: dict[tuple[Kind, str], Lane] = {}

    def enter(self, push: Push | PushBatch) -> None:
        """Wait for the next output."""
        lane = self._lanes.get(push.lane)
        if lane is None:
            lane = self._lanes[push.lane] = Lane(self, *push.lane)
        lane.waiting.append(push)
        self.busy[lane] = None

    def take(self, traffic: Traffic, out: Pieces) -> None:
        busy, self.busy = self.busy, {}
        for lane in busy:
            for flight in lane.take():
                out += flight.pieces(traffic.expect(flight))
            if lane.waiting:
                self.busy[lane] = None

    def fail(self, error: NexoError) -> None:
        for lane in self._lanes.values():
            lane.fail(error)


def merged(pushes: list[Push]) -> Batch:
    """One batch of single messages."""
    if len(pushes) == 1:
        return _alone(pushes[0])
    batch = batch_of([push.body for push in pushes])
    if all(push.plain for push in pushes):
        return batch
    return msgspec.structs.replace(
        batch,
        priority=_constant(bytes([push.priority for push in pushes])),
        delay_ms=None if pushes[0].delay_ms is None else [push.delay_ms for push in pushes],
        groups=_column([push.group for push in pushes]),
        deduplication_ids=_column([push.deduplication_id for push in pushes]),
        attributes=_column([push.attributes for push in pushes]),
    )


def _alone(push: Push) -> Batch:
    """The same for one: most callers wait for each of their messages."""
    offsets = array(OFFSET_TYPE, (0, len(push.body)))
    if push.plain:
        return Batch(push.body, offsets)
    return Batch(
        push.body,
        offsets,
        push.priority,
        push.delay_ms,
        None if push.group is None else [push.group],
        None if push.deduplication_id is None else [push.deduplication_id],
        None if push.attributes is None else [push.attributes],
    )


def _constant(priorities: bytes) -> int | bytes:
    return priorities[0] if len(set(priorities)) == 1 else priorities


def _column(values: list[Any]) -> list[Any] | None:
    return None if all(value is None for value in values) else values


class MessageIds(Sequence[str]):
    """What `push_batch` gives: ids in the order of the bodies, made when they are asked for,
    because most producers never look."""

    __slots__ = ("_count", "_incarnation", "_made", "_ranges")

    def __init__(self, incarnation: int, ranges: tuple[int, ...]) -> None:
        self._incarnation = incarnation
        self._ranges = ranges
        self._count = sum(ranges[1::2]) - sum(ranges[::2])
        self._made: list[str] | None = None

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> list[str]: ...

    def __getitem__(self, index: int | slice) -> str | list[str]:
        return self._all()[index]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Sequence) and not isinstance(other, str):
            return self._all() == list(other)
        return NotImplemented

    __hash__: ClassVar[None] = None  # type: ignore[assignment]

    def __add__(self, other: Iterable[str]) -> list[str]:
        return [*self, *other]

    def __radd__(self, other: Iterable[str]) -> list[str]:
        return [*other, *self]

    def __repr__(self) -> str:
        return repr(self._all())

    def _all(self) -> list[str]:
        if self._made is None:
            self._made = list_of_ids(self._incarnation, self._ranges)
        return self._made


def list_of_ids(incarnation: int, ranges: tuple[int, ...]) -> list[str]:
    ids: list[str] = []
    for first, end in zip(ranges[::2], ranges[1::2], strict=True):
        prefix = message_id(incarnation, first)[:-_DIGITS]
        low = first & _COUNTER
        counters = array("Q", range(low, low + end - first))
        counters.byteswap()  # the most significant digit first
        digits = counters.tobytes().hex()
        ids += [prefix + digits[at : at + _DIGITS] for at in range(16 - _DIGITS, len(digits), 16)]
    return ids
