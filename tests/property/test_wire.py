"""The codec under fire: any bytes are frames or a `ProtocolError`, wherever they are cut, and what
is in a frame is within its ranges or refused."""

from __future__ import annotations

from array import array
from contextlib import suppress
from itertools import pairwise
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from nexo.vocabulary.attributes import decode_attributes
from nexo.vocabulary.batch import TIME_TYPE, Batch, Origin, batch_of
from nexo.vocabulary.errors import InvalidArgument
from nexo.wire import commands as c
from nexo.wire.columns import decode_batch, decode_given, decode_parts, encode_batch
from nexo.wire.frame import PREFIX, FrameReader, Kind, ProtocolError, frame

HEADS = [c.Hello, c.Welcome, c.Refusal, c.Ended, c.Nack, c.Extend, c.Subscribe, c.Publish, c.Read]
UNPACKERS: list[Any] = [
    c.unpack_push,
    c.unpack_pop,
    c.unpack_ranges,
    c.unpack_credit,
    c.unpack_unsubscribe,
    c.unpack_accepted,
    c.unpack_delivery,
    *[lambda head, kind=kind: c.unpack(head, kind) for kind in (*HEADS, c.Follow, c.Called)],
]
frames = st.builds(
    frame,
    st.sampled_from(list(Kind)),
    st.integers(0, 2**32 - 1),
    st.binary(max_size=300),
    st.binary(max_size=300),
)
# Bytes that look like frames get further than noise does.
nearly_frames = st.builds(
    lambda size, described, rest: PREFIX.pack(size, described, 1) + rest,
    st.integers(0, 400),
    st.integers(0, 2**32 - 1),
    st.binary(max_size=300),
)
anything = st.one_of(
    st.binary(max_size=500),
    st.lists(st.one_of(frames, nearly_frames, st.binary(max_size=30)), max_size=6).map(b"".join),
)


def _read(pieces: list[bytes]) -> tuple[list[tuple[Any, ...]], bool]:
    """The frames, and whether it broke."""
    reader, seen = FrameReader(1_000), []
    try:
        for piece in pieces:
            seen += [(f.kind, f.correlation, f.head, bytes(f.body)) for f in reader.feed(piece)]
    except ProtocolError:
        return seen, True
    return seen, False


@given(anything)
def test_any_bytes_are_frames_or_a_protocol_error(data: bytes) -> None:
    _read([data])


@given(st.lists(frames, max_size=8), st.lists(st.integers(0, 3_000), max_size=8))
def test_cut_points_do_not_matter(sent: list[bytes], cuts: list[int]) -> None:
    data = b"".join(sent)
    bounds = sorted({0, len(data), *[cut for cut in cuts if cut < len(data)]})
    pieces = [data[low:high] for low, high in pairwise(bounds)]
    assert _read(pieces) == _read([data])
    assert len(_read([data])[0]) == len(sent)


@given(anything)
def test_byte_by_byte_breaks_where_the_whole_does(data: bytes) -> None:
    whole, broke = _read([data])
    slowly, broke_slowly = _read([data[at : at + 1] for at in range(len(data))])
    assert broke == broke_slowly
    if not broke:
        assert slowly == whole


@given(st.sampled_from(UNPACKERS), st.binary(max_size=200))
def test_any_head_is_read_or_refused(unpack: Any, head: bytes) -> None:
    with suppress(InvalidArgument):
        unpack(head)


_text = st.text(max_size=5)
_origins = st.builds(Origin, _text, st.integers(0, 2**50))
batches = st.integers(1, 6).flatmap(
    lambda count: st.builds(
        _batch,
        st.lists(st.binary(max_size=20), min_size=count, max_size=count),
        st.one_of(st.integers(0, 255), st.binary(min_size=count, max_size=count)),
        st.one_of(st.none(), st.integers(0, 2**40), _column(st.integers(0, 2**40), count)),
        st.one_of(st.none(), st.text(max_size=5), _column(st.one_of(st.none(), _text), count)),
        st.one_of(st.none(), _column(st.one_of(st.none(), _text), count)),
        st.one_of(st.none(), st.binary(max_size=9), _column(st.binary(max_size=9), count)),
        st.one_of(st.none(), _column(st.one_of(st.none(), _origins), count)),
        st.one_of(st.none(), _column(st.integers(-(2**63), 2**63 - 1), count)),
    )
)


def _column(values: Any, count: int) -> Any:
    return st.lists(values, min_size=count, max_size=count)


def _batch(bodies: list[bytes], *columns: Any) -> Batch:
    names = ("priority", "delay_ms", "groups", "deduplication_ids", "attributes", "origins")
    *rest, created = columns
    return msgspec.structs.replace(
        batch_of(bodies),
        **dict(zip(names, rest, strict=True)),
        created=None if created is None else array(TIME_TYPE, created),
    )


@given(batches)
def test_batches_there_and_back(batch: Batch) -> None:
    encoded = b"".join(encode_batch(batch))
    assert decode_batch(memoryview(encoded)) == (batch, len(encoded))


@given(batches, st.data())
def test_a_damaged_batch_is_read_or_refused(batch: Batch, data: st.DataObject) -> None:
    encoded = bytearray(b"".join(encode_batch(batch)))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(encoded) - 1))
        encoded[at] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(encoded)))
    for view in (memoryview(encoded), memoryview(encoded)[:cut]):
        with suppress(InvalidArgument):
            decoded, end = decode_batch(view)
            assert end <= len(view)
            assert len(decoded.bodies()) == decoded.count
        with suppress(InvalidArgument):
            decode_parts(view)
        with suppress(InvalidArgument):
            accepted = decode_given(view)
            assert accepted == decode_batch(view)[0]
            column = accepted.attributes
            for each in [column] if isinstance(column, bytes) else column or []:
                decode_attributes(each)


@given(st.binary(max_size=400))
def test_any_bytes_are_parts_or_refused(data: bytes) -> None:
    with suppress(InvalidArgument):
        decode_parts(memoryview(data))
    with suppress(InvalidArgument):
        decode_batch(memoryview(data))
    with suppress(InvalidArgument):
        decode_given(memoryview(data))
