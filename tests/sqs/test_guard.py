"""With access required a signature opens the door, and its key says how far."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from nexo.access.guard import Guard
from nexo.doors.http.front import Front
from nexo.doors.http.listener import HttpDoor
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
        engine.keys.guard_with(guard.adopt)
        self._door = HttpDoor(Front(SqsApp(engine, guard=guard), {}, lambda: None))
        return f"http://127.0.0.1:{await self._door.open('127.0.0.1', 0)}"

    def close(self) -> None:
        self._running.call(lambda _: self._door.close())

    def client(self, name: str, *allow: str) -> Any:
        """A client with an access key that allows this."""
        key = self._running.call(lambda engine: engine.keys.create(name, allow, aws=True))
        return self.signed(key.access_key_id, key.secret_access_key)

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
    keeper = guarded.client("keeper", "dead:manage", "live:manage")
    refused(
        "AccessDenied",
        keeper.start_message_move_task,
        SourceArn=arn + "dead",
        DestinationArn=arn + "other",
    )
    keeper.start_message_move_task(SourceArn=arn + "dead", DestinationArn=arn + "live")
