"""Batches are cut, picked from and joined without mixing up their messages."""

from array import array
from typing import Any

import msgspec
import pytest

from nexo.vocabulary.batch import Batch, Origin, batch_of, check_shape, concatenate
from nexo.vocabulary.errors import InvalidArgument

FULL = Batch(
    payload=b"onetwothree",
    offsets=array("i", [0, 3, 6, 11]),
    priority=bytes([1, 2, 3]),
    delay_ms=[10, 20, 30],
    groups=["a", None, "c"],
    deduplication_ids=["x", "y", None],
    attributes=[b"red", None, b"blue"],
    origins=[None, Origin("id", 5), None],
    created=array("q", [100, 200, 300]),
)
CONSTANT = msgspec.structs.replace(
    batch_of([b"four", b""]), priority=7, delay_ms=40, groups="d", attributes=b"green"
)


def test_bodies_lie_end_to_end() -> None:
    batch = batch_of([b"one", b"", b"three"])
    assert batch.payload == b"onethree"
    assert list(batch.offsets) == [0, 3, 3, 8]
    assert batch.bodies() == [b"one", b"", b"three"]
    assert batch.count == 3


def test_slice_cuts_every_column() -> None:
    assert FULL.slice(1, 3) == Batch(
        payload=b"twothree",
        offsets=array("i", [0, 3, 8]),
        priority=bytes([2, 3]),
        delay_ms=[20, 30],
        groups=[None, "c"],
        deduplication_ids=["y", None],
        attributes=[None, b"blue"],
        origins=[Origin("id", 5), None],
        created=array("q", [200, 300]),
    )


def test_slice_of_everything_is_the_batch_itself() -> None:
    assert FULL.slice(0, 3) is FULL


def test_slice_of_nothing_is_empty() -> None:
    assert FULL.slice(1, 1).count == 0


def test_select_takes_messages_in_the_order_asked_for() -> None:
    chosen = FULL.select([2, 0])
    assert chosen.bodies() == [b"three", b"one"]
    assert chosen.priority == bytes([3, 1])
    assert (chosen.delay_ms, chosen.groups) == ([30, 10], ["c", "a"])
    assert (chosen.deduplication_ids, chosen.attributes) == ([None, "x"], [b"blue", b"red"])
    assert chosen.origins == [None, None]
    assert chosen.created == array("q", [300, 100])


def test_constants_stay_constants() -> None:
    for part in (CONSTANT.slice(1, 2), CONSTANT.select([1])):
        assert part.bodies() == [b""]
        assert (part.priority, part.delay_ms) == (7, 40)
        assert (part.groups, part.attributes) == ("d", b"green")


def test_concatenate_writes_out_what_differs() -> None:
    joined = concatenate([FULL.slice(1, 3), CONSTANT])
    assert joined.bodies() == [b"two", b"three", b"four", b""]
    assert joined.groups == [None, "c", "d", "d"]
    assert joined.attributes == [None, b"blue", b"green", b"green"]
    assert joined.deduplication_ids == ["y", None, None, None]
    assert joined.origins == [Origin("id", 5), None, None, None]


def test_concatenate_keeps_what_agrees() -> None:
    joined = concatenate([CONSTANT, CONSTANT])
    assert (joined.groups, joined.attributes) == ("d", b"green")
    assert concatenate([FULL]) is FULL


def test_concatenate_joins_the_times() -> None:
    joined = concatenate([FULL.slice(0, 1), FULL.slice(1, 3)])
    assert joined.created == FULL.created


@pytest.mark.parametrize("batch", [FULL, CONSTANT, batch_of([b""])])
def test_shape_is_right(batch: Batch) -> None:
    check_shape(batch)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"payload": b"", "offsets": array("i", [0])}, "no message"),
        ({"offsets": array("i", [1, 3, 6, 11])}, "span"),
        ({"offsets": array("i", [0, 3, 6, 10])}, "span"),
        ({"offsets": array("i", [0, 6, 3, 11])}, "decrease"),
        ({"priority": bytes([1, 2])}, "priority"),
        ({"delay_ms": [1, 2, 3, 4]}, "delay_ms"),
        ({"groups": ["a"]}, "groups"),
        ({"deduplication_ids": []}, "deduplication_ids"),
        ({"attributes": [None]}, "attributes"),
        ({"origins": [None]}, "origins"),
    ],
)
def test_columns_that_do_not_fit_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        check_shape(msgspec.structs.replace(FULL, **changes))
