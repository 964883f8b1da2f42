"""The query protocol's names become requests, and what is odd does no harm."""

from typing import Any

import pytest

from nexo.doors.sqs_http import shapes
from nexo.doors.sqs_http.errors import SqsError
from nexo.doors.sqs_http.form import read_fields, request_of
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
