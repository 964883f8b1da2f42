"""Receipts and visibility: what a consumer may still do with a message, and when."""

from typing import Any

import pytest

from tests.compliance.queue import Make, Queue
from tests.compliance.refusals import INVALID_VALUE, refused

NOT_IN_FLIGHT = "AWS.SimpleQueueService.MessageNotInflight"


def test_a_received_message_is_hidden_until_deleted(queue: Queue) -> None:
    queue.send()
    message = queue.one()
    assert queue.receive() == []
    assert queue.counts() == (0, 1, 0)
    queue.delete(message)
    assert queue.counts() == (0, 0, 0)


def test_replies_are_empty(sqs: Any, queue: Queue) -> None:
    queue.send()
    receipt = queue.one()["ReceiptHandle"]
    changed = sqs.change_message_visibility(
        QueueUrl=queue.url, ReceiptHandle=receipt, VisibilityTimeout=30
    )
    deleted = sqs.delete_message(QueueUrl=queue.url, ReceiptHandle=receipt)
    assert set(changed) == set(deleted) == {"ResponseMetadata"}


def test_deleting_twice_is_fine(queue: Queue) -> None:
    queue.send()
    message = queue.one()
    queue.delete(message)
    queue.delete(message)


def test_an_older_receipt_may_delete(queue: Queue) -> None:
    """On a standard queue; and while another consumer holds the message."""
    queue.send()
    first = queue.one()
    queue.change(first, 0)
    second = queue.one()
    assert second["MessageId"] == first["MessageId"]
    queue.delete(first)
    queue.delete(second)
    assert queue.counts() == (0, 0, 0)


def test_an_older_receipt_may_end_the_timeout(queue: Queue) -> None:
    queue.send()
    first = queue.one(VisibilityTimeout=0)
    queue.one(VisibilityTimeout=60)
    queue.change(first, 0)
    assert queue.one()["MessageId"] == first["MessageId"]


def test_zero_gives_back_at_once(queue: Queue) -> None:
    queue.send()
    queue.change(queue.one(), 0)
    again = queue.one()
    assert again["Attributes"]["ApproximateReceiveCount"] == "2"


def test_what_comes_back_takes_its_old_place(queue: Queue) -> None:
    queue.send_batch("a", "b", "c")
    first, second = queue.receive(2)
    queue.change(second, 0)
    queue.change(first, 0)
    assert queue.bodies() == ["a", "b", "c"]


@pytest.mark.parametrize("garbage", ["garbage", "AQEB" + "x" * 200, "a/b+c==", "ü", "0", "{}"])
def test_garbage_receipts(queue: Queue, garbage: str) -> None:
    told = f'The input receipt handle "{garbage}" is not a valid receipt handle.'
    with refused("ReceiptHandleIsInvalid", told):
        queue.delete({"ReceiptHandle": garbage})
    with refused("ReceiptHandleIsInvalid", told):
        queue.change({"ReceiptHandle": garbage}, 30)
    with pytest.raises(queue.sqs.exceptions.ReceiptHandleIsInvalid):
        queue.delete({"ReceiptHandle": garbage})


def test_receipts_that_were_changed(queue: Queue) -> None:
    """Nobody may reach another message by writing receipts."""
    queue.send_batch("a", "b")
    held = queue.receive()
    receipt = held[0]["ReceiptHandle"]
    for place in range(0, len(receipt), 7):
        letter = "A" if receipt[place] != "A" else "B"
        forged = receipt[:place] + letter + receipt[place + 1 :]
        with refused("ReceiptHandleIsInvalid"):
            queue.change({"ReceiptHandle": forged}, 0)
    assert queue.counts() == (0, 2, 0)


def test_receipts_belong_to_a_queue(make: Make) -> None:
    one, other = make(), make()
    one.send()
    other.send()
    message = one.one()
    other.one()
    with pytest.raises(one.sqs.exceptions.ClientError):
        other.delete(message)
    assert one.counts() == other.counts() == (0, 1, 0)


@pytest.mark.parametrize("seconds", [-1, 43201])
def test_wrong_timeouts(queue: Queue, seconds: int) -> None:
    queue.send()
    message = queue.one()
    with refused(
        INVALID_VALUE, f"Value {seconds} for parameter VisibilityTimeout is invalid. Reason: "
    ):
        queue.change(message, seconds)
    assert queue.counts() == (0, 1, 0)


def test_nearly_twelve_hours(queue: Queue) -> None:
    queue.send()
    queue.change(queue.one(), 43000)
    assert queue.counts() == (0, 1, 0)


def test_a_message_that_is_not_in_flight(queue: Queue) -> None:
    queue.send()
    message = queue.one()
    queue.change(message, 0)
    with refused(NOT_IN_FLIGHT):
        queue.change(message, 30)
    with pytest.raises(queue.sqs.exceptions.MessageNotInflight):
        queue.change(message, 30)
    assert queue.counts() == (1, 0, 0)


def test_a_message_that_is_gone(queue: Queue) -> None:
    queue.send()
    message = queue.one()
    queue.delete(message)
    with pytest.raises(queue.sqs.exceptions.ClientError) as refusal:
        queue.change(message, 30)
    assert refusal.value.response["Error"]["Code"] in (INVALID_VALUE, NOT_IN_FLIGHT)


def test_receiving_with_no_timeout_at_all(make: Make) -> None:
    queue = make(VisibilityTimeout="0")
    queue.send()
    counts = [queue.one()["Attributes"]["ApproximateReceiveCount"] for _ in range(3)]
    assert counts == ["1", "2", "3"]


def test_many_consumers_never_share(queue: Queue) -> None:
    from concurrent.futures import ThreadPoolExecutor

    sent = [str(number) for number in range(60)]
    for first in range(0, 60, 10):
        queue.send_batch(*sent[first : first + 10])
    with ThreadPoolExecutor(6) as pool:
        taken = list(pool.map(lambda _: queue.bodies(5), range(12)))
    assert sorted(body for bodies in taken for body in bodies) == sorted(sent)
