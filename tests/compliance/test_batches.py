"""Batches: entries that succeed, entries that fail beside them, and batches refused whole."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.compliance.digests import md5, md5_of_attributes, text
from tests.compliance.queue import Make, Queue
from tests.compliance.refusals import INVALID_VALUE, refused

MIB = 1024 * 1024
SERVICE = "AWS.SimpleQueueService."
TRACE = {"AWSTraceHeader": text("Root=1-5759e988-bd862e3fe1be46a994272793")}


def test_send(queue: Queue) -> None:
    attributes = {"colour": text("red")}
    reply = queue.send_batch(
        {"Id": "a", "MessageBody": "one"},
        {"Id": "b-_9", "MessageBody": "two", "MessageAttributes": attributes},
        {"Id": "c" * 80, "MessageBody": "three", "MessageSystemAttributes": TRACE},
    )
    assert "Failed" not in reply
    one, two, three = reply["Successful"]
    assert [one["Id"], two["Id"], three["Id"]] == ["a", "b-_9", "c" * 80]
    assert set(one) == {"Id", "MessageId", "MD5OfMessageBody"}
    assert one["MD5OfMessageBody"] == md5("one")
    assert two["MD5OfMessageAttributes"] == md5_of_attributes(attributes)
    assert three["MD5OfMessageSystemAttributes"] == md5_of_attributes(TRACE)
    received = queue.receive(MessageAttributeNames=["All"])
    assert [m["MessageId"] for m in received] == [
        one["MessageId"],
        two["MessageId"],
        three["MessageId"],
    ]
    assert received[1]["MessageAttributes"] == attributes


def test_each_entry_has_its_own_delay(queue: Queue) -> None:
    queue.send_batch(
        {"Id": "1", "MessageBody": "now"},
        {"Id": "2", "MessageBody": "later", "DelaySeconds": 900},
        {"Id": "3", "MessageBody": "now", "DelaySeconds": 0},
    )
    assert queue.counts() == (2, 0, 1)


def test_some_entries_fail(make: Make) -> None:
    queue = make(MaximumMessageSize="1024")
    reply = queue.send_batch(
        {"Id": "good", "MessageBody": "x" * 1024},
        {"Id": "large", "MessageBody": "x" * 1025},
        {"Id": "late", "MessageBody": "x", "DelaySeconds": 901},
        {"Id": "binary", "MessageBody": "\x00"},
        {"Id": "also-good", "MessageBody": "y"},
    )
    assert [entry["Id"] for entry in reply["Successful"]] == ["good", "also-good"]
    failed = {entry["Id"]: entry for entry in reply["Failed"]}
    assert {name: entry["Code"] for name, entry in failed.items()} == {
        "large": INVALID_VALUE,
        "late": INVALID_VALUE,
        "binary": "InvalidMessageContents",
    }
    assert all(entry["SenderFault"] is True for entry in failed.values())
    assert "Message must be shorter than 1024 bytes." in failed["large"]["Message"]
    assert "DelaySeconds must be >= 0 and <= 900." in failed["late"]["Message"]
    assert "Invalid binary character '#x0' was found" in failed["binary"]["Message"]
    assert queue.drain() == ["x" * 1024, "y"]


def test_all_entries_fail(queue: Queue) -> None:
    reply = queue.send_batch("\x00", "\x01")
    assert "Successful" not in reply
    assert [entry["Id"] for entry in reply["Failed"]] == ["0", "1"]


def test_the_size_of_a_batch(queue: Queue) -> None:
    queue.send_batch("x" * (MIB // 2), "x" * (MIB // 2))
    with refused(
        SERVICE + "BatchRequestTooLong",
        "Batch requests cannot be longer than 1048576 bytes. You have sent 1048577 bytes.",
    ):
        queue.send_batch("x" * (MIB // 2), "x" * (MIB // 2 + 1))
    attributes = {"name": text("v" * 14)}  # 4 + 6 + 14
    with refused(SERVICE + "BatchRequestTooLong"):
        queue.send_batch(
            {"Id": "1", "MessageBody": "x" * (MIB - 24), "MessageAttributes": attributes},
            {"Id": "2", "MessageBody": "x"},
        )
    assert queue.counts() == (2, 0, 0)


Call = Callable[[Queue, list[dict[str, Any]]], Any]


def send(queue: Queue, entries: list[dict[str, Any]]) -> Any:
    entries = [{"MessageBody": "x", **entry} for entry in entries]
    return queue.sqs.send_message_batch(QueueUrl=queue.url, Entries=entries)


def delete(queue: Queue, entries: list[dict[str, Any]]) -> Any:
    entries = [{"ReceiptHandle": "x", **entry} for entry in entries]
    return queue.sqs.delete_message_batch(QueueUrl=queue.url, Entries=entries)


def change(queue: Queue, entries: list[dict[str, Any]]) -> Any:
    entries = [{"ReceiptHandle": "x", "VisibilityTimeout": 1, **entry} for entry in entries]
    return queue.sqs.change_message_visibility_batch(QueueUrl=queue.url, Entries=entries)


CALLS = {
    "SendMessageBatch": send,
    "DeleteMessageBatch": delete,
    "ChangeMessageVisibilityBatch": change,
}


@pytest.mark.parametrize("action", CALLS)
def test_batches_refused_whole(queue: Queue, action: str) -> None:
    call = CALLS[action]
    with refused(
        SERVICE + "TooManyEntriesInBatchRequest",
        "Maximum number of entries per request are 10. You have sent 11.",
    ):
        call(queue, [{"Id": str(number)} for number in range(11)])
    with refused(SERVICE + "BatchEntryIdsNotDistinct", "Id twice repeated."):
        call(queue, [{"Id": "twice"}, {"Id": "once"}, {"Id": "twice"}])
    for wrong in ("", "a b", "a:b", "ü", "a.b", "a" * 81):
        with refused(
            SERVICE + "InvalidBatchEntryId",
            "A batch entry id can only contain alphanumeric characters, hyphens and underscores. "
            "It can be at most 80 letters long.",
        ):
            call(queue, [{"Id": "good"}, {"Id": wrong}])
    assert queue.counts() == (0, 0, 0)


@pytest.mark.parametrize("action", CALLS)
def test_an_empty_batch(queue: Queue, action: str) -> None:
    with refused(
        SERVICE + "EmptyBatchRequest",
        f"There should be at least one {action}RequestEntry in the request.",
    ):
        CALLS[action](queue, [])


def test_delete(queue: Queue) -> None:
    queue.send_batch("a", "b", "c")
    messages = queue.receive()
    entries = [
        {"Id": message["Body"], "ReceiptHandle": message["ReceiptHandle"]} for message in messages
    ]
    entries[1]["ReceiptHandle"] = "garbage"
    reply = delete(queue, entries)
    assert reply["Successful"] == [{"Id": "a"}, {"Id": "c"}]
    (failed,) = reply["Failed"]
    assert failed == {
        "Id": "b",
        "SenderFault": True,
        "Code": "ReceiptHandleIsInvalid",
        "Message": 'The input receipt handle "garbage" is not a valid receipt handle.',
    }
    assert queue.counts() == (0, 1, 0)
    last = {"Id": "b", "ReceiptHandle": messages[1]["ReceiptHandle"]}
    assert delete(queue, [last])["Successful"] == [{"Id": "b"}]
    assert "Failed" not in delete(queue, [last])  # deleting twice is fine
    assert queue.counts() == (0, 0, 0)


def test_change_visibility(queue: Queue) -> None:
    queue.send_batch("a", "b", "c")
    messages = queue.receive()
    entries = [
        {"Id": message["Body"], "ReceiptHandle": message["ReceiptHandle"], "VisibilityTimeout": 0}
        for message in messages
    ]
    entries[1]["VisibilityTimeout"] = 43201
    entries[2]["ReceiptHandle"] = "garbage"
    reply = change(queue, entries)
    assert reply["Successful"] == [{"Id": "a"}]
    failed = {entry["Id"]: (entry["Code"], entry["SenderFault"]) for entry in reply["Failed"]}
    assert failed == {"b": (INVALID_VALUE, True), "c": ("ReceiptHandleIsInvalid", True)}
    assert queue.counts() == (1, 2, 0)
