"""Attributes keep their types for who asks, and are plain texts for all others."""

import msgspec
import pytest

from nexo.vocabulary.attributes import (
    check_attributes,
    decode_attributes,
    decode_typed,
    encode_attributes,
    encode_typed,
    matches,
)
from nexo.vocabulary.errors import InvalidArgument

TYPED: dict[str, tuple[str, str | bytes]] = {
    "text": ("String", "red"),
    "label": ("String.colour", "red"),
    "number": ("Number", "1.50"),
    "bytes": ("Binary.png", b"\x00\xff"),
}


def test_types_survive() -> None:
    assert decode_typed(encode_typed(TYPED)) == TYPED


def test_types_are_not_in_the_way() -> None:
    encoded = encode_typed(TYPED)
    assert decode_attributes(encoded) == {
        "text": "red",
        "label": "red",
        "number": "1.50",
        "bytes": "AP8=",
    }
    assert matches({"label": "red", "number": "1.50"}, encoded)
    assert not matches({"number": "1.5"}, encoded)


def test_plain_texts_are_encoded_as_ever() -> None:
    assert encode_typed({"a": ("String", "b")}) == encode_attributes({"a": "b"})
    assert decode_typed(encode_attributes({"a": "b"})) == {"a": ("String", "b")}


def test_none_are_none() -> None:
    assert decode_typed(None) == {}
    assert decode_attributes(None) == {}


UNREADABLE = {
    "no msgpack": b"\xff\xff",
    "cut off": encode_attributes({"a": "b"})[:-1],
    "something behind it": encode_attributes({"a": "b"}) + b"\x01",
    "no map": msgspec.msgpack.encode(["a", "b"]),
    "a name that is no text": msgspec.msgpack.encode({1: "b"}),
    "a value that is a number": msgspec.msgpack.encode({"a": 5}),
    "a value of three": msgspec.msgpack.encode({"a": ["x", "y", "z"]}),
    "no UTF-8": b"\x81\xa1a\xa1\xff",
    "very deep": b"\x81\xa1a\x92\xa1x" + b"\x91" * 100_000 + b"\x01",
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_what_cannot_be_read_is_refused_and_where_it_is_stored_is_not_there(name: str) -> None:
    wrong, right = UNREADABLE[name], encode_attributes({"a": "b"})
    for column in (wrong, [wrong], [right, None, wrong]):
        with pytest.raises(InvalidArgument, match="attributes must be"):
            check_attributes(column)  # type: ignore[arg-type]
    assert not decode_attributes(wrong)
    assert not decode_typed(wrong)
    assert not matches({"a": "b"}, wrong)


def test_typed_values_are_texts_or_bytes() -> None:
    check_attributes([encode_typed(TYPED), None, b""])
    odd = msgspec.msgpack.encode({"a": ["Number", 5], "c": "d"})
    with pytest.raises(InvalidArgument, match="a value is 5"):
        check_attributes(odd)
    assert decode_attributes(odd) == {"a": "5", "c": "d"}
