"""The same queues from both sides: SQS and the native client."""

import hashlib
from collections.abc import Iterator
from typing import Any

import pytest

import nexo
from tests.aws import ACCOUNT
from tests.compliance.broker import ServedBroker
from tests.compliance.digests import number, text
from tests.compliance.marks import json_only
from tests.compliance.queue import Make, Queue
from tests.compliance.refusals import INVALID_VALUE, refused


@pytest.fixture
def native(broker: ServedBroker) -> Iterator[Any]:
    with nexo.connect(broker.native_url, timeout=20) as client:
        yield client


def test_from_sqs_to_native(queue: Queue, native: Any) -> None:
    sent = queue.send("hello ✓", MessageAttributes={"tenant": text("a")}, MessageGroupId="t1")
    message = native.queue(queue.name).pop(wait=5)
    assert message.text == "hello ✓"
    assert message.id == sent["MessageId"]
    assert message.attributes["tenant"] == "a"
    assert message.group_id == "t1"
    message.ack()
    assert queue.counts() == (0, 0, 0)


def test_from_native_to_sqs(sqs: Any, broker: ServedBroker, native: Any, name: str) -> None:
    """Native queues belong to the default account and region."""
    orders = native.create_queue(name, visibility_timeout=45.0)
    identity = orders.push({"id": 1}, attributes={"tenant": "a"}, group_id="t1")
    queue = Queue(sqs, sqs.get_queue_url(QueueName=name)["QueueUrl"])
    assert queue.url == f"{broker.endpoint}/{ACCOUNT}/{name}"
    assert queue.attributes("VisibilityTimeout") == {"VisibilityTimeout": "45"}
    assert queue.url in sqs.list_queues(QueueNamePrefix=name)["QueueUrls"]
    message = queue.one()
    assert message["MessageId"] == identity
    assert message["Body"] == '{"id":1}'
    assert message["MD5OfBody"] == hashlib.md5(b'{"id":1}').hexdigest()
    assert message["MessageAttributes"] == {"tenant": text("a")}
    assert message["Attributes"]["MessageGroupId"] == "t1"
    queue.delete(message)
    assert orders.info().depth == 0


def test_attributes_set_here_hold_there(queue: Queue, native: Any) -> None:
    queue.set(VisibilityTimeout="77", MaximumMessageSize="2048", DelaySeconds="3")
    settings = native.queue(queue.name).info().settings
    assert settings.visibility_timeout == 77
    assert settings.max_message_bytes == 2048
    assert settings.delay == 3


def test_depth_is_one_number(queue: Queue, native: Any) -> None:
    queue.send_batch("a", "b", "c")
    queue.send("later", DelaySeconds=60)
    queue.one()
    info = native.queue(queue.name).info()
    assert (info.ready, info.in_flight, info.scheduled) == queue.counts() == (2, 1, 1)


def test_a_nack_there_is_seen_here(queue: Queue, native: Any) -> None:
    queue.send()
    native.queue(queue.name).pop(wait=5).nack(delay=0, reason="no")
    assert queue.one()["Attributes"]["ApproximateReceiveCount"] == "2"


def test_priority(queue: Queue) -> None:
    """Where SQS has no word: the attribute `Nexo.Priority`."""
    for body, priority in (("low", "0"), ("high", "255"), ("middle", "7")):
        queue.send(body, MessageAttributes={"Nexo.Priority": number(priority)})
    queue.send("none")
    assert queue.drain() == ["high", "middle", "low", "none"]


def test_priority_goes_both_ways(queue: Queue, native: Any) -> None:
    attributes = {"Nexo.Priority": number("9"), "colour": text("red")}
    queue.send(MessageAttributes=attributes)
    message = native.queue(queue.name).pop(wait=5)
    assert message.priority == 9
    message.nack(delay=0)
    assert queue.one()["MessageAttributes"] == attributes
    queue.sqs.purge_queue(QueueUrl=queue.url)
    native.queue(queue.name).push("x", priority=200)
    assert queue.one()["MessageAttributes"]["Nexo.Priority"] == number("200")


@pytest.mark.parametrize("wrong", [number("256"), number("-1"), number("1.5"), text("9")])
def test_wrong_priorities(queue: Queue, wrong: dict[str, Any]) -> None:
    with refused(INVALID_VALUE):
        queue.send(MessageAttributes={"Nexo.Priority": wrong})


def test_quiet_tenants_go_first(queue: Queue) -> None:
    """A tenant that holds many of the messages in flight waits behind those that hold few."""
    for first in range(0, 60, 10):
        queue.send_batch(*[f"noisy {first + n}" for n in range(10)], MessageGroupId="noisy")
    queue.send("quiet", MessageGroupId="quiet")
    for _ in range(3):  # from 30 on a tenant may be noisy
        assert len(queue.receive()) == 10
    assert queue.bodies(1) == ["quiet"]


@json_only
def test_120_000_messages_in_flight_and_no_more(make: Make, native: Any) -> None:
    """Taken by a native client, which has no such limit, to be there in time."""
    queue = make(VisibilityTimeout="600")
    there = native.queue(queue.name)
    for count in (60_000, 60_001):
        there.push_batch([b"x"] * count)
    held = [message for _ in range(12) for message in there.pop_batch(10_000, wait=5)]
    assert len(held) == 120_000
    with refused("OverLimit"):
        queue.receive()
    there.ack_batch(held[:1])
    assert len(queue.receive()) == 1


def test_bodies_that_are_no_text(queue: Queue, native: Any) -> None:
    """A native body may be any bytes; over SQS it must still be a string that comes through."""
    native.queue(queue.name).push(b"\xff\x00binary")
    native.queue(queue.name).push("text")
    bodies = queue.drain()
    assert bodies[-1] == "text"
    assert len(bodies) == 2
