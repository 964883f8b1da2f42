"""Batches are cut, picked from and joined without mixing up their messages."""

from array import array
from typing import Any

import msgspec
import pytest

from nexo.vocabulary import batch as batch_module
from nexo.vocabulary.attributes import encode_attributes, encode_typed
from nexo.vocabulary.batch import (
    Batch,
    DeadLetter,
    Origin,
    batch_of,
    check_shape,
    concatenate,
    fitting,
    largest_message,
    size_of,
)
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


def test_everything_that_a_message_carries_counts() -> None:
    fate = DeadLetter("è morto", "orders", 5, 1, 2)
    origins: list[Origin | None] = [None, Origin("id", 5), Origin("id", 5, fate)]
    batch = msgspec.structs.replace(FULL, groups=["é", None, "c"], origins=origins)
    sizes = [size_of(batch, index, index + 1) for index in range(3)]
    bare = [3 + len(b"red") + len("é".encode()) + 1, 3 + 1, 5 + len(b"blue") + 1]
    assert sizes[0] == bare[0]
    assert sizes[1] > bare[1], "an id of an earlier life counts"
    assert sizes[2] - bare[2] == sizes[1] - bare[1] + len("è morto".encode())
    assert batch.size == sum(sizes)
    assert CONSTANT.size == 4 + 2 * len(b"green") + 2 * len("d")


@pytest.mark.parametrize("batch", [FULL, CONSTANT, batch_of([b"a", b"", b"bcd"])])
def test_as_many_fit_as_their_sizes_allow(batch: Batch) -> None:
    for start in range(batch.count):
        for stop in range(start, batch.count + 1):
            for bytes_max in range(batch.size + 2):
                fits = [n for n in range(stop - start + 1) if _size(batch, start, n) <= bytes_max]
                assert fitting(batch, start, stop, bytes_max) == max(fits)


def _size(batch: Batch, start: int, count: int) -> int:
    return sum(size_of(batch, index, index + 1) for index in range(start, start + count))


def test_a_message_is_as_large_as_its_body_and_attributes() -> None:
    typed = encode_typed({"n": ("Number.int", "12"), "b": ("Binary", b"xyz")})
    attributes = [encode_attributes({"name": "è"}), typed, None]
    batch = msgspec.structs.replace(batch_of([b"12", b"1", b"123456"]), attributes=attributes)
    exact = [2 + 4 + 2, 1 + len("nNumber.int12bBinary") + 3, 6]
    for index in range(3):
        assert largest_message(batch.slice(index, index + 1), 0) == exact[index]
    assert largest_message(batch, 10) == max(exact)
    for size, counted in ((1_000, 0), (10_000, 10_000 + len("AWS.x") - 2_048)):
        system = encode_attributes({"AWS.x": "v" * size})
        message = msgspec.structs.replace(batch_of([b"1"]), attributes=system)
        assert largest_message(message, 0) == 1 + counted
    constant = msgspec.structs.replace(batch_of([b"", b"12"]), attributes=attributes[0])
    assert largest_message(constant, 0) == exact[0]
    assert largest_message(constant, exact[0]) <= exact[0]


def test_the_largest_message_counts_its_own_attributes() -> None:
    """However many others there are, and whether all have the same or each has some."""
    short, long = encode_attributes({"a": "b"}), encode_attributes({"name": "x" * 50})
    sizes = len("a") + len("b"), len("name") + 50
    plain = batch_of([b"x" * 10, b"x" * 90, b"x" * 20])
    assert largest_message(plain, 50) == 90
    each = msgspec.structs.replace(plain, attributes=[long, None, short])
    assert largest_message(each, 1_000) == 90, "below the limit nobody asks"
    assert largest_message(each, 50) == 90
    last = msgspec.structs.replace(plain, attributes=[short, long, None])
    assert largest_message(last, 100) >= 90 + sizes[1]
    same = msgspec.structs.replace(plain, attributes=long)
    assert largest_message(same, 1_000) == 90
    assert largest_message(same, 100) == largest_message(last, 100)


def test_size_of_many_is_found_once_and_of_this_batch_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    many = msgspec.structs.replace(batch_of([b"body"] * 2_000), groups=["group"] * 2_000)
    looks, honest = [0], batch_module.size_of

    def counted(*arguments: Any) -> int:
        looks[0] += 1
        return honest(*arguments)

    monkeypatch.setattr(batch_module, "size_of", counted)
    assert (many.size, many.size, looks) == (18_000, 18_000, [1])
    assert msgspec.structs.replace(many, groups=None).size == 8_000
    assert many == msgspec.structs.replace(many), "what is noted is no part of it"
