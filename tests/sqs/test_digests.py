"""Digests as AWS computes them: the expected values are from its own answers."""

import pytest

from nexo.doors.sqs_http.digests import attributes_digest, digest
from nexo.vocabulary.attributes import Typed

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
