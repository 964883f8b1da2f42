"""Attributes keep their types for who asks, and are plain texts for all others."""

from nexo.vocabulary.attributes import (
    decode_attributes,
    decode_typed,
    encode_attributes,
    encode_typed,
    matches,
)

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
