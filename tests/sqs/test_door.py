"""What the wire shows: protocols, headers, the same queue on both sides, and what lasts."""

from __future__ import annotations

import json
import threading
import time
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

import pytest

from nexo.testing import broker
from tests.sqs.calling import Door

if TYPE_CHECKING:
    from pathlib import Path

QUEUE = "orders"


def test_json_answers(door: Door) -> None:
    answer = door.json("CreateQueue", QueueName=QUEUE)
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/x-amz-json-1.0"
    assert answer.headers["x-amzn-requestid"]
    assert answer.json == {"QueueUrl": f"{door.url}/000000000000/{QUEUE}"}
    assert door.json("DeleteQueue", QueueUrl=QUEUE).body == b"{}"


def test_json_refusals(door: Door) -> None:
    answer = door.json("GetQueueUrl", QueueName=QUEUE)
    assert answer.status == 400
    assert answer.headers["x-amzn-query-error"] == "AWS.SimpleQueueService.NonExistentQueue;Sender"
    assert answer.json == {
        "__type": "com.amazonaws.sqs#QueueDoesNotExist",
        "message": "The specified queue does not exist.",
    }


def test_query_answers(door: Door) -> None:
    answer = door.query(Action="CreateQueue", QueueName=QUEUE)
    request_id = answer.headers["x-amzn-requestid"]
    assert answer.body.decode() == (
        '<?xml version="1.0"?>'
        '<CreateQueueResponse xmlns="http://queue.amazonaws.com/doc/2012-11-05/">'
        f"<CreateQueueResult><QueueUrl>{door.url}/000000000000/{QUEUE}</QueueUrl>"
        f"</CreateQueueResult><ResponseMetadata><RequestId>{request_id}</RequestId>"
        "</ResponseMetadata></CreateQueueResponse>"
    )


def test_query_on_the_url_of_a_queue(door: Door) -> None:
    door.json("CreateQueue", QueueName=QUEUE)
    path = f"/000000000000/{QUEUE}"
    assert b"<SendMessageResult>" in door.query(path, Action="SendMessage", MessageBody="a\r").body
    shown = door.query(path, Action="ReceiveMessage").body
    assert b"<Body>a&#xD;</Body>" in shown, "XML would make a line feed of it"
    assert door.query(path, Action="ListQueues").status == 400
    assert door.ask("GET", path).body == b"<UnknownOperationException/>\n"


def test_a_get_that_names_no_action(door: Door) -> None:
    """A signature in the query adds fields, and is no action all the same."""
    signed = "X-Amz-Credential=a/20260101/us-east-1/sqs/aws4_request&X-Amz-Signature=0"
    for path in ("/", f"/?{signed}", f"/000000000000/q?{signed}", "/?Version=2012-11-05"):
        answer = door.ask("GET", path, headers={"Authorization": "AWS4-HMAC-SHA256 x"})
        assert (answer.status, answer.body) == (404, b"<UnknownOperationException/>\n"), path
    assert b"<Code>MissingAction</Code>" in door.query(Version="2012-11-05").body


def test_query_in_json(door: Door) -> None:
    door.json("CreateQueue", QueueName=QUEUE)
    path = "/?Action=ListQueues&Version=2012-11-05"
    answer = door.ask("GET", path, headers={"Accept": "application/json"})
    assert answer.json["ListQueuesResponse"]["ListQueuesResult"]["queueUrls"]
    wrong = door.ask("GET", "/?Action=Nothing", headers={"Accept": "application/json"})
    assert wrong.json["Error"]["Code"] == "InvalidAction"


def test_health(door: Door) -> None:
    answer = door.ask("GET", "/health")
    assert (answer.status, answer.json) == (200, {"status": "ok"})


def test_the_date_goes_with_the_clock(door: Door) -> None:
    """SDKs set the clock that they sign with by it."""

    def told() -> float:
        date = parsedate_to_datetime(door.ask("GET", "/health").headers["date"])
        return date.timestamp()

    first = told()
    assert abs(first - time.time()) < 10
    ends = time.monotonic() + 10
    while told() == first:
        assert time.monotonic() < ends, "it stands still"
        time.sleep(0.1)
    assert told() > first


def test_host_of_the_request_is_that_of_the_queue(door: Door) -> None:
    door.json("CreateQueue", QueueName=QUEUE)
    headers = {"Host": "sqs.example:1234"}
    answer = door.ask("GET", f"/?Action=GetQueueUrl&QueueName={QUEUE}", headers=headers)
    assert b"<QueueUrl>http://sqs.example:1234/000000000000/orders</QueueUrl>" in answer.body


def test_types_reach_the_native_client_as_texts(door: Door) -> None:
    door.json("CreateQueue", QueueName=QUEUE)
    attributes = {
        "colour": {"DataType": "String", "StringValue": "red"},
        "size": {"DataType": "Number.int", "StringValue": "7"},
        "raw": {"DataType": "Binary", "BinaryValue": "AP8="},
        "Nexo.Priority": {"DataType": "Number", "StringValue": "9"},
    }
    door.json("SendMessage", QueueUrl=QUEUE, MessageBody="b", MessageAttributes=attributes)
    with door.broker.client() as client:
        message = client.queue(QUEUE).pop()
        assert message is not None
        plain = {"colour": "red", "size": "7", "raw": "AP8=", "Nexo.Priority": "9"}
        assert message.attributes == plain
        assert (message.text, message.priority) == ("b", 9)
        message.nack(delay=0)
    wanted: dict[str, Any] = {"QueueUrl": QUEUE, "MessageAttributeNames": ["All"]}
    (again,) = door.json("ReceiveMessage", **wanted).json["Messages"]
    assert again["MessageAttributes"] == attributes


def test_native_queues_have_attributes(door: Door) -> None:
    with door.broker.client() as client:
        client.create_queue(QUEUE, visibility_timeout=45.0, max_attempts=3)
    wanted = {"QueueUrl": QUEUE, "AttributeNames": ["VisibilityTimeout", "RedrivePolicy"]}
    shown = door.json("GetQueueAttributes", **wanted).json["Attributes"]
    assert shown["VisibilityTimeout"] == "45"
    assert json.loads(shown["RedrivePolicy"]) == {
        "deadLetterTargetArn": "arn:aws:sqs:us-east-1:000000000000:orders_dlq",
        "maxReceiveCount": 3,
    }


def test_everything_lasts(tmp_path: Path) -> None:
    """Settings, tags, policies, types and deduplication are there after a restart."""
    name = "orders.fifo"
    policy = '{"Version":"2012-10-17","Statement":[]}'
    given = {"FifoQueue": "true", "ReceiveMessageWaitTimeSeconds": "3", "Policy": policy}
    with broker(tmp_path / "data") as running:
        door = Door(running)
        door.json("CreateQueue", QueueName=name, Attributes=given, tags={"a": "b"})
        sent = {
            "QueueUrl": name,
            "MessageBody": "x",
            "MessageGroupId": "g",
            "MessageDeduplicationId": "d",
            "MessageAttributes": {"n": {"DataType": "Number", "StringValue": "1"}},
        }
        first = door.json("SendMessage", **sent).json
        before = door.json("GetQueueAttributes", QueueUrl=name, AttributeNames=["All"]).json
    with broker(tmp_path / "data") as running:
        door = Door(running)
        assert door.json("SendMessage", **sent).json == first
        after = door.json("GetQueueAttributes", QueueUrl=name, AttributeNames=["All"]).json
        assert after == before
        assert door.json("ListQueueTags", QueueUrl=name).json == {"Tags": {"a": "b"}}
        wanted = {"QueueUrl": name, "MessageAttributeNames": ["All"], "MaxNumberOfMessages": 10}
        (message,) = door.json("ReceiveMessage", **wanted).json["Messages"]
        assert message["MessageAttributes"] == sent["MessageAttributes"]


def test_who_hangs_up_leaves_the_waiting_room(door: Door) -> None:
    door.json("CreateQueue", QueueName=QUEUE)
    body = json.dumps({"QueueUrl": QUEUE, "WaitTimeSeconds": 20}).encode()
    with door.connect() as client:
        client.sendall(
            b"POST / HTTP/1.1\r\nHost: a\r\nX-Amz-Target: AmazonSQS.ReceiveMessage\r\n"
            b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
        )
        _until(lambda: _waiting(door) == 1)
    _until(lambda: _waiting(door) == 0)
    door.json("SendMessage", QueueUrl=QUEUE, MessageBody="x")
    (message,) = door.json(
        "ReceiveMessage", QueueUrl=QUEUE, MessageSystemAttributeNames=["All"]
    ).json["Messages"]
    assert message["Attributes"]["ApproximateReceiveCount"] == "1"


def test_broker_that_stops_answers_those_who_wait() -> None:
    answers = []
    with broker() as running:
        door = Door(running)
        door.json("CreateQueue", QueueName=QUEUE)
        wait = threading.Thread(
            target=lambda: answers.append(
                door.json("ReceiveMessage", QueueUrl=QUEUE, WaitTimeSeconds=20)
            )
        )
        wait.start()
        _until(lambda: _waiting(door) == 1)
        began = time.monotonic()
    wait.join(10)
    assert time.monotonic() - began < 5
    assert [(answer.status, answer.body) for answer in answers] == [(200, b"{}")]


@pytest.mark.parametrize("waits", [0, 1])
def test_attempt_is_repeated_with_the_same_receipts(door: Door, waits: int) -> None:
    attributes = {"FifoQueue": "true", "ContentBasedDeduplication": "true"}
    door.json("CreateQueue", QueueName="q.fifo", Attributes=attributes)
    for body in ("a", "b"):
        door.json("SendMessage", QueueUrl="q.fifo", MessageBody=body, MessageGroupId="g")
    wanted = {"QueueUrl": "q.fifo", "ReceiveRequestAttemptId": "one", "WaitTimeSeconds": waits}
    first = door.json("ReceiveMessage", **wanted).json
    assert door.json("ReceiveMessage", **wanted).json == first
    (message,) = first["Messages"]
    door.json("DeleteMessage", QueueUrl="q.fifo", ReceiptHandle=message["ReceiptHandle"])
    refused = door.json("ReceiveMessage", **wanted)
    assert refused.json["message"].endswith("since the receive call is not retryable.")
    (other,) = door.json("ReceiveMessage", QueueUrl="q.fifo").json["Messages"]
    assert other["Body"] == "b"


def test_attempt_with_a_changed_timeout_is_not_repeated(door: Door) -> None:
    attributes = {"FifoQueue": "true", "ContentBasedDeduplication": "true"}
    door.json("CreateQueue", QueueName="q.fifo", Attributes=attributes)
    door.json("SendMessage", QueueUrl="q.fifo", MessageBody="a", MessageGroupId="g")
    wanted = {"QueueUrl": "q.fifo", "ReceiveRequestAttemptId": "one"}
    (message,) = door.json("ReceiveMessage", **wanted).json["Messages"]
    handle = message["ReceiptHandle"]
    door.json(
        "ChangeMessageVisibility", QueueUrl="q.fifo", ReceiptHandle=handle, VisibilityTimeout=99
    )
    assert door.json("ReceiveMessage", **wanted).status == 400


def _waiting(door: Door) -> int:
    return door.broker.call(lambda engine: len(engine.queue(QUEUE).room))


def _until(holds: Any) -> None:
    give_up = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < give_up, "it never came true"
        time.sleep(0.01)
