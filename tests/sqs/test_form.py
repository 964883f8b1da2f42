"""The query protocol's names become requests, and what is odd does no harm."""

import tracemalloc
from typing import Any
from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nexo.doors.http.body import fields_of, read_form
from nexo.doors.sqs_http import shapes
from nexo.doors.sqs_http.errors import SqsError
from nexo.doors.sqs_http.query import read_fields, request_of
from nexo.vocabulary.errors import InvalidArgument
from nexo.vocabulary.limits import SQS_FORM_FIELDS_MAX

LISTS: list[tuple[str, type[shapes.Shape], str, Any]] = [
    (
        "AttributeName.2=b&AttributeName.1=a&AttributeName.10=c",
        shapes.GetQueueAttributesRequest,
        "attribute_names",
        ["a", "b", "c"],
    ),
    ("AttributeName=All", shapes.GetQueueAttributesRequest, "attribute_names", ["All"]),
    ("AttributeName=", shapes.GetQueueAttributesRequest, "attribute_names", []),
    ("AttributeNames=", shapes.GetQueueAttributesRequest, "attribute_names", []),
    (
        "Attribute.1.Name=DelaySeconds&Attribute.1.Value=5&Attribute.2.Name=Policy",
        shapes.SetQueueAttributesRequest,
        "attributes",
        {"DelaySeconds": "5", "Policy": ""},
    ),
    (
        "Attribute.Name=DelaySeconds&Attribute.Value=5",
        shapes.SetQueueAttributesRequest,
        "attributes",
        {"DelaySeconds": "5"},
    ),
    ("Tag.1.Key=a&Tag.1.Value=b", shapes.TagQueueRequest, "tags", {"a": "b"}),
    ("Tag.1.Key=a&Tag.1.Value=b", shapes.CreateQueueRequest, "tags", {"a": "b"}),
    ("MaxNumberOfMessages=7", shapes.ReceiveMessageRequest, "max_number_of_messages", 7),
    ("Colour=red&QueueUrl=u", shapes.ReceiveMessageRequest, "queue_url", "u"),
]


@pytest.mark.parametrize(("text", "kind", "field", "expected"), LISTS)
def test_fields(text: str, kind: type[shapes.Shape], field: str, expected: Any) -> None:
    assert getattr(request_of(read_fields(text.encode()), kind), field) == expected


def test_entries_with_attributes() -> None:
    entry = "SendMessageBatchRequestEntry.1."
    text = (
        f"{entry}Id=x&{entry}MessageBody=a%20b%2Bc&{entry}MessageAttribute.1.Name=n&"
        f"{entry}MessageAttribute.1.Value.DataType=Binary&"
        f"{entry}MessageAttribute.1.Value.BinaryValue=AP8%3D"
    )
    request = request_of(read_fields(text.encode()), shapes.SendMessageBatchRequest)
    assert isinstance(request, shapes.SendMessageBatchRequest)
    (sent,) = request.entries or []
    assert (sent.id, sent.message_body) == ("x", "a b+c")
    value = shapes.MessageAttributeValue(data_type="Binary", binary_value=b"\x00\xff")
    assert sent.message_attributes == {"n": value}


@pytest.mark.parametrize(
    "text",
    [
        b"\xff=a",
        b"a=%ff",
        b"&".join(b"a%d=" % n for n in range(SQS_FORM_FIELDS_MAX + 1)),
        b"a.b=1&a=2&a.c=3",
        b".".join([b"a"] * 100) + b"=1",
        b"DelaySeconds=soon",
        b"MessageAttribute.1.Name=n&MessageAttribute.1.Value.BinaryValue=%25",
    ],
)
def test_what_cannot_be_read_is_refused(text: bytes) -> None:
    with pytest.raises(SqsError) as refused:
        request_of(read_fields(text), shapes.SendMessageRequest)
    assert refused.value.status == 400


@given(st.lists(st.tuples(st.text(min_size=1), st.text()), max_size=10))
def test_what_was_encoded_is_read(pairs: list[tuple[str, str]]) -> None:
    sent = [pair for pair in pairs if all(text.isprintable() or text == "" for text in pair)]
    assert read_form(urlencode(sent).encode(), 10) == sent


@given(st.text())
def test_any_escape_is_read(text: str) -> None:
    """Also of what need not be escaped, in both cases, and beside signs that were not."""
    sent = "".join(f"%{byte:02x}" for byte in text.encode())
    shown = f"x==%3D{sent}+{sent.upper()}"
    assert read_form(f"a={shown}".encode(), 1) == [("a", f"x==={text} {text}")]


@pytest.mark.parametrize(
    "text",
    [
        "%",
        "%4",
        "%zz",
        "%%41",
        "100%",
        "%\n41",
        "%\r\n",
        "%4%31",
        "=%=3",
        "%C3",
        "%C3%B",
    ],
)
def test_escapes_that_are_none(text: str) -> None:
    for each in (text, "%41" + text, text + "z%41"):
        with pytest.raises(InvalidArgument):
            read_form(b"a=" + each.encode(), 1)


@pytest.mark.parametrize("text", [b"%41", b"%c3%bc", b"=", b"+", b"a%25"])
def test_a_long_field_takes_little_memory(text: bytes) -> None:
    form = b"a=" + text * (300_000 // len(text))
    tracemalloc.start()
    read_form(form, 1)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 * len(form), "an object for every escape would be twenty times as much"


def test_many_fields_are_not_even_parted() -> None:
    form = b"&" * 300_000
    tracemalloc.start()
    with pytest.raises(InvalidArgument):
        fields_of(form, 2_000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 10_000


def test_a_name_that_is_a_tree() -> None:
    """The name of an attribute is a text; what has more below it is none."""
    text = b"Attribute.1.Name.x=1&Attribute.1.Value=2&Attribute.2.Name=a&Attribute.2.Value=b"
    request = request_of(read_fields(text), shapes.SetQueueAttributesRequest)
    assert isinstance(request, shapes.SetQueueAttributesRequest)
    assert request.attributes == {"a": "b"}
