"""Frames: what travels on a connection, in both directions. All numbers are little-endian.

    u32 size          of everything after this field
    u8  kind          what it is (`Kind`)
    u24 head size     an answer to many acks tells of each, so 64 KiB would not do
    u32 correlation   a reply carries that of its request; 0 where no reply is wanted
    head              small: a fixed struct for the hot kinds, msgpack for the rest
    body              large: columnar batches, as raw bytes

A frame that breaks these rules ends the connection: after garbage nothing that follows means
anything.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from nexo.vocabulary.errors import InvalidArgument, MessageTooLarge
from nexo.vocabulary.limits import FRAME_BYTES_MAX

HEAD_BYTES_MAX = 0xFFFFFF
PREFIX = Struct("<III")  # the kind is the low byte of the second number
_AFTER_SIZE = PREFIX.size - 4


class Kind(IntEnum):
    """The numbers are the protocol: never change one, only add."""

    HELLO = 1  # the client greets first
    WELCOME = 2
    HEARTBEAT = 3  # either side, when it has been silent for a while
    OK = 4  # the reply to a request that was done
    ERROR = 5  # the reply to a request that was refused
    DELIVER = 6  # messages for a subscription
    ENDED = 7  # a subscription is over: its queue was deleted
    GOODBYE = 8  # this side is about to close
    MOVED = 9  # what the client uses is at another node of the cluster: it may connect there

    PUSH = 16
    POP = 17
    ACK = 18
    RECEIVED = 19
    NACK = 20
    EXTEND = 21
    GIVE_BACK = 22
    SUBSCRIBE = 23
    UNSUBSCRIBE = 24
    CREDIT = 25  # a subscription has room for more
    PUBLISH = 26
    READ = 27  # a topic, from an offset
    FOLLOW = 28  # all topics of a pattern, from an offset each
    CALL = 32  # everything else, by name


_KINDS = {int(kind): kind for kind in Kind}


class Frame(NamedTuple):
    kind: Kind
    correlation: int
    head: bytes
    body: memoryview


class ProtocolError(InvalidArgument):
    """The other side does not speak the protocol: the connection must end."""


def frame(kind: Kind, correlation: int, head: bytes = b"", body: bytes = b"") -> bytes:
    """One frame as bytes."""
    size = _AFTER_SIZE + len(head) + len(body)
    return PREFIX.pack(size, len(head) << 8 | kind, correlation) + head + body


def frame_parts(
    kind: Kind, correlation: int, head: bytes, parts: list[bytes | memoryview]
) -> list[bytes | memoryview]:
    """The same for a large body, which is not copied: the pieces to write, in order."""
    size = _AFTER_SIZE + len(head) + sum(map(len, parts))
    if size > FRAME_BYTES_MAX:  # the other side would take it for garbage and hang up
        raise MessageTooLarge(
            f"an answer of {size} bytes does not fit a frame ({FRAME_BYTES_MAX})",
            "ask for fewer messages at once",
        )
    return [PREFIX.pack(size, len(head) << 8 | kind, correlation) + head, *parts]


class FirstFrame:
    """The first frame of a connection: small, or refused as soon as it is announced. Who sends it
    is not known, so nothing is kept of what may follow it."""

    def __init__(self, frame_bytes_max: int) -> None:
        self._buffer = bytearray()
        self._reader = FrameReader(frame_bytes_max)

    def feed(self, data: bytes) -> tuple[Frame | None, bytes]:
        """The frame once it is complete, and what came behind it."""
        buffer = self._buffer
        buffer += data
        if len(buffer) < 4:
            return None, b""
        end = 4 + self._reader.announced(buffer)
        if len(buffer) < end:
            return None, b""
        (first,) = self._reader.feed(bytes(buffer[:end]))
        return first, bytes(buffer[end:])


class FrameReader:
    """Turns what arrives into frames, however it was cut up on the way."""

    def __init__(self, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self._buffer = bytearray()
        self._body_bytes_max = frame_bytes_max - _AFTER_SIZE  # with the head

    @property
    def waiting_bytes(self) -> int:
        """What has come of a frame that is not complete yet."""
        return len(self._buffer)

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that are complete now. Their bodies are views of memory of their own."""
        buffer = self._buffer
        if buffer:
            buffer += data
            if len(buffer) < 4:
                return []
            size = self.announced(buffer)
            if len(buffer) < size + 4:
                return []  # without a copy of what has come so far
            return self._frames(buffer)  # it is theirs now: a copy of 64 MB takes 20 ms
        return self._frames(data)

    def _frames(self, data: bytes | bytearray) -> list[Frame]:
        self._buffer = buffer = bytearray()
        frames: list[Frame] = []
        view, at, length = memoryview(data), 0, len(data)
        while length - at >= PREFIX.size:
            size, described, correlation = PREFIX.unpack_from(data, at)
            kind = _KINDS.get(described & 0xFF)
            head_size = described >> 8
            if kind is None or not head_size <= size - _AFTER_SIZE <= self._body_bytes_max:
                raise self._error(size, described)
            end = at + 4 + size
            if end > length:
                break
            body_at = at + PREFIX.size + head_size
            head = bytes(data[at + PREFIX.size : body_at])
            frames.append(Frame(kind, correlation, head, view[body_at:end]))
            at = end
        if at < length:
            buffer += view[at:]
            if len(buffer) >= 4:
                self.announced(buffer)
        return frames

    def announced(self, buffer: bytearray) -> int:
        """The size of the frame that begins here. What is wrong is refused as soon as it shows,
        and not when all of the frame has come."""
        size = int.from_bytes(buffer[:4], "little")
        described = int.from_bytes(buffer[4:8], "little") if len(buffer) >= 8 else Kind.HELLO
        allowed = described >> 8 <= size - _AFTER_SIZE <= self._body_bytes_max
        if not allowed or described & 0xFF not in _KINDS:
            raise self._error(size, described)
        return size

    def _error(self, size: int, described: int) -> ProtocolError:
        if not 0 <= size - _AFTER_SIZE <= self._body_bytes_max:
            most = self._body_bytes_max + _AFTER_SIZE
            return ProtocolError(
                f"a frame of {size} bytes is not valid: {_AFTER_SIZE} to {most}",
                "check the port: this one is for Nexo clients, not for HTTP",
            )
        return ProtocolError(
            f"a frame of {size} bytes and kind {described & 0xFF} with a head of "
            f"{described >> 8} is not valid"
        )
