"""Tags and permissions: kept, shown and taken away. Neither changes what a queue does here."""

import json
from typing import Any

from tests.aws import ACCOUNT
from tests.compliance.queue import Queue
from tests.compliance.refusals import INVALID_VALUE, refused

OTHER = "123456789012"


def tags(queue: Queue) -> dict[str, str]:
    found: dict[str, str] = queue.sqs.list_queue_tags(QueueUrl=queue.url).get("Tags", {})
    return found


def test_tags(sqs: Any, queue: Queue) -> None:
    assert "Tags" not in sqs.list_queue_tags(QueueUrl=queue.url)
    sqs.tag_queue(QueueUrl=queue.url, Tags={"tag1": "value1", "tag2": "value2", "tag3": ""})
    assert tags(queue) == {"tag1": "value1", "tag2": "value2", "tag3": ""}
    # "A new tag with a key identical to that of an existing tag overwrites the existing tag."
    sqs.tag_queue(QueueUrl=queue.url, Tags={"tag1": "new", "Tag1": "tags are case-sensitive"})
    assert tags(queue) == {
        "tag1": "new",
        "tag2": "value2",
        "tag3": "",
        "Tag1": "tags are case-sensitive",
    }
    sqs.untag_queue(QueueUrl=queue.url, TagKeys=["tag1", "tag3", "Tag1", "never there"])
    assert tags(queue) == {"tag2": "value2"}
    sqs.untag_queue(QueueUrl=queue.url, TagKeys=["tag2"])
    assert "Tags" not in sqs.list_queue_tags(QueueUrl=queue.url)


def test_tags_on_creation(sqs: Any, name: str) -> None:
    url = sqs.create_queue(QueueName=name, tags={"team": "blue", "grüße": "✓ = ok"})["QueueUrl"]
    assert tags(Queue(sqs, url)) == {"team": "blue", "grüße": "✓ = ok"}
    # Tags are no attributes: other ones do not make it another queue.
    assert sqs.create_queue(QueueName=name, tags={"team": "red"})["QueueUrl"] == url
    assert tags(Queue(sqs, url))["team"] == "blue"


def test_fifty_tags(sqs: Any, queue: Queue) -> None:
    fifty = {f"key{number}": "v" for number in range(50)}
    sqs.tag_queue(QueueUrl=queue.url, Tags=fifty)
    assert tags(queue) == fifty
    with refused(INVALID_VALUE, f"Too many tags added for queue {queue.name}."):
        sqs.tag_queue(QueueUrl=queue.url, Tags={"one more": "v"})
    assert tags(queue) == fifty


def test_tags_that_are_none(sqs: Any, queue: Queue) -> None:
    length = "Tag keys must be between 1 and 128 characters in length."
    reserved = "aws: prefixed tag key names are not allowed for external use."
    with refused("MissingParameter", "The request must contain the parameter Tags."):
        sqs.tag_queue(QueueUrl=queue.url, Tags={})
    with refused(INVALID_VALUE, length):
        sqs.untag_queue(QueueUrl=queue.url, TagKeys=[])
    for key, why in (("", length), ("k" * 129, length), ("aws:x", reserved), ("AWS:x", reserved)):
        with refused(INVALID_VALUE, why):
            sqs.tag_queue(QueueUrl=queue.url, Tags={"good": "v", key: "v"})
    with refused(INVALID_VALUE, reserved):
        sqs.create_queue(QueueName=f"{queue.name}-2", tags={"aws:x": "v"})
    assert tags(queue) == {}


def test_tags_go_with_the_queue(sqs: Any, queue: Queue) -> None:
    sqs.tag_queue(QueueUrl=queue.url, Tags={"a": "b"})
    sqs.delete_queue(QueueUrl=queue.url)
    sqs.create_queue(QueueName=queue.name)
    assert tags(queue) == {}


def permit(queue: Queue, label: str, *actions: str, accounts: tuple[str, ...] = (OTHER,)) -> None:
    queue.sqs.add_permission(
        QueueUrl=queue.url, Label=label, AWSAccountIds=list(accounts), Actions=list(actions)
    )


def policy(queue: Queue) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(queue.attributes("Policy")["Policy"])
    return found


def test_permissions_make_a_policy(sqs: Any, queue: Queue) -> None:
    permit(queue, "first", "ReceiveMessage")
    assert policy(queue) == {
        "Version": "2008-10-17",
        "Id": f"{queue.arn}/SQSDefaultPolicy",
        "Statement": [
            {
                "Sid": "first",
                "Effect": "Allow",
                "Principal": {"AWS": f"arn:aws:iam::{OTHER}:root"},
                "Action": "SQS:ReceiveMessage",
                "Resource": queue.arn,
            }
        ],
    }
    permit(queue, "second", "SendMessage", "*", accounts=(OTHER, ACCOUNT))
    second = policy(queue)["Statement"][1]
    assert second["Sid"] == "second"
    assert sorted(second["Action"]) == ["SQS:*", "SQS:SendMessage"]
    assert sorted(second["Principal"]["AWS"]) == [
        f"arn:aws:iam::{ACCOUNT}:root",
        f"arn:aws:iam::{OTHER}:root",
    ]
    sqs.remove_permission(QueueUrl=queue.url, Label="first")
    assert [statement["Sid"] for statement in policy(queue)["Statement"]] == ["second"]
    sqs.remove_permission(QueueUrl=queue.url, Label="second")
    assert queue.attributes("Policy") == {}


def test_labels(sqs: Any, queue: Queue) -> None:
    permit(queue, "label", "SendMessage")
    with refused(
        INVALID_VALUE, "Value label for parameter Label is invalid. Reason: Already exists."
    ):
        permit(queue, "label", "ReceiveMessage")
    with refused(
        INVALID_VALUE, "Value other for parameter Label is invalid. Reason: can't find label."
    ):
        sqs.remove_permission(QueueUrl=queue.url, Label="other")
    for wrong in ("a b", "a" * 81, "a/b"):
        with refused(INVALID_VALUE):
            permit(queue, wrong, "SendMessage")


def test_wrong_permissions(queue: Queue) -> None:
    with refused(INVALID_VALUE):
        permit(queue, "label", "MakeCoffee")
    with refused("MissingParameter", "The request must contain the parameter Actions."):
        permit(queue, "label")
    with refused(
        INVALID_VALUE,
        "Value SQS:DeleteQueue for parameter ActionName is invalid. Reason: Only the queue owner "
        "is allowed to invoke this action.",
    ):
        permit(queue, "label", "SendMessage", "DeleteQueue")
    # "An Amazon SQS policy can have a maximum of seven actions per statement."
    seven = (
        "SendMessage",
        "ReceiveMessage",
        "DeleteMessage",
        "ChangeMessageVisibility",
        "GetQueueAttributes",
        "GetQueueUrl",
        "PurgeQueue",
    )
    permit(queue, "seven", *seven)
    with refused("OverLimit"):
        permit(queue, "eight", *seven, "ListDeadLetterSourceQueues")
    assert [statement["Sid"] for statement in policy(queue)["Statement"]] == ["seven"]


def test_a_policy_is_kept_and_not_evaluated(sqs: Any, queue: Queue) -> None:
    """As the manual says: a Deny blocks nothing."""
    statement = {"Effect": "Deny", "Principal": "*", "Action": "sqs:*", "Resource": queue.arn}
    policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    sqs.set_queue_attributes(QueueUrl=queue.url, Attributes={"Policy": policy})
    assert queue.attributes("Policy")["Policy"] == policy
    queue.send("all the same")
    assert queue.bodies() == ["all the same"]
