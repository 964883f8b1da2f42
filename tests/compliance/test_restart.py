"""What SQS clients were told is so still holds after the broker was killed."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.compliance import clients
from tests.compliance.broker import ServedBroker
from tests.compliance.digests import binary, number, text
from tests.compliance.queue import Queue

ATTRIBUTES = {"text": text("✓"), "number": number("1.50"), "bytes": binary(b"\x00\xff")}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[ServedBroker]:
    """One that may be killed."""
    served = ServedBroker(tmp_path)
    yield served.start()
    served.kill()


@pytest.fixture
def protocol() -> str:
    return "json"


class Restarted:
    """Queues by their names: the port is another one after a restart."""

    def __init__(self, broker: ServedBroker) -> None:
        self._broker = broker
        self._clients: list[Any] = []
        self.connect()

    def connect(self) -> None:
        self.sqs = clients.client(self._broker.endpoint)
        self._clients.append(self.sqs)

    def kill_and_start(self) -> None:
        self._broker.kill()
        self._broker.start()
        self.connect()

    def queue(self, name: str, **attributes: str) -> Queue:
        if attributes:
            self.sqs.create_queue(QueueName=name, Attributes=attributes)
        return Queue(self.sqs, name)

    def close(self) -> None:
        for each in self._clients:
            each.close()


@pytest.fixture
def restarted(broker: ServedBroker) -> Iterator[Restarted]:
    whole = Restarted(broker)
    yield whole
    whole.close()


def test_messages_and_queues(restarted: Restarted) -> None:
    queue = restarted.queue("orders", VisibilityTimeout="43", DelaySeconds="0")
    dead = restarted.queue("dead", VisibilityTimeout="30")
    policy = {"deadLetterTargetArn": dead.arn, "maxReceiveCount": 4}
    queue.set(RedrivePolicy=json.dumps(policy))
    restarted.sqs.tag_queue(QueueUrl="orders", Tags={"team": "blue"})
    before = queue.attributes("All")
    sent = queue.send("kept", MessageAttributes=ATTRIBUTES, MessageGroupId="tenant")
    queue.send("held")
    queue.send("later", DelaySeconds=600)
    done = queue.send("done")
    messages = queue.receive()
    assert done["MessageId"] == messages[2]["MessageId"]
    queue.delete(messages[2])
    queue.change(messages[0], 0)

    restarted.kill_and_start()

    queue = restarted.queue("orders")
    after = queue.attributes("All")
    counts = {name: after.pop(name) for name in list(after) if name.startswith("Approximate")}
    assert after == {name: before[name] for name in before if name not in counts}
    tags = restarted.sqs.list_queue_tags(QueueUrl="orders")["Tags"]
    assert tags == {"team": "blue"}
    assert sum(queue.counts()) == 3
    assert queue.counts()[2] == 1
    message = queue.one()
    assert (message["Body"], message["MessageId"]) == ("kept", sent["MessageId"])
    assert message["MessageAttributes"] == ATTRIBUTES
    assert message["Attributes"]["MessageGroupId"] == "tenant"
    # A receipt from before may still delete, so that work done meanwhile is not done again.
    queue.delete(messages[1])
    assert sum(queue.counts()) == 2


def test_fifo(restarted: Restarted) -> None:
    fifo = restarted.queue("orders.fifo", FifoQueue="true", ContentBasedDeduplication="true")
    first = fifo.send("a", MessageGroupId="g")
    fifo.send("b", MessageGroupId="g")

    restarted.kill_and_start()

    fifo = restarted.queue("orders.fifo")
    again = fifo.send("a", MessageGroupId="g")
    assert again["MessageId"] == first["MessageId"]
    third = fifo.send("c", MessageGroupId="g")
    assert third["SequenceNumber"] > first["SequenceNumber"]
    assert fifo.bodies() == ["a", "b", "c"]


def test_move_tasks_go_on(restarted: Restarted) -> None:
    """A handle stands for its task and for no other, however often the broker starts."""
    dead = restarted.queue("dead", VisibilityTimeout="30")
    arn = dead.arn
    policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 1})
    restarted.queue("live", RedrivePolicy=policy)
    restarted.queue("other", VisibilityTimeout="30")
    for each in range(30):
        dead.send(str(each))
    other = arn.replace(":dead", ":other")
    given = {"SourceArn": arn, "DestinationArn": other, "MaxNumberOfMessagesPerSecond": 1}
    handle = restarted.sqs.start_message_move_task(**given)["TaskHandle"]
    restarted.kill_and_start()
    (task,) = restarted.sqs.list_message_move_tasks(SourceArn=arn)["Results"]
    assert (task["Status"], task["TaskHandle"]) == ("RUNNING", handle)
    assert task["ApproximateNumberOfMessagesToMove"] == 30
    restarted.sqs.cancel_message_move_task(TaskHandle=handle)
    while restarted.sqs.list_message_move_tasks(SourceArn=arn)["Results"][0]["Status"] != (
        "CANCELLED"
    ):
        pass
    second = restarted.sqs.start_message_move_task(**given)["TaskHandle"]
    restarted.kill_and_start()
    with pytest.raises(restarted.sqs.exceptions.ResourceNotFoundException):
        restarted.sqs.cancel_message_move_task(TaskHandle=handle)
    listed = restarted.sqs.list_message_move_tasks(SourceArn=arn, MaxResults=10)["Results"]
    assert [each["Status"] for each in listed] == ["RUNNING", "CANCELLED"]
    assert listed[0]["TaskHandle"] == second != handle
