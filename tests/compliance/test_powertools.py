"""A handler written for AWS Lambda with Powertools, fed from a queue of Nexo."""

import base64
from typing import Any

import pytest
from aws_lambda_powertools.utilities.batch import (
    BatchProcessor,
    EventType,
    SqsFifoPartialProcessor,
    process_partial_response,
)
from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord

from tests.aws import REGION
from tests.compliance.digests import binary, number, text
from tests.compliance.queue import Make, Message, Queue

ATTRIBUTES = {"colour": text("red"), "size": number("4"), "raw": binary(b"\x00\xff")}


@pytest.fixture
def protocol() -> str:
    return "json"


def as_record(queue: Queue, message: Message) -> dict[str, Any]:
    """A received message as Lambda hands it to a function."""
    attributes = {
        name: {
            "dataType": each["DataType"],
            "stringValue": each.get("StringValue"),
            "binaryValue": base64.b64encode(each["BinaryValue"]).decode()
            if "BinaryValue" in each
            else None,
            "stringListValues": [],
            "binaryListValues": [],
        }
        for name, each in message.get("MessageAttributes", {}).items()
    }
    return {
        "messageId": message["MessageId"],
        "receiptHandle": message["ReceiptHandle"],
        "body": message["Body"],
        "attributes": message["Attributes"],
        "messageAttributes": attributes,
        "md5OfBody": message["MD5OfBody"],
        "eventSource": "aws:sqs",
        "eventSourceARN": queue.arn,
        "awsRegion": REGION,
    }


def run(queue: Queue, processor: BatchProcessor, handled: list[str]) -> set[str]:
    """What Lambda does with a batch: hand it over, then delete what did not fail. Returns the
    bodies that failed."""
    messages = queue.receive(
        MessageSystemAttributeNames=["All"], MessageAttributeNames=["All"], VisibilityTimeout=60
    )

    def handle(record: SQSRecord) -> None:  # Powertools passes it by this name
        if record.json_body["fails"]:
            raise ValueError("as asked")
        assert record.attributes.approximate_receive_count
        handled.append(record.body)

    event = {"Records": [as_record(queue, message) for message in messages]}
    reply = process_partial_response(event, handle, processor)
    failed = {each["itemIdentifier"] for each in reply["batchItemFailures"]}
    queue.delete(*[each for each in messages if each["MessageId"] not in failed])
    return {each["Body"] for each in messages if each["MessageId"] in failed}


GOOD, BAD = '{"fails": false}', '{"fails": true}'


def test_a_batch_that_fails_in_part(queue: Queue) -> None:
    queue.send_batch(GOOD, BAD, GOOD, MessageAttributes=ATTRIBUTES)
    handled: list[str] = []
    assert run(queue, BatchProcessor(event_type=EventType.SQS), handled) == {BAD}
    assert handled == [GOOD, GOOD]
    assert queue.counts() == (0, 1, 0)


def test_a_fifo_batch_stops_at_the_first_failure(make: Make) -> None:
    fifo = make(fifo=True)
    for index, body in enumerate((GOOD, BAD, GOOD)):
        fifo.send(body, MessageGroupId="g", MessageDeduplicationId=str(index))
    handled: list[str] = []
    assert run(fifo, SqsFifoPartialProcessor(), handled) == {BAD, GOOD}
    assert handled == [GOOD]
    assert fifo.counts() == (0, 2, 0)


def test_what_a_record_shows(queue: Queue) -> None:
    queue.send(GOOD, MessageAttributes=ATTRIBUTES, MessageGroupId="tenant")
    shown = SQSRecord(as_record(queue, queue.one()))
    assert shown.json_body == {"fails": False}
    assert shown.attributes.message_group_id == "tenant"
    attributes: Any = shown.message_attributes
    assert attributes["colour"].string_value == "red"
    assert attributes["size"].data_type == "Number"
    assert attributes["raw"].binary_value == base64.b64encode(b"\x00\xff").decode()
