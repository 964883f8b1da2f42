"""With access required a signature opens the door, and its key says how far."""

from __future__ import annotations

import socket
from base64 import b64encode
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from nexo.access.guard import Guard
from nexo.doors.http.front import Front
from nexo.doors.http.server import HttpDoor
from nexo.doors.sqs_http import app, query
from nexo.doors.sqs_http.app import SqsApp
from nexo.testing import Broker, broker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from nexo.engine.engine import Engine


class Guarded:
    """A broker whose SQS door asks for signatures."""

    def __init__(self, running: Broker) -> None:
        self._running = running
        self.url = running.call(self._open)

    async def _open(self, engine: Engine) -> str:
        guard = Guard(engine.now_ms, is_required=True)
        engine.tokens.guard_with(guard.adopt)
        self._door = HttpDoor(Front(SqsApp(engine, guard=guard), {}, lambda: None))
        return f"http://127.0.0.1:{await self._door.open('127.0.0.1', 0)}"

    def close(self) -> None:
        self._running.call(lambda _: self._door.close())

    def client(self, name: str, *allow: str) -> Any:
        """A client with an access key that allows this."""
        key = self.key(name, *allow)
        return self.signed(key.access_key_id, key.secret_access_key)

    def key(self, name: str, *allow: str) -> Any:
        given = allow or ("*:*",)
        return self._running.call(lambda engine: engine.tokens.create(name, given, aws=True))

    def connect(self) -> socket.socket:
        split = urlsplit(self.url)
        return socket.create_connection((str(split.hostname), int(split.port or 0)), 10)

    def signed(self, key: str, secret: str) -> Any:
        return boto3.client(
            "sqs",
            endpoint_url=self.url,
            region_name="us-east-1",
            aws_access_key_id=key,
            aws_secret_access_key=secret,
            config=Config(retries={"total_max_attempts": 1}),
        )


@pytest.fixture
def guarded() -> Iterator[Guarded]:
    with broker() as running:
        opened = Guarded(running)
        yield opened
        opened.close()


def refused(code: str, call: Callable[..., Any], **wanted: Any) -> None:
    with pytest.raises(ClientError) as caught:
        call(**wanted)
    assert caught.value.response["Error"]["Code"] == code


def test_strangers(guarded: Guarded) -> None:
    refused("InvalidClientTokenId", guarded.signed("nobody", "knows").list_queues)


def test_each_action_needs_its_permission(guarded: Guarded) -> None:
    operator = guarded.client("operator", "*:manage")
    url = operator.create_queue(QueueName="orders")["QueueUrl"]
    operator.create_queue(QueueName="bills")
    refused("AccessDenied", operator.send_message, QueueUrl=url, MessageBody="x")
    producer = guarded.client("producer", "orders:push")
    producer.send_message(QueueUrl=url, MessageBody="x")
    refused("AccessDenied", producer.receive_message, QueueUrl=url)
    refused("AccessDenied", producer.purge_queue, QueueUrl=url)
    refused("AccessDenied", producer.create_queue, QueueName="more")
    refused("AccessDenied", producer.get_queue_url, QueueName="bills")
    refused("AccessDenied", producer.send_message, QueueUrl="bills", MessageBody="x")
    assert producer.list_queues()["QueueUrls"] == [url], "it may not even know of the others"
    consumer = guarded.client("consumer", "orders:pop")
    (message,) = consumer.receive_message(QueueUrl=url)["Messages"]
    consumer.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    assert consumer.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]
    refused("AccessDenied", consumer.delete_queue, QueueUrl=url)


def test_moves_need_permission_on_both_ends(guarded: Guarded) -> None:
    everyone = guarded.client("everyone", "*:*")
    for name in ("dead", "live", "other"):
        everyone.create_queue(QueueName=name)
    arn = "arn:aws:sqs:us-east-1:000000000000:"
    policy = f'{{"deadLetterTargetArn": "{arn}dead", "maxReceiveCount": 1}}'
    everyone.set_queue_attributes(QueueUrl="live", Attributes={"RedrivePolicy": policy})
    mover = guarded.client("mover", "dead:manage", "live:push", "other:manage")
    move = {"SourceArn": arn + "dead"}
    for other in ("other", "nothing-there"):  # to manage it is not to push there
        refused("AccessDenied", mover.start_message_move_task, **move, DestinationArn=arn + other)
    mover.start_message_move_task(**move, DestinationArn=arn + "live")


def test_moves_do_not_tell_which_queues_there_are(guarded: Guarded) -> None:
    guarded.client("everyone", "*:*").create_queue(QueueName="secret")
    nobody = guarded.client("nobody", "mine:manage")
    arn = "arn:aws:sqs:us-east-1:000000000000:"
    for name in ("secret", "nothing-there"):
        handle = b64encode(f'{{"taskId":"1","sourceArn":"{arn}{name}"}}'.encode()).decode()
        refused("AccessDenied", nobody.start_message_move_task, SourceArn=arn + name)
        refused("AccessDenied", nobody.list_message_move_tasks, SourceArn=arn + name)
        refused("AccessDenied", nobody.cancel_message_move_task, TaskHandle=handle)


# -- What is read and parsed, and for whom --------------------------------------------------------


def authorization(key_id: str, at: str = "{now}", day: str = "{today}") -> str:
    """A signature of somebody who does not know the secret. `made_now` fills in its time: this is
    also the name of a test, which must be the same in every process that collects it."""
    return (
        f"X-Amz-Date: {at}\r\nAuthorization: AWS4-HMAC-SHA256 Credential={key_id}/{day}/"
        f"us-east-1/sqs/aws4_request, SignedHeaders=host, Signature={'0' * 64}\r\n"
    )


def made_now(head: str) -> str:
    now = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    return head.replace("{now}", now).replace("{today}", now[:8])


@pytest.mark.parametrize("target", ["", "X-Amz-Target: AmazonSQS.ListQueues\r\n"])
@pytest.mark.parametrize(
    ("head", "code"),
    [
        ("", b"MissingAuthenticationToken"),
        ("Authorization: Bearer nexo_wrong\r\n", b"InvalidClientTokenId"),
        (authorization("nobody"), b"InvalidClientTokenId"),
        (authorization("{known}", "20200101T000000Z", "20200101"), b"RequestExpired"),
    ],
)
def test_strangers_are_refused_before_they_have_sent_a_body(
    guarded: Guarded, head: str, code: bytes, target: str
) -> None:
    head = made_now(head.replace("{known}", guarded.key("known").access_key_id))
    with guarded.connect() as client:
        sent = f"POST / HTTP/1.1\r\nHost: a\r\n{target}{head}Content-Length: 1000\r\n\r\n"
        client.sendall(sent.encode())
        answer = b""
        while part := client.recv(10_000):
            answer += part
    assert answer.startswith(b"HTTP/1.1 40")
    assert code in answer


@pytest.mark.parametrize("target", ["", "X-Amz-Target: AmazonSQS.ListQueues\r\n"])
def test_nothing_is_made_of_what_is_signed_by_somebody_else(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    parsed: list[bytes] = []
    monkeypatch.setattr(query, "read_fields", parsed.append)
    monkeypatch.setattr(app, "_decode", lambda _, body: parsed.append(body))
    head = made_now(authorization(guarded.key("known").access_key_id))
    with guarded.connect() as client:
        sent = f"POST / HTTP/1.1\r\nHost: a\r\n{target}{head}Content-Length: 17\r\n\r\n"
        client.sendall(sent.encode() + b"Action=ListQueues")
        assert b"SignatureDoesNotMatch" in client.recv(10_000)
    assert parsed == []


END = b" HTTP/1.1\r\nHost: a\r\n\r\n"


def test_a_signed_query_of_many_parameters(guarded: Guarded) -> None:
    with guarded.connect() as client:
        client.sendall(b"GET /?Action=ListQueues&X-Amz-Date=1" + b"&a" * 3_000 + END)
        assert b"too many parameters" in client.recv(10_000)
