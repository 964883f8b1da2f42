"""Deduplication: what was sent once is accepted again, and delivered once."""

import hashlib

from tests.compliance.digests import text
from tests.compliance.queue import Make, Queue
from tests.compliance.refusals import INVALID_VALUE, refused


def send(fifo: Queue, body: str = "x", group: str = "g", **options: str) -> dict[str, str]:
    return fifo.send(body, MessageGroupId=group, **options)


def test_by_id(fifo: Queue) -> None:
    first = send(fifo, "one", MessageDeduplicationId="d")
    again = send(fifo, "two", MessageDeduplicationId="d")
    assert again["MessageId"] == first["MessageId"]
    assert again["SequenceNumber"] == first["SequenceNumber"]
    send(fifo, "one", MessageDeduplicationId="e")
    assert fifo.drain() == ["one", "one"]


def test_ids_are_case_sensitive(fifo: Queue) -> None:
    send(fifo, "lower", MessageDeduplicationId="d")
    send(fifo, "upper", MessageDeduplicationId="D")
    assert fifo.drain() == ["lower", "upper"]


def test_it_is_remembered_after_the_message_is_gone(fifo: Queue) -> None:
    """SQS continues to keep track of the deduplication ID even after the message is received and
    deleted."""
    send(fifo, MessageDeduplicationId="d")
    assert fifo.drain() == ["x"]
    send(fifo, MessageDeduplicationId="d")
    assert fifo.counts() == (0, 0, 0)


def test_while_the_message_is_in_flight(fifo: Queue) -> None:
    send(fifo, MessageDeduplicationId="d")
    message = fifo.one()
    send(fifo, MessageDeduplicationId="d")
    fifo.delete(message)
    assert fifo.counts() == (0, 0, 0)


def test_by_content(make: Make) -> None:
    fifo = make(fifo=True, ContentBasedDeduplication="true")
    first = send(fifo, "same")
    again = send(fifo, "same")
    assert again["MessageId"] == first["MessageId"]
    send(fifo, "other")
    message = fifo.one()
    assert message["Attributes"]["MessageDeduplicationId"] == hashlib.sha256(b"same").hexdigest()
    fifo.delete(message)
    assert fifo.drain() == ["other"]


def test_attributes_are_not_content(make: Make) -> None:
    fifo = make(fifo=True, ContentBasedDeduplication="true")
    fifo.send("same", MessageGroupId="g", MessageAttributes={"colour": text("red")})
    fifo.send("same", MessageGroupId="g", MessageAttributes={"colour": text("blue")})
    assert fifo.counts() == (1, 0, 0)


def test_an_id_goes_before_content(make: Make) -> None:
    fifo = make(fifo=True, ContentBasedDeduplication="true")
    send(fifo, "same", MessageDeduplicationId="1")
    send(fifo, "same", MessageDeduplicationId="2")
    assert fifo.counts() == (2, 0, 0)
    # "… and another message with an ID that is the same as the one generated for the first"
    send(fifo, "content")
    send(fifo, "else", MessageDeduplicationId=hashlib.sha256(b"content").hexdigest())
    assert fifo.drain() == ["same", "same", "content"]


def test_groups_share_ids(fifo: Queue) -> None:
    """The default scope is the queue."""
    send(fifo, "a", "one", MessageDeduplicationId="d")
    send(fifo, "b", "two", MessageDeduplicationId="d")
    assert fifo.drain() == ["a"]


def test_scope_of_a_group(make: Make) -> None:
    fifo = make(fifo=True, DeduplicationScope="messageGroup")
    send(fifo, "a", "one", MessageDeduplicationId="d")
    send(fifo, "b", "two", MessageDeduplicationId="d")
    send(fifo, "c", "two", MessageDeduplicationId="d")
    assert fifo.drain() == ["a", "b"]


def test_inside_a_batch(fifo: Queue) -> None:
    entry = {"MessageGroupId": "g", "MessageBody": "x"}
    reply = fifo.send_batch(
        {"Id": "1", "MessageDeduplicationId": "d", **entry},
        {"Id": "2", "MessageDeduplicationId": "d", **entry},
        {"Id": "3", "MessageDeduplicationId": "e", **entry},
    )
    one, two, three = reply["Successful"]
    assert one["MessageId"] == two["MessageId"] != three["MessageId"]
    assert fifo.counts() == (2, 0, 0)


def test_a_batch_keeps_its_order(make: Make) -> None:
    fifo = make(fifo=True, ContentBasedDeduplication="true")
    fifo.send_batch(*"abcdefghij", MessageGroupId="g")
    assert fifo.bodies() == list("abcdefghij")


def test_content_can_be_switched_off(make: Make) -> None:
    fifo = make(fifo=True, ContentBasedDeduplication="true")
    send(fifo, "a")
    fifo.set(ContentBasedDeduplication="false")
    with refused(INVALID_VALUE, "The queue should either have ContentBasedDeduplication enabled"):
        send(fifo, "b")


def test_a_purge_forgets_ids(fifo: Queue) -> None:
    """What was purged may be sent again: so it was observed on AWS."""
    send(fifo, MessageDeduplicationId="d")
    fifo.sqs.purge_queue(QueueUrl=fifo.url)
    send(fifo, MessageDeduplicationId="d")
    assert fifo.counts() == (1, 0, 0)


def test_a_new_queue_knows_nothing_of_the_old(fifo: Queue) -> None:
    send(fifo, MessageDeduplicationId="d")
    fifo.sqs.delete_queue(QueueUrl=fifo.url)
    fifo.sqs.create_queue(QueueName=fifo.name, Attributes={"FifoQueue": "true"})
    send(fifo, MessageDeduplicationId="d")
    assert fifo.counts() == (1, 0, 0)
