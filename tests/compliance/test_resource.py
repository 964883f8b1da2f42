"""boto3's resources: the objects that many programs use instead of the client."""

from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.compliance import clients
from tests.compliance.broker import ServedBroker
from tests.compliance.digests import text


@pytest.fixture
def sqs(broker: ServedBroker) -> Iterator[Any]:
    resource = clients.resource(broker.endpoint)
    yield resource
    resource.meta.client.close()


def test_a_message_from_end_to_end(sqs: Any, name: str) -> None:
    queue = sqs.create_queue(QueueName=name, Attributes={"DelaySeconds": "0"})
    assert queue.attributes["DelaySeconds"] == "0"
    sent = queue.send_message(MessageBody="hello", MessageAttributes={"colour": text("red")})
    (message,) = queue.receive_messages(
        MessageAttributeNames=["All"], MessageSystemAttributeNames=["All"]
    )
    assert message.body == "hello"
    assert message.message_id == sent["MessageId"]
    assert message.md5_of_body == sent["MD5OfMessageBody"]
    assert message.message_attributes == {"colour": text("red")}
    assert message.attributes["ApproximateReceiveCount"] == "1"
    message.change_visibility(VisibilityTimeout=60)
    message.delete()
    queue.reload()
    assert queue.attributes["ApproximateNumberOfMessages"] == "0"
    assert queue.receive_messages() == []


def test_finding_queues(sqs: Any, name: str) -> None:
    made = [sqs.create_queue(QueueName=f"{name}-{number}") for number in range(3)]
    assert sqs.get_queue_by_name(QueueName=f"{name}-1") == made[1]
    found = sqs.queues.filter(QueueNamePrefix=name)
    assert sorted(queue.url for queue in found) == sorted(queue.url for queue in made)
    assert len(list(sqs.queues.filter(QueueNamePrefix=name).limit(2))) == 2
    with pytest.raises(ClientError, match="NonExistentQueue"):
        sqs.get_queue_by_name(QueueName=f"{name}-none")


def test_batches(sqs: Any, name: str) -> None:
    queue = sqs.create_queue(QueueName=name)
    entries = [{"Id": str(number), "MessageBody": str(number)} for number in range(10)]
    assert len(queue.send_messages(Entries=entries)["Successful"]) == 10
    messages = queue.receive_messages(MaxNumberOfMessages=10)
    assert [message.body for message in messages] == [str(number) for number in range(10)]
    deleted = queue.delete_messages(
        Entries=[
            {"Id": message.message_id, "ReceiptHandle": message.receipt_handle}
            for message in messages
        ]
    )
    assert len(deleted["Successful"]) == 10
    queue.set_attributes(Attributes={"VisibilityTimeout": "77"})
    queue.reload()
    assert queue.attributes["VisibilityTimeout"] == "77"
    queue.purge()
    queue.delete()
