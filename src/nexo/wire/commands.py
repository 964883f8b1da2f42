"""The heads of requests and replies: what each kind of frame says besides its body.

Hot kinds are fixed structs behind the queue's name; the rest is msgpack. Every head is decoded
through here. What is no head at all is a `ProtocolError`, which ends the connection; one whose
fields are out of range is an `InvalidArgument`, and the request is refused.
"""

from __future__ import annotations

import struct
from struct import Struct
from typing import TYPE_CHECKING, Any

import msgspec

from nexo.vocabulary import fields, limits
from nexo.vocabulary.errors import InvalidArgument
from nexo.vocabulary.fields import check_allowed, check_chars
from nexo.wire.frame import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable

    from nexo.vocabulary.errors import NexoError

PROTOCOL_VERSION = 1
MAGIC = "NEXO"

_PUSH = Struct("<QH")  # number, size of the producer's name
_CHECKSUM = Struct("<Q")  # after that name, if there is one
_POP = Struct("<IQqqB")  # count, bytes_max, wait_ms, visibility_ms (-1: the queue's), flags
_RANGE = Struct("<QQQ")  # lease, first, end
_CREDIT = Struct("<II")  # subscription, messages; of UNSUBSCRIBE: subscription, keep
_ACCEPTED = Struct("<QI")  # incarnation, duplicates; flat ranges follow
_DELIVERY = Struct("<QqBQIqI")  # the fields of DeliveryHead, in order

_RANGES_BYTES_MAX = _RANGE.size * limits.RECEIPT_RANGES_MAX

# Flags of POP.
ONE_ACK = 1  # the delivery counts as received
AHEAD = 2  # nobody has come for it yet: without a reception ack it ends with the connection …


class Hello(msgspec.Struct, frozen=True, array_like=True):
    magic: str
    versions: tuple[int, int]  # the lowest and the highest that the client speaks
    client: fields.ClientName
    token: str | None = None
    heartbeat_ms: int = 10_000
    software: fields.ClientName = ""  # the client library and its version
    # Of a node of a cluster that passes a client's calls on; whoever gets it passes nothing on
    # again. `passed` is a secret that only nodes know; with it come the number of the connection
    # at that node, and the client's address. Clients leave them empty.
    passed: str = ""
    number: int = 0
    address: str = ""
    follows: bool = False  # the client knows MOVED


class Welcome(msgspec.Struct, frozen=True, array_like=True):
    version: int
    server: str
    heartbeat_ms: int
    instance: int = 0  # the same number: the same run of the broker, and its journal not reopened
    clock_ahead_ms: int = 0  # how far the clock of queues is ahead of the broker's system clock
    cluster: str = ""  # the same for all nodes of a cluster; empty: the broker is alone


class Moved(msgspec.Struct, frozen=True, array_like=True):
    """Most of what the client does on this connection is passed on to another node."""

    address: str  # host and port of the node, as other nodes know it


class Refusal(msgspec.Struct, frozen=True, array_like=True):
    """An error as it travels: the code decides which exception it becomes."""

    code: str
    message: str
    hint: str
    retryable: bool


class Ended(msgspec.Struct, frozen=True, array_like=True):
    """A subscription is over."""

    subscription: int
    refusal: Refusal


class Nack(msgspec.Struct, frozen=True, array_like=True):
    queue: fields.Name
    ranges: fields.RangeList
    delay_ms: fields.DelayMs | None = None
    reason: str = ""


class Extend(msgspec.Struct, frozen=True, array_like=True):
    queue: fields.Name
    ranges: fields.RangeList
    timeout_ms: fields.TimeoutMs


class Subscribe(msgspec.Struct, frozen=True, array_like=True):
    queue: fields.Name
    subscription: fields.SubscriptionNumber
    prefetch: fields.Prefetch
    consumer: fields.ClientName = ""
    visibility_ms: fields.TimeoutMs | None = None
    one_ack: bool = False
    held: fields.Held = 0  # of the prefetch: messages that the client kept from a connection before
    linger_ms: fields.LingerMs = 0  # how long to gather what comes in close succession


class Publish(msgspec.Struct, frozen=True, array_like=True):
    topic: fields.Name
    producer: fields.ProducerName = ""
    number: fields.Number = 0
    checksum: fields.Number = 0


class Read(msgspec.Struct, frozen=True, array_like=True):
    topic: fields.Name
    offset: fields.Number
    count: fields.ReadCount
    bytes_max: fields.ReadBytes
    strict: bool = False
    wait_ms: fields.WaitMs = 0
    time_ms: fields.TimeMs | None = (
        None  # in place of the offset: the first message at or after a time
    )


class Follow(msgspec.Struct, frozen=True, array_like=True):
    """The topics that match a pattern: a topic without an offset is read from its beginning."""

    pattern: fields.PatternText
    offsets: fields.Offsets
    count: fields.ReadCount
    bytes_max: fields.ReadBytes
    wait_ms: fields.WaitMs = 0


class FollowedTopic(msgspec.Struct, frozen=True, array_like=True):
    """How much of the body is of this topic, and the offset to go on at."""

    topic: str
    next: int
    body_bytes: int


class Followed(msgspec.Struct, frozen=True, array_like=True):
    """What a FOLLOW found, in the order of the body."""

    topics: list[FollowedTopic]


class Call(msgspec.Struct, frozen=True, array_like=True):
    method: str
    params: dict[str, Any] = {}


class Called(msgspec.Struct, frozen=True, array_like=True):
    """A call as it arrives: what its parameters may be, its method says."""

    method: fields.CallName
    params: msgspec.Raw = msgspec.Raw(b"\x80")  # an empty map


class Push(msgspec.Struct, frozen=True, gc=False):
    queue: str
    producer: str = ""
    number: int = 0
    checksum: int = 0  # of the messages, as the producer counts it; 0 is none


class Pop(msgspec.Struct, frozen=True, gc=False):
    queue: str
    count: int
    bytes_max: int
    wait_ms: int = 0
    visibility_ms: int | None = None
    one_ack: bool = False
    ahead: bool = False


class Acked(msgspec.Struct, frozen=True, gc=False):
    """Which messages an ACK, RECEIVED or GIVE_BACK is about."""

    queue: str
    ranges: list[tuple[int, int, int]]  # lease, first, end


class Credit(msgspec.Struct, frozen=True, gc=False):
    subscription: int
    count: int


class AcceptedHead(msgspec.Struct, frozen=True, gc=False):
    incarnation: int
    duplicates: int
    ranges: tuple[int, ...]


class Unsubscribe(msgspec.Struct, frozen=True, gc=False):
    """With `keep`, what the client holds stays its own: it gives back what it will not work on.
    Without, everything that is not acked goes back."""

    subscription: int
    keep: bool = False


class DeliveryHead(msgspec.Struct, frozen=True, gc=False):
    lease: int
    deadline_ms: int  # of the lease, by the clock of the broker
    state: int
    incarnation: int
    subscription: int = 0
    now_ms: int = 0  # that clock when the messages went out
    visibility_ms: int = 0  # the visibility timeout of the queue


pack: Callable[[object], bytes] = msgspec.msgpack.Encoder().encode
_REQUESTS = (Nack, Extend, Subscribe, Publish, Read, Follow, Called)
_decoders: dict[type[Any], msgspec.msgpack.Decoder[Any]] = {
    kind: msgspec.msgpack.Decoder(kind)
    for kind in (*_REQUESTS, Hello, Welcome, Moved, Refusal, Ended, Followed)
}


def unpack(head: bytes | memoryview, kind: type[Any]) -> Any:
    """A msgpack head as a value of this type."""
    try:
        return _decoders[kind].decode(head)
    except msgspec.ValidationError as error:
        if kind in _REQUESTS:
            raise fields.refused(error, kind) from None
        raise _unreadable(kind, error) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _unreadable(kind, error) from None


def _unreadable(kind: type[Any], error: Exception) -> ProtocolError:
    return ProtocolError(f"a {kind.__name__} that cannot be read: {error}")


def pack_push(push: Push) -> bytes:
    producer = push.producer.encode()
    checksum = _CHECKSUM.pack(push.checksum) if push.checksum else b""
    return _named(push.queue) + _PUSH.pack(push.number, len(producer)) + producer + checksum


def unpack_push(head: bytes) -> Push:
    queue, at = _name(head)
    number, size = _unpack(_PUSH, head, at)
    at += _PUSH.size
    end, checksum = at + size, 0
    if len(head) == end + _CHECKSUM.size:
        (checksum,) = _unpack(_CHECKSUM, head, end)
    elif len(head) != end:
        raise ProtocolError("the head of a push has the wrong size")
    producer = _text(head[at:end])
    if max(number, checksum) > limits.INTEGER_MAX or size > limits.PRODUCER_CHARS_MAX:
        check_allowed("number", number, 0, limits.INTEGER_MAX)
        check_allowed("checksum", checksum, 0, limits.INTEGER_MAX)
        check_chars("producer", producer, limits.PRODUCER_CHARS_MAX)
    return Push(queue, producer, number, checksum)


def pack_pop(pop: Pop) -> bytes:
    visibility_ms = -1 if pop.visibility_ms is None else pop.visibility_ms
    flags = (ONE_ACK if pop.one_ack else 0) | (AHEAD if pop.ahead else 0)
    return _named(pop.queue) + _POP.pack(
        pop.count, pop.bytes_max, pop.wait_ms, visibility_ms, flags
    )


def unpack_pop(head: bytes) -> Pop:
    queue, at = _name(head)
    count, bytes_max, wait_ms, visibility_ms, flags = _unpack(_POP, head, at)
    if not (
        0 < count <= limits.POP_MESSAGES_MAX
        and 0 < bytes_max <= limits.POP_BYTES_MAX
        and 0 <= wait_ms <= limits.WAIT_MS_MAX
        and -1 <= visibility_ms <= limits.TIMEOUT_MS_MAX
    ):  # one look for all of them: this is a hot path
        check_allowed("count", count, 1, limits.POP_MESSAGES_MAX)
        check_allowed("bytes_max", bytes_max, 1, limits.POP_BYTES_MAX)
        check_allowed("wait_ms", wait_ms, 0, limits.WAIT_MS_MAX)
        check_allowed("visibility_ms", visibility_ms, -1, limits.TIMEOUT_MS_MAX)
    visibility = None if visibility_ms < 0 else visibility_ms
    one_ack, ahead = bool(flags & ONE_ACK), bool(flags & AHEAD)
    return Pop(queue, count, bytes_max, wait_ms, visibility, one_ack, ahead)


def pack_ranges(queue: str, ranges: list[tuple[int, int, int]]) -> bytes:
    return _named(queue) + b"".join([_RANGE.pack(*each) for each in ranges])


def unpack_ranges(head: bytes) -> Acked:
    queue, at = _name(head)
    if (len(head) - at) % _RANGE.size or len(head) == at:
        raise ProtocolError("the ranges of an ack are cut off")
    if len(head) > _RANGES_BYTES_MAX:
        count = (len(head) - at) // _RANGE.size
        check_allowed("the number of ranges", count, 1, limits.RECEIPT_RANGES_MAX)
    ranges = list(_RANGE.iter_unpack(head[at:]))
    check_ranges(ranges)
    return Acked(queue, ranges)


def check_ranges(ranges: list[tuple[int, int, int]]) -> None:
    """Refuse ranges that cannot be of any delivery."""
    most = limits.INTEGER_MAX
    for lease, first, end in ranges:
        if first > end or end > most or lease > most:
            raise InvalidArgument(
                f"a range of lease {lease} is {first} to {end}, allowed is 0 to {most} in order"
            )


def pack_credit(subscription: int, count: int) -> bytes:
    return _CREDIT.pack(subscription, count)


def unpack_credit(head: bytes) -> Credit:
    return Credit(*_unpack(_CREDIT, head, 0))


def pack_unsubscribe(subscription: int, keep: bool) -> bytes:
    return _CREDIT.pack(subscription, keep)


def unpack_unsubscribe(head: bytes) -> Unsubscribe:
    subscription, keep = _unpack(_CREDIT, head, 0)
    return Unsubscribe(subscription, bool(keep))


def pack_accepted(incarnation: int, duplicates: int, ranges: list[int]) -> bytes:
    return _ACCEPTED.pack(incarnation, duplicates) + Struct(f"<{len(ranges)}Q").pack(*ranges)


def unpack_accepted(head: bytes) -> AcceptedHead:
    incarnation, duplicates = _unpack(_ACCEPTED, head, 0)
    rest = head[_ACCEPTED.size :]
    if len(rest) % 16:
        raise ProtocolError("the answer to a push is cut off")
    return AcceptedHead(incarnation, duplicates, Struct(f"<{len(rest) // 8}Q").unpack(rest))


def pack_delivery(head: DeliveryHead) -> bytes:
    return _DELIVERY.pack(
        head.lease,
        head.deadline_ms,
        head.state,
        head.incarnation,
        head.subscription,
        head.now_ms,
        head.visibility_ms,
    )


def unpack_delivery(head: bytes) -> DeliveryHead:
    return DeliveryHead(*_unpack(_DELIVERY, head, 0))


def refusal_of(error: NexoError) -> bytes:
    return pack(Refusal(error.code, error.message, error.hint, error.retryable))


def _named(name: str) -> bytes:
    encoded = name.encode()
    if len(encoded) > 255:
        raise ProtocolError(f"a name of {len(encoded)} bytes does not fit a frame")
    return bytes((len(encoded),)) + encoded


def _name(head: bytes) -> tuple[str, int]:
    if not head or len(head) < 1 + head[0]:
        raise ProtocolError("the name is cut off")
    end = 1 + head[0]
    return _text(head[1:end]), end


def _text(encoded: bytes) -> str:
    try:
        return encoded.decode()
    except UnicodeDecodeError:
        raise ProtocolError("a name is not UTF-8") from None


def _unpack(layout: Struct, head: bytes, at: int) -> tuple[Any, ...]:
    try:
        return layout.unpack_from(head, at)
    except struct.error:
        raise ProtocolError("the head of a frame is cut off") from None
