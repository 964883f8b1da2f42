"""Who sends too much, too slowly or nonsense is sent away, and nobody else notices."""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING, Any

import pytest

from nexo.doors.http import crowd
from nexo.doors.sqs_http import app
from nexo.doors.sqs_http.accounts import Addresses
from nexo.vocabulary.limits import HTTP_HEAD_BYTES_MAX
from nexo.vocabulary.settings import QueueSettings
from tests.compliance.raw import SIGNED

if TYPE_CHECKING:
    from tests.sqs.calling import Door


def test_endless_head(door: Door) -> None:
    with door.connect() as client:
        client.sendall(b"POST / HTTP/1.1\r\nHost: a\r\n")
        filler = b"X-Filler: " + b"x" * 1_000 + b"\r\n"
        reply = b""
        try:
            for _ in range(2 * HTTP_HEAD_BYTES_MAX // len(filler)):
                client.sendall(filler)
            reply = client.recv(1_000)
        except ConnectionError:
            return  # it hung up before everything was sent
        assert reply.startswith(b"HTTP/1.1 431 ") or reply == b""


def test_slow_head(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    with door.connect() as client:
        client.sendall(b"POST / HTTP/1.1\r\nHost:")
        monkeypatch.setattr(crowd, "HTTP_HEAD_S", 0.2)  # now: who sends nothing is told nothing
        assert client.recv(1_000).startswith(b"HTTP/1.1 408 ")
        assert client.recv(1_000) == b""


def test_silence(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crowd, "HTTP_HEAD_S", 0.2)
    with door.connect() as client:
        assert client.recv(1_000) == b""


def test_slow_body(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "SQS_BODY_S", 0.2)
    with door.connect() as client:
        client.sendall(
            b"POST / HTTP/1.1\r\nHost: a\r\nX-Amz-Target: AmazonSQS.ListQueues\r\n"
            b"Content-Length: 10\r\n\r\n{"
        )
        assert client.recv(1_000).startswith(b"HTTP/1.1 408 ")


def test_large_body(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "SQS_BODY_BYTES_MAX", 1_000)
    answer = door.json("SendMessage", QueueUrl="q", MessageBody="x" * 1_000)
    assert (answer.status, answer.json["__type"].rpartition("#")[2]) == (
        413,
        "RequestEntityTooLarge",
    )


def test_slow_head_of_a_second_request(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    with door.connect() as client:
        client.sendall(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n")
        answer = b""
        while not answer.endswith(b'"ok"}'):
            answer += client.recv(1_000)
        monkeypatch.setattr(crowd, "HTTP_HEAD_S", 0.2)
        client.sendall(b"GET /health HT")
        assert client.recv(1_000).startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"{", "SerializationException"),
        (b"[]", "SerializationException"),
        (b'{"QueueName": 7}', "SerializationException"),
        (b'{"QueueName": "\xff"}', "SerializationException"),
        (b'{"a":' * 5_000 + b"1" + b"}" * 5_000, "SerializationException"),
        (b"", "MissingRequiredParameterException"),
        (b"{}", "MissingRequiredParameterException"),
    ],
)
def test_nonsense(door: Door, body: bytes, code: str) -> None:
    answer = door.ask("POST", "/", body, {"X-Amz-Target": "AmazonSQS.CreateQueue"})
    assert (answer.status, answer.json["__type"].rpartition("#")[2]) == (400, code)


def test_unknown_actions(door: Door) -> None:
    assert door.json("MakeCoffee").json["__type"].endswith("#UnknownOperationException")
    assert b"<Code>InvalidAction</Code>" in door.query(Action="MakeCoffee").body


@pytest.mark.parametrize(
    ("method", "headers", "is_allowed"),
    [
        ("GET", {}, False),  # as an image in a page of an old browser, or behind a proxy
        ("GET", {"User-Agent": "Mozilla/4.0"}, False),
        ("HEAD", {}, False),
        ("GET", {"Authorization": SIGNED}, True),
        ("POST", {}, True),
    ],
)
def test_a_link_changes_nothing(
    door: Door, method: str, headers: dict[str, str], is_allowed: bool
) -> None:
    door.json("CreateQueue", QueueName="q")
    door.json("SendMessage", QueueUrl="q", MessageBody="x")
    status = door.ask(method, "/000000000000/q?Action=PurgeQueue", headers=headers).status
    assert status == (200 if is_allowed else 403)
    left = door.json("GetQueueAttributes", QueueUrl="q", AttributeNames=["All"]).json["Attributes"]
    assert left["ApproximateNumberOfMessages"] == ("0" if is_allowed else "1")
    assert door.ask("GET", "/?Action=ListQueues").status == 200, "to look does no harm"


def test_a_presigned_link_proves_nothing_where_nobody_checks_it(door: Door) -> None:
    door.json("CreateQueue", QueueName="q")
    signed = "X-Amz-Credential=a/20260101/us-east-1/sqs/aws4_request&X-Amz-Signature=0"
    answer = door.ask("GET", f"/000000000000/q?Action=DeleteQueue&{signed}")
    assert (answer.status, b"Use POST" in answer.body) == (403, True)


DEEP = '{"a":' * 400 + "1" + "}" * 400
ENDLESS = "[" * 100_000


@pytest.mark.parametrize(
    "policy",
    ['{"Statement":5}', '{"Statement":[5]}', '{"Statement":"x"}', "5", "", DEEP, ENDLESS],
    ids=lambda policy: policy[:16],
)
def test_policies_that_are_none(door: Door, policy: str) -> None:
    door.json("CreateQueue", QueueName="q")
    for name in ("Policy", "RedrivePolicy", "RedriveAllowPolicy"):
        answer = door.json("SetQueueAttributes", QueueUrl="q", Attributes={name: policy})
        assert answer.status == (200 if policy == "" else 400), name


@pytest.mark.parametrize(
    "policy", ['{"Statement":5}', '{"Statement":[5]}', DEEP, ENDLESS[:30_000], "nonsense", "[]"]
)
def test_policies_that_came_through_another_door(door: Door, policy: str) -> None:
    settings = QueueSettings(aws={"Policy": policy, "RedriveAllowPolicy": policy})
    door.broker.call(lambda engine: engine.create_queue("q", settings))
    given = {"Label": "l", "AWSAccountIds": ["1" * 12], "Actions": ["*"]}
    assert door.json("AddPermission", QueueUrl="q", **given).status == 400
    assert door.json("RemovePermission", QueueUrl="q", Label="l").status == 400
    assert door.json("GetQueueAttributes", QueueUrl="q", AttributeNames=["All"]).status == 200


def test_a_redrive_policy_that_allows_a_number(door: Door) -> None:
    odd = '{"redrivePermission":"byQueue","sourceQueueArns":5}'
    door.broker.call(
        lambda engine: engine.create_queue("dead", QueueSettings(aws={"RedriveAllowPolicy": odd}))
    )
    arn = "arn:aws:sqs:us-east-1:000000000000:dead"
    policy = f'{{"deadLetterTargetArn":"{arn}","maxReceiveCount":1}}'
    answer = door.json("CreateQueue", QueueName="q", Attributes={"RedrivePolicy": policy})
    assert answer.status == 400


LONG = 500_000


@pytest.mark.parametrize(
    ("action", "wanted"),
    [
        ("CancelMessageMoveTask", {"TaskHandle": b64encode(b'{"a":' * 9_000).decode()}),
        ("ListMessageMoveTasks", {"SourceArn": ":" * LONG}),
        ("ReceiveMessage", {"QueueUrl": "/" * LONG}),
        ("DeleteMessage", {"QueueUrl": "q", "ReceiptHandle": "x" * LONG}),
        ("GetQueueAttributes", {"QueueUrl": "q", "AttributeNames": ["x" * LONG]}),
        ("CreateQueue", {"QueueName": "n", "Attributes": {"Policy": "x" * LONG}}),
        ("ListQueues", {"NextToken": "x" * LONG}),
        ("ListQueues", {"MaxResults": 10**30}),
        ("AddPermission", {"QueueUrl": "q", "Label": "l", "AWSAccountIds": ["x"] * LONG}),
        (
            "SendMessage",
            {
                "QueueUrl": "q",
                "MessageBody": "x",
                "MessageAttributes": {
                    "Nexo.Priority": {"DataType": "Number", "StringValue": "9" * 5_000}
                },
            },
        ),
        (
            "SendMessage",
            {
                "QueueUrl": "q",
                "MessageBody": "x",
                "MessageSystemAttributes": {
                    "AWSTraceHeader": {"DataType": "String", "StringValue": "9" * 5_000}
                },
            },
        ),
        ("SendMessageBatch", {"QueueUrl": "q", "Entries": [{}] * 100_000}),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_values_that_nobody_means(door: Door, action: str, wanted: dict[str, Any]) -> None:
    """They are refused, and what was said is not sent back whole."""
    door.json("CreateQueue", QueueName="q")
    answer = door.json(action, **{"Actions": ["*"], **wanted})
    assert 400 <= answer.status < 500
    assert len(answer.body) < 3_000


def test_many_values_are_refused_before_they_are_made(door: Door) -> None:
    door.json("CreateQueue", QueueName="q")
    answer = door.json("SendMessageBatch", QueueUrl="q", Entries=[{}] * 100_000)
    assert answer.json["__type"].endswith("#SerializationException")
    text = ",".join("[]" * 50_000)
    assert door.json("SendMessage", QueueUrl="q", MessageBody=text).status == 200


def test_long_addresses_are_not_remembered() -> None:
    addresses = Addresses()
    for number in range(100):
        url = f"http://{'x' * 10_000}/{number}/orders"
        assert addresses.name_of(url, addresses.default) == "orders"
    addresses.name_of("http://a/000000000000/orders/", addresses.default)
    assert len(addresses.resolved) == 1


def test_a_trace_that_is_none_is_not_kept(door: Door) -> None:
    door.json("CreateQueue", QueueName="q")
    body = b'{"QueueUrl":"q","MessageBody":"x"}'
    for trace in ("Root=1-abc", "x" * 5_000):
        headers = {"X-Amz-Target": "AmazonSQS.SendMessage", "X-Amzn-Trace-Id": trace}
        assert door.ask("POST", "/", body, headers).status == 200
    wanted = {"QueueUrl": "q", "MaxNumberOfMessages": 10, "AttributeNames": ["AWSTraceHeader"]}
    messages = door.json("ReceiveMessage", **wanted).json["Messages"]
    assert [each.get("Attributes") for each in messages] == [
        {"AWSTraceHeader": "Root=1-abc"},
        None,
    ]
