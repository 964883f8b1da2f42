"""ReceiveMessage: how many, which parts of them, and what is left out of a reply."""

from typing import Any

import pytest

from tests.compliance.digests import md5_of_attributes, text
from tests.compliance.queue import Queue
from tests.compliance.refusals import INVALID_VALUE, refused

ATTRIBUTES = {"Hello": text("There"), "General": text("Kenobi"), "Help.Me": text("Me")}


def test_nothing_there(sqs: Any, queue: Queue) -> None:
    assert set(sqs.receive_message(QueueUrl=queue.url)) == {"ResponseMetadata"}
    assert set(sqs.receive_message(QueueUrl=queue.url, WaitTimeSeconds=0)) == {"ResponseMetadata"}


def test_one_is_the_default_and_ten_the_most(sqs: Any, queue: Queue) -> None:
    bodies = [str(number) for number in range(12)]
    for body in bodies:
        queue.send(body)
    assert len(sqs.receive_message(QueueUrl=queue.url)["Messages"]) == 1
    assert len(queue.receive(10)) == 10
    assert len(queue.receive(10)) == 1


def test_messages_come_in_the_order_they_were_sent(queue: Queue) -> None:
    """AWS gives its best here; Nexo keeps it."""
    sent = [f"{batch}-{number}" for batch in range(3) for number in range(10)]
    for first in range(0, 30, 10):
        queue.send_batch(*sent[first : first + 10])
    assert queue.drain() == sent


@pytest.mark.parametrize("wrong", [0, 11, -1])
def test_wrong_counts(queue: Queue, wrong: int) -> None:
    with refused(
        INVALID_VALUE,
        f"Value {wrong} for parameter MaxNumberOfMessages is invalid. "
        "Reason: Must be between 1 and 10, if provided.",
    ):
        queue.receive(wrong)


@pytest.mark.parametrize("wrong", [-1, 21])
def test_wrong_waits(queue: Queue, wrong: int) -> None:
    with refused(
        INVALID_VALUE,
        f"Value {wrong} for parameter WaitTimeSeconds is invalid. "
        "Reason: Must be >= 0 and <= 20, if provided.",
    ):
        queue.receive(wait=wrong)


@pytest.mark.parametrize("wrong", [-1, 43201])
def test_wrong_visibility_timeouts(queue: Queue, wrong: int) -> None:
    with refused(INVALID_VALUE, f"Value {wrong} for parameter VisibilityTimeout is invalid."):
        queue.receive(VisibilityTimeout=wrong)


def test_a_message_without_anything_asked_for(queue: Queue) -> None:
    queue.send(MessageAttributes=ATTRIBUTES)
    (message,) = queue.receive()
    assert set(message) == {"Body", "MD5OfBody", "MessageId", "ReceiptHandle"}


def read_again(queue: Queue, **options: Any) -> dict[str, Any]:
    """The message that is there, which comes back at once for the next look."""
    (message,) = queue.receive(VisibilityTimeout=0, **options)
    return message


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ([], []),
        (["All"], ["General", "Hello", "Help.Me"]),
        ([".*"], ["General", "Hello", "Help.Me"]),
        (["Hello", "General"], ["General", "Hello"]),
        (["Hello", "Nobody"], ["Hello"]),
        (["Nobody"], []),
        (["Hel.*"], ["Hello", "Help.Me"]),
        (["Help.*"], ["Help.Me"]),
        (["hello"], []),
        (["General", "Hel.*"], ["General", "Hello", "Help.Me"]),
    ],
)
def test_asking_for_message_attributes(queue: Queue, asked: list[str], expected: list[str]) -> None:
    queue.send(MessageAttributes=ATTRIBUTES)
    message = read_again(queue, MessageAttributeNames=asked)
    chosen = {name: ATTRIBUTES[name] for name in expected}
    if chosen:
        assert message["MessageAttributes"] == chosen
        # The digest covers what is returned, not what was sent: SDKs compare it with just that.
        assert message["MD5OfMessageAttributes"] == md5_of_attributes(chosen)
    else:
        assert "MessageAttributes" not in message
        assert "MD5OfMessageAttributes" not in message


def test_digests_that_aws_gave(queue: Queue) -> None:
    """The same attributes had these digests on AWS."""
    sent = queue.send("msg", MessageAttributes=ATTRIBUTES)
    assert sent["MD5OfMessageAttributes"] == "4c360f3fdafd970e05fae2f149d997f5"
    some = read_again(queue, MessageAttributeNames=["Hello", "General"])
    assert some["MD5OfMessageAttributes"] == "fca026605781cb4126a1e9044df24232"
    prefix = read_again(queue, MessageAttributeNames=["Hel.*"])
    assert prefix["MD5OfMessageAttributes"] == "83fee93c1bcd8b9a5a923ffacdc636c7"


@pytest.mark.parametrize("parameter", ["MessageSystemAttributeNames", "AttributeNames"])
def test_asking_for_system_attributes(queue: Queue, parameter: str) -> None:
    """The second name is the older one."""
    queue.send()
    everything = read_again(queue, **{parameter: ["All"]})["Attributes"]
    assert set(everything) == {
        "ApproximateFirstReceiveTimestamp",
        "ApproximateReceiveCount",
        "SenderId",
        "SentTimestamp",
    }
    some = read_again(queue, **{parameter: ["SentTimestamp", "SenderId"]})["Attributes"]
    assert set(some) == {"SentTimestamp", "SenderId"}
    counted = read_again(queue, **{parameter: ["ApproximateReceiveCount"]})["Attributes"]
    assert counted == {"ApproximateReceiveCount": "3"}
    # One that this message does not have is left out, and so is an empty map.
    assert "Attributes" not in read_again(queue, **{parameter: ["MessageGroupId"]})


def test_what_a_message_keeps(queue: Queue) -> None:
    queue.send()
    first, second = (
        read_again(queue, MessageSystemAttributeNames=["All"])["Attributes"] for _ in range(2)
    )
    assert (first["ApproximateReceiveCount"], second["ApproximateReceiveCount"]) == ("1", "2")
    for kept in ("ApproximateFirstReceiveTimestamp", "SentTimestamp", "SenderId"):
        assert first[kept] == second[kept]


def test_every_receive_gives_a_new_receipt(queue: Queue) -> None:
    queue.send()
    messages = [read_again(queue) for _ in range(3)]
    assert len({message["MessageId"] for message in messages}) == 1
    receipts = [message["ReceiptHandle"] for message in messages]
    assert len(set(receipts)) == 3
    assert all(20 < len(receipt) <= 1024 for receipt in receipts)


def test_unknown_system_attributes(queue: Queue) -> None:
    with refused("InvalidAttributeName", "Unknown Attribute Colour."):
        queue.receive(MessageSystemAttributeNames=["Colour"])
    with refused("InvalidAttributeName", "Unknown Attribute Colour."):
        queue.receive(AttributeNames=["Colour"])


def test_an_attempt_id_means_nothing_on_a_standard_queue(queue: Queue) -> None:
    """Frameworks send one with every receive, whatever the type of the queue; AWS passes it
    over."""
    queue.send_batch("a", "b")
    assert queue.bodies(1, ReceiveRequestAttemptId="attempt") == ["a"]
    assert queue.bodies(1, ReceiveRequestAttemptId="attempt") == ["b"]
