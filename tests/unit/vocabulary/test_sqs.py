"""What SQS says of messages: digests as AWS computes them, and receipt handles that nobody can make
up. The expected digests are from AWS's own answers."""

import pytest

from nexo.vocabulary.attributes import Typed
from nexo.vocabulary.sqs import attributes_digest, digest, handle_of, read_handle

RECEIPT = (2**64 - 1, 3 << 44 | 9, 255 << 48 | 7)  # incarnation, lease, sequence number

OBSERVED: list[tuple[dict[str, Typed], str]] = [
    ({"Foo": ("String", "Bar")}, "ae7155c6026991b6d54b11589678bf9c"),
    ({"timestamp": ("Number", "1493147359900")}, "235c5c510d26fb653d073faed50ae77c"),
    (
        {
            "Help.Me": ("String", "Me"),
            "Hello": ("String", "There"),
            "General": ("String", "Kenobi"),
        },
        "4c360f3fdafd970e05fae2f149d997f5",
    ),
    (
        {
            "attr1": (
                "Binary",
                b"traceparent\x1e00-774062d6c37081a5a0b9b5b88e30627c-2d2482211f6489da-01",
            )
        },
        "8cbe4db156db8a94db8b801b7addb984",
    ),
    (
        {
            "AWSTraceHeader": (
                "String",
                "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1",
            )
        },
        "5ae4d5d7636402d80f4eb6d213245a88",
    ),
]


@pytest.mark.parametrize(("attributes", "expected"), OBSERVED)
def test_attributes(attributes: dict[str, Typed], expected: str) -> None:
    assert attributes_digest(attributes) == expected
    backwards = dict(reversed(attributes.items()))
    assert attributes_digest(backwards) == expected, "the order must not matter"


def test_none_have_none() -> None:
    assert attributes_digest({}) is None


def test_body() -> None:
    assert digest(b"message") == "78e731027d8fd50ed642340b7c9a63b3"


def test_a_handle_says_what_it_was_made_of() -> None:
    assert read_handle(handle_of(*RECEIPT)) == RECEIPT


@pytest.mark.parametrize("text", ["", "garbage", "a" * 1_000, "ü", "AAAA"])
def test_others_say_nothing(text: str) -> None:
    assert read_handle(text) is None


def test_no_letter_of_a_handle_can_be_changed() -> None:
    handle = handle_of(*RECEIPT)
    for at, letter in enumerate(handle.rstrip("=")):
        changed = handle[:at] + ("A" if letter != "A" else "B") + handle[at + 1 :]
        assert read_handle(changed) is None
