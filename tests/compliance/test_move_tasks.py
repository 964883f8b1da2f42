"""Message move tasks: dead letters on their way back."""

import base64
import time
from typing import Any

import pytest

from tests.aws import ACCOUNT, REGION
from tests.compliance.marks import json_only
from tests.compliance.queue import Make, Queue
from tests.compliance.refusals import INVALID_VALUE, refused

NOT_FOUND = "ResourceNotFoundException"


@pytest.fixture
def dead(make: Make) -> Queue:
    return make()


def die(source: Queue, dead: Queue, *bodies: str) -> None:
    """Send messages that go to the dead letters."""
    source.redrive_to(dead, attempts=1)
    before = sum(dead.counts())
    for body in bodies:
        source.send(body)
    while source.receive(VisibilityTimeout=0):
        pass
    until(lambda: sum(dead.counts()) == before + len(bodies))


def until(is_so: Any, seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, f"not so within {seconds} s"
        time.sleep(0.02)


def tasks(sqs: Any, dead: Queue, most: int = 1) -> list[dict[str, Any]]:
    reply = sqs.list_message_move_tasks(SourceArn=dead.arn, MaxResults=most)
    found: list[dict[str, Any]] = reply.get("Results", [])
    return found


def finished(sqs: Any, dead: Queue) -> dict[str, Any]:
    """The newest task, once it is over."""
    until(lambda: tasks(sqs, dead)[0]["Status"] not in ("RUNNING", "CANCELLING"))
    return tasks(sqs, dead)[0]


def test_back_to_the_sources(sqs: Any, make: Make, dead: Queue) -> None:
    one, two = make(), make()
    die(one, dead, "a", "b")
    die(two, dead, "c")
    began_ms = time.time() * 1000
    started = sqs.start_message_move_task(SourceArn=dead.arn)
    assert set(started) == {"TaskHandle", "ResponseMetadata"}
    task = finished(sqs, dead)
    assert abs(task.pop("StartedTimestamp") - began_ms) < 60_000
    # A handle is there only while it runs; the destination and the rate only if they were given.
    assert task == {
        "Status": "COMPLETED",
        "SourceArn": dead.arn,
        "ApproximateNumberOfMessagesMoved": 3,
        "ApproximateNumberOfMessagesToMove": 3,
    }
    assert sorted(one.bodies()) == ["a", "b"]
    assert two.bodies() == ["c"]
    assert dead.counts() == (0, 0, 0)


def test_to_another_queue(sqs: Any, make: Make, queue: Queue, dead: Queue) -> None:
    other = make()
    die(queue, dead, "a", "b")
    sqs.start_message_move_task(SourceArn=dead.arn, DestinationArn=other.arn)
    task = finished(sqs, dead)
    assert task["Status"] == "COMPLETED"
    assert task["DestinationArn"] == other.arn
    assert task["ApproximateNumberOfMessagesMoved"] == 2
    assert sorted(other.bodies()) == ["a", "b"]
    assert queue.counts() == (0, 0, 0)


def test_moved_messages_begin_anew(sqs: Any, queue: Queue, dead: Queue) -> None:
    """AWS considers redriven messages as new, with a new id and a new time of sending. Here
    they keep their id; they count their receives from one, as there."""
    die(queue, dead, "a")
    sqs.start_message_move_task(SourceArn=dead.arn)
    finished(sqs, dead)
    message = queue.one(wait=5)
    assert message["Body"] == "a"
    assert message["Attributes"]["ApproximateReceiveCount"] == "1"
    assert "DeadLetterQueueSourceArn" not in message["Attributes"]


def test_a_running_task(sqs: Any, queue: Queue, dead: Queue) -> None:
    die(queue, dead, *"abcdefgh")
    handle = sqs.start_message_move_task(SourceArn=dead.arn, MaxNumberOfMessagesPerSecond=1)[
        "TaskHandle"
    ]
    (task,) = tasks(sqs, dead)
    assert task["Status"] == "RUNNING"
    assert task["TaskHandle"] == handle
    assert task["MaxNumberOfMessagesPerSecond"] == 1
    assert task["ApproximateNumberOfMessagesToMove"] == 8
    assert task["ApproximateNumberOfMessagesMoved"] < 8
    with refused(
        INVALID_VALUE,
        "There is already a task running. Only one active task is allowed for a source queue arn "
        "at a given time.",
    ):
        sqs.start_message_move_task(SourceArn=dead.arn)
    cancelled = sqs.cancel_message_move_task(TaskHandle=handle)
    assert 0 <= cancelled["ApproximateNumberOfMessagesMoved"] < 8
    task = finished(sqs, dead)
    assert task["Status"] == "CANCELLED"
    assert "TaskHandle" not in task
    # Nothing is lost: moved or not, and none in both.
    assert sorted(queue.drain() + dead.drain()) == list("abcdefgh")
    with pytest.raises(sqs.exceptions.ClientError):
        sqs.cancel_message_move_task(TaskHandle=handle)


@json_only
def test_the_last_tasks_are_kept(sqs: Any, queue: Queue, dead: Queue) -> None:
    assert tasks(sqs, dead) == []
    for number in range(3):
        die(queue, dead, str(number))
        sqs.start_message_move_task(SourceArn=dead.arn)
        finished(sqs, dead)
        queue.drain()
    assert len(tasks(sqs, dead)) == 1
    listed = tasks(sqs, dead, most=10)
    assert len(listed) == 3
    begun = [task["StartedTimestamp"] for task in listed]
    assert begun == sorted(begun, reverse=True)  # the newest first


@pytest.mark.parametrize("wrong", [0, 11, -1])
def test_limits_of_a_list(sqs: Any, dead: Queue, wrong: int) -> None:
    with refused(INVALID_VALUE):
        tasks(sqs, dead, most=wrong)


@pytest.mark.parametrize("wrong", [0, -1, 501])
def test_limits_of_a_rate(sqs: Any, queue: Queue, dead: Queue, wrong: int) -> None:
    queue.redrive_to(dead, 1)
    with refused(INVALID_VALUE):
        sqs.start_message_move_task(SourceArn=dead.arn, MaxNumberOfMessagesPerSecond=wrong)


def test_the_source_must_be_a_dead_letter_queue(sqs: Any, queue: Queue) -> None:
    with refused(INVALID_VALUE, "Source queue must be configured as a Dead Letter Queue."):
        sqs.start_message_move_task(SourceArn=queue.arn)


def test_source_and_destination_must_exist(sqs: Any, queue: Queue, dead: Queue) -> None:
    nobody = f"arn:aws:sqs:{REGION}:{ACCOUNT}:nobody-knows"
    queue.redrive_to(dead, 1)
    with refused(
        NOT_FOUND, "The resource that you specified for the SourceArn parameter doesn't exist."
    ):
        sqs.start_message_move_task(SourceArn=nobody)
    with refused(
        NOT_FOUND, "The resource that you specified for the SourceArn parameter doesn't exist."
    ):
        sqs.list_message_move_tasks(SourceArn=nobody)
    with refused(
        NOT_FOUND, "The resource that you specified for the DestinationArn parameter doesn't exist."
    ):
        sqs.start_message_move_task(SourceArn=dead.arn, DestinationArn=nobody)
    with pytest.raises(sqs.exceptions.ClientError) as refusal:
        sqs.start_message_move_task(SourceArn="not an ARN")
    assert refusal.value.response["Error"]["Code"] in (INVALID_VALUE, NOT_FOUND)


def test_handles_that_mean_nothing(sqs: Any, dead: Queue) -> None:
    with refused(INVALID_VALUE, "Value for parameter TaskHandle is invalid."):
        sqs.cancel_message_move_task(TaskHandle="foobared")
    look_alike = base64.b64encode(b'{"taskId": "x", "sourceArn": "y"}').decode()
    with pytest.raises(sqs.exceptions.ClientError) as refusal:
        sqs.cancel_message_move_task(TaskHandle=look_alike)
    assert refusal.value.response["Error"]["Code"] in (INVALID_VALUE, NOT_FOUND)


@json_only
def test_the_destination_goes_away(sqs: Any, make: Make, queue: Queue, dead: Queue) -> None:
    other = make()
    die(queue, dead, *"abcdefgh")
    sqs.start_message_move_task(
        SourceArn=dead.arn, DestinationArn=other.arn, MaxNumberOfMessagesPerSecond=1
    )
    sqs.delete_queue(QueueUrl=other.url)
    task = finished(sqs, dead)
    assert task["Status"] == "FAILED"
    assert task["FailureReason"] == "AWS.SimpleQueueService.NonExistentQueue"
    assert dead.counts()[0] >= 2  # what was not moved is still there
