"""Frames: every way in which they can be cut up, and every way in which they can be wrong."""

from __future__ import annotations

import pytest

from nexo.vocabulary.errors import InvalidArgument, MessageTooLarge
from nexo.vocabulary.limits import FRAME_BYTES_MAX
from nexo.wire.frame import PREFIX, FrameReader, Kind, ProtocolError, frame, frame_parts

STREAM = (
    frame(Kind.HELLO, 1, b"head", b"body")
    + frame(Kind.HEARTBEAT, 0)
    + frame(Kind.PUSH, 0xFFFFFFFF, b"", b"x" * 1_000)
    + frame(Kind.OK, 7, b"y" * 70_000)
)


def test_the_layout() -> None:
    written = bytes.fromhex("0b000000 10 020000 04030201 6162 63")
    assert frame(Kind.PUSH, 0x01020304, b"ab", b"c") == written


def test_a_head_may_be_larger_than_64_kib() -> None:
    (arrived,) = FrameReader().feed(frame(Kind.OK, 1, b"h" * 100_000, b"b"))
    assert (len(arrived.head), bytes(arrived.body)) == (100_000, b"b")


@pytest.mark.parametrize("step", [1, 3, 11, 12, 13, 997, 10**6])
def test_cut_points_do_not_matter(step: int) -> None:
    reader = FrameReader()
    frames = []
    for start in range(0, len(STREAM), step):
        frames += reader.feed(STREAM[start : start + step])
    assert [(f.kind, f.correlation, len(f.head), len(f.body)) for f in frames] == [
        (Kind.HELLO, 1, 4, 4),
        (Kind.HEARTBEAT, 0, 0, 0),
        (Kind.PUSH, 0xFFFFFFFF, 0, 1_000),
        (Kind.OK, 7, 70_000, 0),
    ]
    assert reader.waiting_bytes == 0


def test_parts_are_the_same_frame() -> None:
    whole = frame(Kind.PUSH, 3, b"head", b"onetwo")
    parts = frame_parts(Kind.PUSH, 3, b"head", [b"one", memoryview(b"two")])
    assert b"".join(parts) == whole


@pytest.mark.parametrize(
    "wrong",
    [
        PREFIX.pack(FRAME_BYTES_MAX + 1, Kind.PUSH, 1),
        PREFIX.pack(7, Kind.PUSH, 1),
        PREFIX.pack(0, 0, 0),
        PREFIX.pack(8, 99, 1),
        PREFIX.pack(8, 0, 1),
        PREFIX.pack(9, 2 << 8 | Kind.PUSH, 1) + b"x",
        b"GET / HTTP/1.1\r\n\r\n",
    ],
)
def test_what_breaks_the_rules(wrong: bytes) -> None:
    with pytest.raises(ProtocolError) as caught:
        FrameReader().feed(wrong)
    assert isinstance(caught.value, InvalidArgument)
    with pytest.raises(ProtocolError):
        _feed_slowly(FrameReader(), wrong)


def _feed_slowly(reader: FrameReader, data: bytes) -> None:
    for byte in data:
        reader.feed(bytes([byte]))


def test_a_size_is_refused_before_its_bytes_come() -> None:
    reader = FrameReader()
    with pytest.raises(ProtocolError):
        reader.feed(PREFIX.pack(FRAME_BYTES_MAX + 1, Kind.PUSH, 1)[:4])


def test_bodies_outlive_the_next_bytes() -> None:
    reader = FrameReader()
    (first,) = reader.feed(frame(Kind.PUSH, 1, b"", b"first"))
    reader.feed(frame(Kind.PUSH, 2, b"", b"other"))
    assert bytes(first.body) == b"first"


def test_a_frame_that_the_other_side_would_refuse_is_not_made() -> None:
    pieces = [memoryview(bytes(FRAME_BYTES_MAX // 4))] * 5
    with pytest.raises(MessageTooLarge, match="does not fit a frame"):
        frame_parts(Kind.OK, 3, b"", [*pieces])
