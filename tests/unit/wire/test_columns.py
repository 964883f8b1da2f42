"""Batches and deliveries as bytes."""

from __future__ import annotations

from array import array
from typing import Any

import msgspec
import pytest

from nexo.vocabulary.batch import OFFSET_TYPE, TIME_TYPE, Batch, DeadLetter, Origin, batch_of
from nexo.vocabulary.errors import InvalidArgument
from nexo.wire.columns import WirePart, decode_batch, decode_parts, encode_batch, encode_parts
from nexo.wire.frame import ProtocolError

FULL = Batch(
    payload=b"abc",
    offsets=array(OFFSET_TYPE, [0, 1, 3]),
    priority=b"\x01\x02",
    delay_ms=[0, 5],
    groups=["g", None],
    deduplication_ids=[None, "d"],
    attributes=[b"\x80", None],
    origins=[Origin("id", 5, DeadLetter("why", "from", 3, 1, 2)), None],
    created=array(TIME_TYPE, [7, 8]),
)


def _encoded(batch: Batch) -> bytes:
    return b"".join(encode_batch(batch))


@pytest.mark.parametrize(
    "batch", [batch_of([b""]), batch_of([b"a", b"", b"ccc"]), FULL, batch_of([b"x"] * 5_000)]
)
def test_there_and_back(batch: Batch) -> None:
    encoded = _encoded(batch)
    decoded, end = decode_batch(memoryview(encoded))
    assert decoded == batch
    assert end == len(encoded)


def test_plain_batches_carry_no_columns() -> None:
    assert len(_encoded(batch_of([b"abc"]))) == 12 + 8 + 3


def test_parts() -> None:
    parts = [WirePart(5, 10, 11, 2, FULL), WirePart(2**60, 1, 0, 1, batch_of([b"x"]))]
    encoded = b"".join(encode_parts(parts))
    assert decode_parts(memoryview(encoded)) == parts
    assert decode_parts(memoryview(b"")) == []
    for length in range(1, len(encoded)):
        if length == len(b"".join(encode_parts(parts[:1]))):
            continue
        with pytest.raises((ProtocolError, InvalidArgument)):
            decode_parts(memoryview(encoded[:length]))


@pytest.mark.parametrize(
    "changes",
    [
        {"offsets": array(OFFSET_TYPE, [0, 2, 1])},
        {"offsets": array(OFFSET_TYPE, [1, 2, 3])},
        {"offsets": array(OFFSET_TYPE, [0, 1, 9])},
        {"offsets": array(OFFSET_TYPE, [0, -1, 3])},
        {"offsets": array(OFFSET_TYPE, [0])},
        {"priority": b"\x01"},
        {"groups": ["g"]},
        {"delay_ms": [1, 2, 3]},
        {"origins": []},
        {"created": array(TIME_TYPE, [1])},
    ],
)
def test_columns_that_do_not_fit_together(changes: dict[str, Any]) -> None:
    wrong = msgspec.structs.replace(FULL, **changes)
    with pytest.raises(InvalidArgument):
        decode_batch(memoryview(_encoded(wrong)))
