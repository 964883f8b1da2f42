"""Programs that receive over SQS stand in the list of consumers, as far as HTTP shows them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

import nexo
from nexo.doors.sqs_http import clients
from tests.client.eventually import eventually

if TYPE_CHECKING:
    from tests.sqs.calling import Door

QUEUE = "orders"


def connections(door: Door) -> list[Any]:
    with nexo.connect(door.broker.url) as client:
        return [each for each in client.connections() if each.protocol == "sqs"]


def receive(door: Door, agent: str = "Boto3/1.35.1 md/Botocore") -> list[Any]:
    wanted = {"QueueUrl": QUEUE, "MaxNumberOfMessages": 10}
    found = door.json("ReceiveMessage", {"user-agent": agent}, **wanted)
    return list(found.json.get("Messages", []))


def test_who_receives_and_deletes_is_told(door: Door) -> None:
    door.json("CreateQueue", QueueName=QUEUE)
    for number in range(3):
        door.json("SendMessage", QueueUrl=QUEUE, MessageBody=f"{number}")
    assert connections(door) == [], "who only sends is no consumer"
    one, *rest = receive(door)
    (shown,) = connections(door)
    assert (shown.software, shown.address, shown.token) == ("Boto3/1.35.1", "127.0.0.1", "")
    (consumer,) = shown.consumers
    assert (consumer.queue, consumer.acked, consumer.state) == (QUEUE, 0, "idle")
    headers = {"user-agent": "Boto3/1.35.1 md/Botocore"}
    door.json("DeleteMessage", headers, QueueUrl=QUEUE, ReceiptHandle=one["ReceiptHandle"])
    entries = [
        {"Id": f"{number}", "ReceiptHandle": each["ReceiptHandle"]}
        for number, each in enumerate(rest)
    ]
    door.json("DeleteMessageBatch", headers, QueueUrl=QUEUE, Entries=entries)
    ((consumer,),) = [each.consumers for each in connections(door)]
    assert (consumer.acked, consumer.state) == (3, "working")


def test_only_so_many_are_told(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "SQS_CLIENTS_MAX", 3)
    door.json("CreateQueue", QueueName=QUEUE)
    for number in range(5):
        receive(door, f"program/{number}")
    assert [each.software for each in connections(door)] == ["program/2", "program/3", "program/4"]


def test_one_that_is_silent_has_gone(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "SQS_CLIENT_SILENT_MS", 3_000)
    door.json("CreateQueue", QueueName=QUEUE)
    receive(door)
    assert len(connections(door)) == 1
    eventually(lambda: not connections(door))


def test_it_cannot_be_closed(door: Door) -> None:
    door.json("CreateQueue", QueueName=QUEUE)
    receive(door)
    (shown,) = connections(door)
    with nexo.connect(door.broker.url) as client, pytest.raises(nexo.InvalidArgument):
        client.close_connection(shown.number)


def test_who_calls_again_stays(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    """Room is made by who has been silent the longest, not by who came first."""
    monkeypatch.setattr(clients, "SQS_CLIENTS_MAX", 3)
    door.json("CreateQueue", QueueName=QUEUE)
    for number in (0, 1, 2, 0, 1, 3):
        receive(door, f"program/{number}")
        time.sleep(0.002)  # the order is that of milliseconds
    told = {each.software for each in connections(door)}
    assert told == {"program/0", "program/1", "program/3"}
