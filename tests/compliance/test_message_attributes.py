"""Message attributes: types, digests, names and limits."""

from typing import Any

import pytest

from tests.compliance.digests import binary, md5_of_attributes, number, text
from tests.compliance.queue import Queue
from tests.compliance.refusals import INVALID_VALUE, refused

ALL_TYPES = {
    "text": text("grüße 😀 \t\n"),
    "labelled": text("2026-01-01", "String.date"),
    "integer": number("42"),
    "negative": number("-0.5e-10"),
    "large": number("1" + "0" * 37),
    "precise": number("0.12345678901234567890123456789012345678"),
    "money": number("1.50", "Number.EUR"),
    "bytes": binary(bytes(range(256))),
    "png": binary(b"\x89PNG\r\n", "Binary.png"),
    "A-b_c.d": text("name"),
}


def test_types(queue: Queue) -> None:
    sent = queue.send(MessageAttributes=ALL_TYPES)
    assert sent["MD5OfMessageAttributes"] == md5_of_attributes(ALL_TYPES)
    message = queue.one()
    assert message["MessageAttributes"] == ALL_TYPES
    assert message["MD5OfMessageAttributes"] == md5_of_attributes(ALL_TYPES)


def test_a_binary_digest_that_aws_gave(queue: Queue) -> None:
    value = b"traceparent\x1e00-774062d6c37081a5a0b9b5b88e30627c-2d2482211f6489da-01"
    sent = queue.send("test", MessageAttributes={"attr1": binary(value)})
    assert sent["MD5OfMessageAttributes"] == "8cbe4db156db8a94db8b801b7addb984"


def test_sorted_by_bytes_not_by_letters(queue: Queue) -> None:
    attributes = {name: text(name) for name in ("b", "B", "a", "A", "_", "-x", "a.b", "ab")}
    sent = queue.send(MessageAttributes=attributes)
    assert sent["MD5OfMessageAttributes"] == md5_of_attributes(attributes)


def test_ten_and_no_more(queue: Queue) -> None:
    ten = {f"name{index}": text("v") for index in range(10)}
    queue.send(MessageAttributes=ten)
    with refused(
        INVALID_VALUE,
        "Number of message attributes [11] exceeds the allowed maximum [10].",
    ):
        queue.send(MessageAttributes={**ten, "name10": text("v")})


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        ".begin",
        "end.",
        "a..b",
        "with space",
        "what?",
        "a/b",
        "a" * 257,
        "AWS.mine",
        "aws.mine",
        "Amazon.mine",
        "AMAZON.mine",
    ],
)
def test_wrong_names(queue: Queue, wrong: str) -> None:
    with refused(INVALID_VALUE):
        queue.send(MessageAttributes={wrong: text("v")})
    assert queue.counts() == (0, 0, 0)


def test_names_that_only_look_wrong(queue: Queue) -> None:
    attributes = {name: text("v") for name in ("awsome", "AWS-x", "a" * 256, "1", "_", "attr.1øßä")}
    queue.send(MessageAttributes=attributes)
    assert queue.one()["MessageAttributes"] == attributes


@pytest.mark.parametrize(
    "wrong",
    [
        {"DataType": "", "StringValue": "v"},
        {"DataType": "string", "StringValue": "v"},
        {"DataType": "Colour", "StringValue": "v"},
        {"DataType": "String"},
        {"DataType": "String", "StringValue": ""},
        {"DataType": "String", "BinaryValue": b"v"},
        {"DataType": "Binary", "StringValue": "v"},
        {"DataType": "Binary", "BinaryValue": b""},
        {"DataType": "Number", "StringValue": "many"},
        {"DataType": "Number", "StringValue": ""},
        {"DataType": "String." + "x" * 250, "StringValue": "v"},
    ],
)
def test_wrong_values(queue: Queue, wrong: dict[str, Any]) -> None:
    with refused(INVALID_VALUE):
        queue.send(MessageAttributes={"name": wrong})
    assert queue.counts() == (0, 0, 0)


def test_an_empty_value_is_told(queue: Queue) -> None:
    with refused(
        INVALID_VALUE,
        "Message (user) attribute 'Details' must contain a non-empty value of type 'String'.",
    ):
        queue.send(MessageAttributes={"Details": text("")})


def test_forbidden_characters_in_values(queue: Queue) -> None:
    for character in ("\x00", "\x0b", "\uffff"):
        with pytest.raises(queue.sqs.exceptions.ClientError) as refusal:
            queue.send(MessageAttributes={"name": text(f"a{character}b")})
        code = refusal.value.response["Error"]["Code"]
        assert code in (INVALID_VALUE, "InvalidMessageContents")


def test_attributes_survive_a_failure(queue: Queue) -> None:
    queue.send(MessageAttributes=ALL_TYPES)
    queue.change(queue.one(), 0)
    assert queue.one()["MessageAttributes"] == ALL_TYPES


def test_lists_of_values(queue: Queue) -> None:
    """They are in the model, "reserved for future use"."""
    for listed in ({"StringListValues": ["a"]}, {"BinaryListValues": [b"a"]}):
        with refused(
            "AWS.SimpleQueueService.UnsupportedOperation",
            "Message attribute list values in SendMessage operation are not supported.",
        ):
            queue.send(MessageAttributes={"name": {**text("v"), **listed}})
    assert queue.counts() == (0, 0, 0)
