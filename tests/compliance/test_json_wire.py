"""The JSON protocol by hand: headers, bodies and errors as SDKs of other languages read them."""

import json
import uuid
from typing import Any

import pytest

from tests.compliance.broker import ServedBroker
from tests.compliance.queue import Queue
from tests.compliance.raw import JSON_TYPE, Reply, json_call, request


@pytest.fixture
def protocol() -> str:
    """Of the client that looks at what was done by hand."""
    return "json"


def send_text(broker: ServedBroker, queue: Queue, literal: str) -> Reply:
    """Send a body that is written as it stands in JSON."""
    body = f'{{"QueueUrl": "{queue.url}", "MessageBody": "{literal}"}}'
    return json_call(broker, "SendMessage", body)


def error_of(reply: Reply) -> tuple[str, str, str]:
    """The type, the message, and the code for those who knew the query protocol."""
    assert 400 <= reply.status < 500, reply
    assert reply.headers["content-type"].startswith("application/x-amz-json-1.")
    assert reply.headers["x-amzn-requestid"]
    body = reply.json()
    return body["__type"], body.get("message", ""), reply.headers.get("x-amzn-query-error", "")


def test_headers(broker: ServedBroker, queue: Queue) -> None:
    reply = json_call(broker, "SendMessage", {"QueueUrl": queue.url, "MessageBody": "x"})
    assert reply.status == 200
    assert reply.headers["content-type"] == JSON_TYPE
    request_id = reply.headers["x-amzn-requestid"]
    assert str(uuid.UUID(request_id)) == request_id
    assert int(reply.headers["content-length"]) == len(reply.body)
    other = json_call(broker, "ListQueues", {})
    assert other.headers["x-amzn-requestid"] != reply.headers["x-amzn-requestid"]


def test_what_is_empty_is_left_out(broker: ServedBroker, queue: Queue) -> None:
    url = {"QueueUrl": queue.url}
    assert json_call(broker, "ReceiveMessage", url).json() == {}
    assert json_call(broker, "ListQueueTags", url).json() == {}
    assert json_call(broker, "GetQueueAttributes", url).json() == {}
    assert json_call(broker, "ListQueues", {"QueueNamePrefix": "nothing-like-it"}).json() == {}
    for action, more in (("PurgeQueue", {}), ("TagQueue", {"Tags": {"a": "b"}})):
        assert json_call(broker, action, {**url, **more}).body in (b"", b"{}")


def test_names_and_types_on_the_wire(broker: ServedBroker, queue: Queue) -> None:
    attributes = {
        "text": {"DataType": "String", "StringValue": "t"},
        "bytes": {"DataType": "Binary", "BinaryValue": "AP8="},
    }
    call = {"QueueUrl": queue.url, "MessageBody": "✓", "MessageAttributes": attributes}
    assert json_call(broker, "SendMessage", call).status == 200
    asked = {
        "QueueUrl": queue.url,
        "MessageAttributeNames": ["All"],
        "MessageSystemAttributeNames": ["All"],
    }
    reply = json_call(broker, "ReceiveMessage", asked)
    assert "✓".encode() in reply.body or b"\\u2713" in reply.body
    (message,) = reply.json()["Messages"]
    assert message["MessageAttributes"] == attributes
    assert all(type(value) is str for value in message["Attributes"].values())


def test_an_error(broker: ServedBroker) -> None:
    reply = json_call(broker, "GetQueueUrl", {"QueueName": "nobody-knows-it"})
    kind, message, query = error_of(reply)
    assert reply.status == 400
    assert kind == "com.amazonaws.sqs#QueueDoesNotExist"
    assert message == "The specified queue does not exist."
    assert query == "AWS.SimpleQueueService.NonExistentQueue;Sender"


def test_errors_of_parameters(broker: ServedBroker, queue: Queue) -> None:
    call = {"QueueUrl": queue.url, "MaxNumberOfMessages": 11}
    kind, _, query = error_of(json_call(broker, "ReceiveMessage", call))
    assert kind.endswith("#InvalidParameterValueException")
    assert query == "InvalidParameterValue;Sender"
    kind, _, query = error_of(json_call(broker, "SendMessage", {"QueueUrl": queue.url}))
    assert kind.endswith("#MissingRequiredParameterException")
    assert query == "MissingParameter;Sender"


@pytest.mark.parametrize(
    "body",
    [
        "",
        "{",
        '{"QueueUrl": "x"',
        "[]",
        '"text"',
        "null",
        "5",
        "{]",
        '{"a": 1} trailing',
        "\ufeff{}",
    ],
)
def test_what_is_no_json_object(broker: ServedBroker, body: str) -> None:
    reply = json_call(broker, "SendMessage", body.encode())
    kind, _, _ = error_of(reply)
    assert reply.status == 400
    assert kind  # which one AWS gives differs from case to case


@pytest.mark.parametrize(
    "body",
    [
        {"QueueUrl": {}, "MessageBody": "x"},
        {"QueueUrl": "URL", "MessageBody": ["x"]},
        {"QueueUrl": "URL", "MessageBody": {"a": "x"}},
        {"QueueUrl": "URL", "MessageBody": "x", "DelaySeconds": "soon"},
        {"QueueUrl": "URL", "MessageBody": "x", "DelaySeconds": [1]},
        {"QueueUrl": "URL", "MessageBody": "x", "DelaySeconds": 10**30},
        {"QueueUrl": "URL", "MessageBody": "x", "MessageAttributes": []},
        {"QueueUrl": "URL", "MessageBody": "x", "MessageAttributes": {"a": "b"}},
        {
            "QueueUrl": "URL",
            "MessageBody": "x",
            "MessageAttributes": {"a": {"DataType": "Binary", "BinaryValue": "not base64!"}},
        },
    ],
)
def test_wrong_types(broker: ServedBroker, queue: Queue, body: dict[str, Any]) -> None:
    if body["QueueUrl"] == "URL":
        body = {**body, "QueueUrl": queue.url}
    error_of(json_call(broker, "SendMessage", body))
    assert queue.counts() == (0, 0, 0)


def test_nothing_known_is_lost_to_something_unknown(broker: ServedBroker, queue: Queue) -> None:
    """A newer SDK may send members that this model does not have."""
    call = {"QueueUrl": queue.url, "MessageBody": "x", "FromTheFuture": {"a": [1]}}
    assert json_call(broker, "SendMessage", call).status == 200


def test_null_is_absent(broker: ServedBroker, queue: Queue) -> None:
    call = {
        "QueueUrl": queue.url,
        "MessageBody": "x",
        "DelaySeconds": None,
        "MessageAttributes": None,
        "MessageGroupId": None,
    }
    assert json_call(broker, "SendMessage", call).status == 200


@pytest.mark.parametrize("target", ["AmazonSQS.MakeCoffee", "AmazonSQS.", "SendMessage", "", "é"])
def test_unknown_targets(broker: ServedBroker, target: str) -> None:
    headers = {"X-Amz-Target": target, "Content-Type": JSON_TYPE}
    encoded = {name: value.encode("latin-1").decode("latin-1") for name, value in headers.items()}
    reply = request(broker, "POST", "/", b"{}", encoded)
    assert 400 <= reply.status < 500
    assert b"UnknownOperation" in reply.body or b"InvalidAction" in reply.body


def test_json_on_the_address_of_a_queue(broker: ServedBroker, queue: Queue) -> None:
    """Some SDKs send everything to the URL of the queue."""
    path = "/" + queue.url.split("/", 3)[3]
    call = {"QueueUrl": queue.url, "MessageBody": "x"}
    assert json_call(broker, "SendMessage", call, path=path).status == 200
    assert queue.bodies() == ["x"]


def test_content_types(broker: ServedBroker, queue: Queue) -> None:
    """The target says what is meant, whatever a client thinks its body is."""
    call = json.dumps({"QueueUrl": queue.url, "MessageBody": "x"})
    target = {"X-Amz-Target": "AmazonSQS.SendMessage"}
    for content_type in ("application/x-amz-json-1.0; charset=utf-8", "application/x-amz-json-1.1"):
        reply = request(broker, "POST", "/", call, {**target, "Content-Type": content_type})
        assert reply.status == 200
    missing = request(broker, "POST", "/", call, target)
    assert missing.status == 200 or 400 <= missing.status < 500


def test_an_invalid_character_is_told_with_its_code(broker: ServedBroker, queue: Queue) -> None:
    kind, _, query = error_of(send_text(broker, queue, "\\u0000"))
    assert kind == "com.amazonaws.sqs#InvalidMessageContents"
    assert query == "InvalidMessageContents;Sender"


def test_half_of_a_pair(broker: ServedBroker, queue: Queue) -> None:
    """A lone surrogate is no character; Java and JavaScript can send one."""
    error_of(send_text(broker, queue, "a\\ud800b"))
    assert send_text(broker, queue, "\\ud83d\\ude00").status == 200
    assert queue.bodies() == ["😀"]


def test_the_url_follows_the_host_of_the_request(broker: ServedBroker, queue: Queue) -> None:
    call = {"QueueName": queue.name}
    for host in ("localhost:1234", "sqs.eu-west-1.example.com", "[::1]:9324"):
        reply = json_call(broker, "GetQueueUrl", call, Host=host)
        assert reply.json()["QueueUrl"].startswith(f"http://{host}/")
