"""The event and the context that a handler gets, in Lambda's words."""

from __future__ import annotations

import base64
import hashlib
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from nexo.client.worker.event import event_of
from nexo.client.worker.function import Function
from nexo.client.worker.invocation import Context
from nexo.doors.sqs_http.accounts import Addresses
from nexo.vocabulary.attributes import encode_typed
from nexo.vocabulary.batch import batch_of
from nexo.vocabulary.sqs import read_handle, sequence_number
from tests.client.eventually import eventually

if TYPE_CHECKING:
    import nexo
    from tests.client.running import RunningBroker

FUNCTION = Function("app.handler", 30.0)


def records_of(client: nexo.Client, queue: str, fifo: bool = False) -> list[dict[str, Any]]:
    messages = client.queue(queue).pop_batch(10, wait=10.0)
    records: list[dict[str, Any]] = event_of(messages, queue, FUNCTION, fifo)["Records"]
    return records


def test_a_record(client: nexo.Client) -> None:
    message_id = client.create_queue("orders").push(
        '{"id": 1} é', attributes={"tenant": "a"}, priority=7
    )
    (record,) = records_of(client, "orders")
    sent, received = (
        datetime.fromtimestamp(int(record["attributes"].pop(name)) / 1000, UTC)
        for name in ("SentTimestamp", "ApproximateFirstReceiveTimestamp")
    )
    assert sent <= received
    assert abs((datetime.now(UTC) - received).total_seconds()) < 60
    assert record.pop("receiptHandle")
    assert record == {
        "messageId": message_id,
        "body": '{"id": 1} é',
        "attributes": {"ApproximateReceiveCount": "1", "SenderId": "000000000000"},
        "messageAttributes": {
            "tenant": {
                "stringValue": "a",
                "stringListValues": [],
                "binaryListValues": [],
                "dataType": "String",
            },
            "Nexo.Priority": {
                "stringValue": "7",
                "stringListValues": [],
                "binaryListValues": [],
                "dataType": "Number",
            },
        },
        "md5OfBody": hashlib.md5('{"id": 1} é'.encode()).hexdigest(),
        "eventSource": "aws:sqs",
        "eventSourceARN": "arn:aws:sqs:us-east-1:000000000000:orders",
        "awsRegion": "us-east-1",
    }


def test_attempts_are_counted(client: nexo.Client) -> None:
    queue = client.create_queue("q", max_attempts=2)
    queue.push("x")
    seen = []
    for _ in range(2):
        messages = queue.pop_batch(1, wait=10.0)
        (record,) = event_of(messages, "q", FUNCTION, fifo=False)["Records"]
        seen.append(record["attributes"])
        queue.nack_batch(messages, reason="no")
    assert [each["ApproximateReceiveCount"] for each in seen] == ["1", "2"]
    first = {each["ApproximateFirstReceiveTimestamp"] for each in seen}
    assert len(first) == 1
    eventually(lambda: queue.info().dead_lettered == 1)
    (letter,) = records_of(client, "q_dlq")
    assert letter["attributes"]["ApproximateReceiveCount"] == "3"
    assert letter["attributes"]["DeadLetterQueueSourceArn"] == Addresses().arn_of("q")


def test_bytes_that_are_no_text(client: nexo.Client) -> None:
    client.create_queue("q").push(b"\xff\xfe\x00")
    (record,) = records_of(client, "q")
    assert base64.b64decode(record["body"]) == b"\xff\xfe\x00"
    assert record["messageAttributes"]["Nexo.BodyEncoding"]["stringValue"] == "base64"
    assert record["md5OfBody"] == hashlib.md5(record["body"].encode()).hexdigest()


def test_attributes_with_types(client: nexo.Client, broker: RunningBroker) -> None:
    """What came through the SQS door: numbers, bytes, and what that door keeps for itself."""
    client.create_queue("q")
    given = encode_typed(
        {
            "size": ("Number.int", "12"),
            "picture": ("Binary", b"\x00\xff"),
            "AWS.TraceHeader": ("String", "Root=1-2"),
            "AWS.SenderId": ("String", "AIDA"),
        }
    )
    actor = broker.broker.engine.queues["q"]
    broker.wait_for(_push(actor, given))
    (record,) = records_of(client, "q")
    shown = record["messageAttributes"]
    assert shown.keys() == {"size", "picture"}
    assert (shown["size"]["stringValue"], shown["size"]["dataType"]) == ("12", "Number.int")
    assert "stringValue" not in shown["picture"]
    assert base64.b64decode(shown["picture"]["binaryValue"]) == b"\x00\xff"
    assert record["attributes"]["AWSTraceHeader"] == "Root=1-2"
    assert record["attributes"]["SenderId"] == "AIDA"


async def _push(actor: Any, attributes: bytes) -> None:
    await actor.push(msgspec.structs.replace(batch_of([b"x"]), attributes=attributes))


def test_fifo(client: nexo.Client) -> None:
    queue = client.create_queue("q.fifo", fifo=True, deduplication="id")
    queue.push("a", group_id="g", deduplication_id="d")
    queue.push("b", group_id="h")
    messages = queue.pop_batch(10, wait=10.0)
    first, second = (
        record["attributes"]
        for record in event_of(messages, "q.fifo", FUNCTION, fifo=True)["Records"]
    )
    assert (first["MessageGroupId"], second["MessageGroupId"]) == ("g", "h")
    assert first["MessageDeduplicationId"] == "d"
    assert "MessageDeduplicationId" not in second
    assert first["SequenceNumber"] < second["SequenceNumber"]
    assert first["SequenceNumber"] == sequence_number(messages[0]._seq)


def test_the_receipt_is_that_of_the_sqs_door(client: nexo.Client) -> None:
    client.create_queue("q").push("x")
    messages = client.queue("q").pop_batch(1)
    (record,) = event_of(messages, "q", FUNCTION, fifo=False)["Records"]
    delivery = messages[0]._delivery
    receipt = read_handle(record["receiptHandle"])
    assert receipt == (delivery.incarnation, delivery.lease, messages[0]._seq)


def test_a_queue_of_another_account() -> None:
    scoped = "123456789012/eu-west-1/orders"
    assert event_of([], scoped, FUNCTION, fifo=False) == {"Records": []}


def test_places_are_named_as_by_the_sqs_door(client: nexo.Client) -> None:
    name = "123456789012/cn-north-1/orders"
    client.create_queue(name).push("x")
    (record,) = records_of(client, name)
    assert record["eventSourceARN"] == Addresses().arn_of(name)
    assert record["awsRegion"] == "cn-north-1"


def test_the_context() -> None:
    context = Context(Function("app.handler", 30.0, region="eu-west-1"), "r-1", 30.0)
    assert context.function_name == "app.handler"
    assert context.function_version == "$LATEST"
    assert context.aws_request_id == "r-1"
    arn = "arn:aws:lambda:eu-west-1:000000000000:function:app.handler"
    assert context.invoked_function_arn == arn
    assert context.log_group_name == "/aws/lambda/app.handler"
    assert context.memory_limit_in_mb > 0
    assert 20_000 < context.get_remaining_time_in_millis() <= 30_000
    assert Context(FUNCTION, "r", -1.0).get_remaining_time_in_millis() == 0
