"""FIFO queues: order inside a group, whatever fails, and one consumer a group at a time."""

import re
from typing import Any

import pytest

from tests.compliance.queue import Make, Queue
from tests.compliance.refusals import INVALID_VALUE, MISSING, refused

NO_DEDUPLICATION = (
    "The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId "
    "provided explicitly"
)


def fill(fifo: Queue, *bodies: str) -> None:
    """Messages whose group is their first letter."""
    for body in bodies:
        fifo.send(body, MessageGroupId=body[0], MessageDeduplicationId=body)


def of_group(bodies: list[str], group: str) -> list[str]:
    return [body for body in bodies if body[0] == group]


def test_the_reply(fifo: Queue) -> None:
    reply = fifo.send("a", MessageGroupId="g", MessageDeduplicationId="d")
    assert set(reply) == {"MD5OfMessageBody", "MessageId", "SequenceNumber", "ResponseMetadata"}
    assert re.fullmatch(r"\d{20}", reply["SequenceNumber"])


def test_what_a_message_tells(fifo: Queue) -> None:
    sent = fifo.send("a", MessageGroupId="group-1", MessageDeduplicationId="dedup-1")
    attributes = fifo.one()["Attributes"]
    assert set(attributes) == {
        "ApproximateFirstReceiveTimestamp",
        "ApproximateReceiveCount",
        "MessageDeduplicationId",
        "MessageGroupId",
        "SenderId",
        "SentTimestamp",
        "SequenceNumber",
    }
    assert attributes["MessageGroupId"] == "group-1"
    assert attributes["MessageDeduplicationId"] == "dedup-1"
    assert attributes["SequenceNumber"] == sent["SequenceNumber"]


def test_sequence_numbers_grow(fifo: Queue) -> None:
    numbers = [
        fifo.send(str(n), MessageGroupId="ab"[n % 2], MessageDeduplicationId=str(n))[
            "SequenceNumber"
        ]
        for n in range(4)
    ]
    batch = fifo.send_batch(
        *[
            {
                "Id": str(n),
                "MessageBody": "x",
                "MessageGroupId": "a",
                "MessageDeduplicationId": f"b{n}",
            }
            for n in range(3)
        ]
    )
    numbers += [entry["SequenceNumber"] for entry in batch["Successful"]]
    assert numbers == sorted(set(numbers))  # texts of one length: their order is that of numbers


def test_order_and_the_lock_of_a_group(fifo: Queue) -> None:
    fill(fifo, "a1", "b1", "a2", "a3", "b2")
    first = fifo.bodies(1)
    assert first == ["a1"]
    # a2 and a3 wait for a1; b does not.
    assert fifo.bodies() == ["b1", "b2"]
    assert fifo.bodies() == []
    assert fifo.counts() == (2, 3, 0)


def test_one_receive_may_take_many_of_a_group(fifo: Queue) -> None:
    fill(fifo, *[f"a{n}" for n in range(12)])
    messages = fifo.receive()
    assert [message["Body"] for message in messages] == [f"a{n}" for n in range(10)]
    assert fifo.receive() == []
    fifo.delete(*messages[:9])
    assert fifo.receive() == []  # one of them is still out
    fifo.delete(messages[9])
    assert fifo.bodies() == ["a10", "a11"]


def test_groups_keep_their_own_order(fifo: Queue) -> None:
    bodies = [f"{group}{n}" for n in range(5) for group in "abc"]
    fill(fifo, *bodies)
    received = fifo.drain()
    for group in "abc":
        assert of_group(received, group) == of_group(bodies, group)
    assert len(received) == 15


def test_a_failure_holds_the_group_back(fifo: Queue) -> None:
    fill(fifo, "a1", "a2", "a3")
    message = fifo.one()
    fifo.change(message, 0)
    again = fifo.one()
    assert again["Body"] == "a1"
    fifo.change(again, 0)
    assert fifo.bodies() == ["a1", "a2", "a3"]


def test_the_first_of_a_group_comes_back_alone(fifo: Queue) -> None:
    """Others of the group are still out; what stands before them may go, nothing behind them."""
    fill(fifo, "a1", "a2", "a3", "b1")
    held = fifo.receive(2)
    assert [message["Body"] for message in held] == ["a1", "a2"]
    fifo.change(held[0], 0)
    received = fifo.bodies()
    assert sorted(received) == ["a1", "b1"]


def test_a_deleted_first_frees_nothing_behind_a_second(fifo: Queue) -> None:
    fill(fifo, "a1", "a2", "a3", "b1")
    held = fifo.receive(2)
    fifo.delete(held[0])
    assert fifo.bodies() == ["b1"]
    fifo.delete(held[1])
    assert fifo.bodies() == ["a3"]


def test_what_comes_later_does_not_overtake(fifo: Queue) -> None:
    fill(fifo, "a1")
    held = fifo.one()
    fill(fifo, "a2")
    assert fifo.bodies() == []
    fifo.change(held, 0)
    fill(fifo, "a3")
    assert fifo.bodies() == ["a1", "a2", "a3"]


def test_no_timeout_at_all_keeps_the_order(fifo: Queue) -> None:
    fill(fifo, "a1", "b1", "a2")
    for _ in range(2):
        received = fifo.bodies(VisibilityTimeout=0)
        assert of_group(received, "a") == ["a1", "a2"]
        assert of_group(received, "b") == ["b1"]


def test_a_group_is_required(fifo: Queue) -> None:
    with refused(MISSING, "The request must contain the parameter MessageGroupId."):
        fifo.send(MessageDeduplicationId="d")
    with refused(INVALID_VALUE, NO_DEDUPLICATION):
        fifo.send(MessageGroupId="g")


def test_batches_lacking_what_fifo_needs_are_refused_whole(fifo: Queue) -> None:
    whole = {"Id": "1", "MessageBody": "x", "MessageGroupId": "g", "MessageDeduplicationId": "d"}
    without_group = {"Id": "2", "MessageBody": "x", "MessageDeduplicationId": "e"}
    without_id = {"Id": "2", "MessageBody": "x", "MessageGroupId": "g"}
    with pytest.raises(
        fifo.sqs.exceptions.ClientError, match="must contain the parameter MessageGr"
    ):
        fifo.send_batch(whole, without_group)
    with refused(INVALID_VALUE, NO_DEDUPLICATION):
        fifo.send_batch(whole, without_id)
    assert fifo.counts() == (0, 0, 0)


def test_a_delay_belongs_to_the_queue(fifo: Queue) -> None:
    with refused(
        INVALID_VALUE,
        "Value 2 for parameter DelaySeconds is invalid. Reason: The request include parameter "
        "that is not valid for this queue type.",
    ):
        fifo.send(MessageGroupId="g", MessageDeduplicationId="d", DelaySeconds=2)
    fifo.send(MessageGroupId="g", MessageDeduplicationId="d", DelaySeconds=0)
    assert fifo.counts() == (1, 0, 0)


def test_a_stale_receipt_cannot_delete(fifo: Queue) -> None:
    fill(fifo, "a1")
    first = fifo.one()
    fifo.change(first, 0)
    second = fifo.one()
    with refused(
        INVALID_VALUE,
        f"Value {first['ReceiptHandle']} for parameter ReceiptHandle is invalid. "
        "Reason: The receipt handle has expired.",
    ):
        fifo.delete(first)
    fifo.delete(second)
    fifo.delete(second)  # deleting twice is fine
    assert fifo.counts() == (0, 0, 0)


def test_a_stale_receipt_in_a_batch(fifo: Queue) -> None:
    fill(fifo, "a1", "b1")
    stale, good = fifo.receive()
    fifo.change(stale, 0)
    entries = [
        {"Id": "stale", "ReceiptHandle": stale["ReceiptHandle"]},
        {"Id": "good", "ReceiptHandle": good["ReceiptHandle"]},
    ]
    reply = fifo.sqs.delete_message_batch(QueueUrl=fifo.url, Entries=entries)
    assert reply["Successful"] == [{"Id": "good"}]
    (failed,) = reply["Failed"]
    assert (failed["Id"], failed["Code"]) == ("stale", INVALID_VALUE)


def test_a_receive_that_is_repeated(fifo: Queue) -> None:
    """The same attempt gives the same messages under the same receipts, though they are hidden."""
    fill(fifo, "a1", "a2", "b1")
    first = fifo.receive(2, ReceiveRequestAttemptId="attempt-1")
    again = fifo.receive(2, ReceiveRequestAttemptId="attempt-1")
    assert [m["ReceiptHandle"] for m in again] == [m["ReceiptHandle"] for m in first]
    assert [m["Body"] for m in again] == ["a1", "a2"]
    assert fifo.bodies(2, ReceiveRequestAttemptId="attempt-2") == ["b1"]
    # "… if none of the messages have been modified (deleted or had their visibility changed)."
    fifo.delete(first[0])
    with refused(
        INVALID_VALUE,
        "Value attempt-1 for parameter ReceiveRequestAttemptId is invalid. Reason: The "
        "receiveRequestAttemptId is not valid anymore since the receive call is not retryable.",
    ):
        fifo.receive(2, ReceiveRequestAttemptId="attempt-1")


@pytest.mark.parametrize("wrong", ["a b", "x" * 129, "ü"])
def test_wrong_attempt_ids(fifo: Queue, wrong: str) -> None:
    with refused(INVALID_VALUE, f"Value {wrong} for parameter ReceiveRequestAttemptId is invalid."):
        fifo.receive(ReceiveRequestAttemptId=wrong)


def test_a_queue_for_each_name(sqs: Any, make: Make) -> None:
    """`orders` and `orders.fifo` are two queues."""
    fifo = make(fifo=True)
    stem = fifo.name.removesuffix(".fifo")
    standard = Queue(sqs, sqs.create_queue(QueueName=stem)["QueueUrl"])
    fill(fifo, "a1")
    assert standard.receive() == []
    assert fifo.bodies() == ["a1"]
