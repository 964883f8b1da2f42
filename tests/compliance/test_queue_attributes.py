"""The attributes of queues: defaults, formats, limits, and what may not be set."""

import json
import time
from typing import Any

import pytest

from tests.aws import ACCOUNT, REGION
from tests.compliance.queue import Make, Queue
from tests.compliance.refusals import refused

DEFAULTS = {
    "ApproximateNumberOfMessages": "0",
    "ApproximateNumberOfMessagesDelayed": "0",
    "ApproximateNumberOfMessagesNotVisible": "0",
    "DelaySeconds": "0",
    "MaximumMessageSize": "1048576",
    "MessageRetentionPeriod": "345600",
    "ReceiveMessageWaitTimeSeconds": "0",
    "SqsManagedSseEnabled": "true",
    "VisibilityTimeout": "30",
}
FIFO_DEFAULTS = {
    **DEFAULTS,
    "ContentBasedDeduplication": "false",
    "DeduplicationScope": "queue",
    "FifoQueue": "true",
    "FifoThroughputLimit": "perQueue",
}
RANGES = {
    "VisibilityTimeout": (0, 43200),
    "MaximumMessageSize": (1024, 1048576),
    "MessageRetentionPeriod": (60, 1209600),
    "DelaySeconds": (0, 900),
    "ReceiveMessageWaitTimeSeconds": (0, 20),
}


def of_a_new_queue(queue: Queue) -> dict[str, str]:
    """All attributes but those that differ from queue to queue, which are checked here."""
    found = queue.attributes("All")
    created, modified = found.pop("CreatedTimestamp"), found.pop("LastModifiedTimestamp")
    assert abs(int(created) - time.time()) < 60
    assert abs(int(modified) - time.time()) < 60
    assert found.pop("QueueArn") == f"arn:aws:sqs:{REGION}:{ACCOUNT}:{queue.name}"
    return found


def test_defaults(queue: Queue) -> None:
    assert of_a_new_queue(queue) == DEFAULTS


def test_defaults_of_fifo_queues(fifo: Queue) -> None:
    assert of_a_new_queue(fifo) == FIFO_DEFAULTS


def test_some_none_and_unknown_names(sqs: Any, queue: Queue) -> None:
    assert queue.attributes("DelaySeconds", "VisibilityTimeout") == {
        "DelaySeconds": "0",
        "VisibilityTimeout": "30",
    }
    # "If you don't specify values for this parameter, the request returns empty results."
    assert "Attributes" not in sqs.get_queue_attributes(QueueUrl=queue.url)
    # What is not set is left out.
    assert queue.attributes("Policy", "RedrivePolicy", "KmsMasterKeyId") == {}
    with refused("InvalidAttributeName", "Unknown Attribute Colour."):
        queue.attributes("Colour")
    with refused("InvalidAttributeName", "Unknown Attribute Colour."):
        queue.attributes("All", "Colour")


def test_fifo_attributes_are_unknown_to_standard_queues(queue: Queue) -> None:
    assert queue.attributes("FifoQueue", "ContentBasedDeduplication") == {}


@pytest.mark.parametrize("attribute", RANGES)
def test_ranges(make: Make, queue: Queue, attribute: str) -> None:
    least, most = RANGES[attribute]
    for value in (least, most):
        queue.set(**{attribute: str(value)})
        assert queue.attributes(attribute) == {attribute: str(value)}
        assert make(**{attribute: str(value)}).attributes(attribute) == {attribute: str(value)}
    for wrong in (str(least - 1), str(most + 1), "", "many", "1.5", " 60", "１"):  # noqa: RUF001
        with refused("InvalidAttributeValue", f"Invalid value for the parameter {attribute}."):
            queue.set(**{attribute: wrong})
        with refused("InvalidAttributeValue", f"Invalid value for the parameter {attribute}."):
            make(**{attribute: wrong})
    assert queue.attributes(attribute) == {attribute: str(most)}


def test_a_refused_set_changes_nothing(queue: Queue) -> None:
    with refused("InvalidAttributeValue"):
        queue.set(DelaySeconds="5", VisibilityTimeout="-1")
    assert queue.attributes("DelaySeconds") == {"DelaySeconds": "0"}


def test_set_many(queue: Queue) -> None:
    before = queue.attributes("All")
    queue.set(VisibilityTimeout="69", MaximumMessageSize="2048", DelaySeconds="420")
    changed = {"VisibilityTimeout": "69", "MaximumMessageSize": "2048", "DelaySeconds": "420"}
    after = queue.attributes("All")
    assert int(after["LastModifiedTimestamp"]) >= int(before["LastModifiedTimestamp"])
    after["LastModifiedTimestamp"] = before["LastModifiedTimestamp"]
    assert after == {**before, **changed}


@pytest.mark.parametrize(
    "attribute",
    ["Colour", "QueueArn", "CreatedTimestamp", "ApproximateNumberOfMessages", "max_attempts"],
)
def test_what_cannot_be_set(make: Make, queue: Queue, attribute: str) -> None:
    with refused("InvalidAttributeName", f"Unknown Attribute {attribute}."):
        queue.set(**{attribute: "1"})
    with refused("InvalidAttributeName", f"Unknown Attribute {attribute}."):
        make(**{attribute: "1"})


def test_the_type_of_a_queue_is_for_life(queue: Queue, fifo: Queue) -> None:
    for value in ("true", "false"):
        with refused("InvalidAttributeName", "Unknown Attribute FifoQueue."):
            queue.set(FifoQueue=value)
    with refused("InvalidAttributeValue", "Invalid value for the parameter FifoQueue. Reason: "):
        fifo.set(FifoQueue="false")
    assert fifo.attributes("FifoQueue") == {"FifoQueue": "true"}


def test_fifo_attributes_need_a_fifo_queue(make: Make, sqs: Any, name: str) -> None:
    with refused("InvalidAttributeName", "Unknown Attribute ContentBasedDeduplication."):
        make(ContentBasedDeduplication="true")
    for attribute, value in (
        ("DeduplicationScope", "messageGroup"),
        ("FifoThroughputLimit", "perMessageGroupId"),
    ):
        with refused(
            "InvalidAttributeName",
            f"You can specify the {attribute} only when FifoQueue is set to true.",
        ):
            make(**{attribute: value})
    for wrong_name in (name, name + ".ifo"):
        with pytest.raises(sqs.exceptions.ClientError):
            sqs.create_queue(QueueName=wrong_name, Attributes={"FifoQueue": "true"})
    with pytest.raises(sqs.exceptions.ClientError):
        sqs.create_queue(QueueName=name + ".fifo", Attributes={"FifoQueue": "false"})


def test_high_throughput(make: Make, fifo: Queue) -> None:
    high = {"DeduplicationScope": "messageGroup", "FifoThroughputLimit": "perMessageGroupId"}
    assert make(fifo=True, **high).attributes(*high) == high
    fifo.set(**high)
    assert fifo.attributes(*high) == high
    for attribute in high:
        with refused("InvalidAttributeValue", f"Invalid value for the parameter {attribute}."):
            fifo.set(**{attribute: "perHouse"})
    # "perMessageGroupId is allowed only when the value for DeduplicationScope is messageGroup."
    with refused("InvalidAttributeValue"):
        make(fifo=True, FifoThroughputLimit="perMessageGroupId", DeduplicationScope="queue")


def test_content_based_deduplication_can_be_changed(make: Make) -> None:
    fifo = make(fifo=True, ContentBasedDeduplication="true")
    attribute = "ContentBasedDeduplication"
    assert fifo.attributes(attribute) == {attribute: "true"}
    fifo.set(ContentBasedDeduplication="false")
    assert fifo.attributes(attribute) == {attribute: "false"}
    with refused("InvalidAttributeValue", f"Invalid value for the parameter {attribute}."):
        fifo.set(ContentBasedDeduplication="perhaps")


def test_policy(queue: Queue) -> None:
    statement = {
        "Sid": "one",
        "Effect": "Allow",
        "Principal": "*",
        "Action": "SQS:SendMessage",
        "Resource": queue.arn,
    }
    policy = json.dumps({"Version": "2012-10-17", "Id": "p", "Statement": [statement]})
    queue.set(Policy=policy)
    assert json.loads(queue.attributes("Policy")["Policy"]) == json.loads(policy)
    queue.set(Policy="")
    assert queue.attributes("Policy") == {}
    with refused("InvalidAttributeValue", "Invalid value for the parameter Policy."):
        queue.set(Policy="{not JSON")


def test_encryption_settings_are_kept(queue: Queue) -> None:
    """Nothing is encrypted here, but infrastructure code sets these and reads them back."""
    queue.set(SqsManagedSseEnabled="false")
    queue.set(KmsMasterKeyId="alias/aws/sqs", KmsDataKeyReusePeriodSeconds="6000")
    names = ("KmsMasterKeyId", "KmsDataKeyReusePeriodSeconds", "SqsManagedSseEnabled")
    assert queue.attributes(*names) == {
        "KmsMasterKeyId": "alias/aws/sqs",
        "KmsDataKeyReusePeriodSeconds": "6000",
        "SqsManagedSseEnabled": "false",
    }
    with refused(
        "InvalidAttributeName",
        "You can use one type of server-side encryption (SSE) at one time.",
    ):
        queue.set(KmsMasterKeyId="key", SqsManagedSseEnabled="true")
    queue.set(KmsMasterKeyId="", SqsManagedSseEnabled="true")
    assert queue.attributes(*names) == {"SqsManagedSseEnabled": "true"}
    for wrong in ("59", "86401"):
        with refused("InvalidAttributeValue"):
            queue.set(KmsDataKeyReusePeriodSeconds=wrong)


def test_numbers_of_messages(queue: Queue) -> None:
    queue.send_batch("a", "b", "c")
    queue.send("later", DelaySeconds=60)
    assert queue.counts() == (3, 0, 1)
    held = queue.receive(2)
    assert queue.counts() == (1, 2, 1)
    queue.delete(held[0])
    assert queue.counts() == (1, 1, 1)
    queue.change(held[1], 0)
    assert queue.counts() == (2, 0, 1)
