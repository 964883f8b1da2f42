"""Dead letters: redrive policies, who may use a queue for them, and what arrives there."""

import json
from typing import Any

import pytest

from tests.aws import ACCOUNT, REGION
from tests.compliance.digests import text
from tests.compliance.queue import Make, Queue
from tests.compliance.refusals import INVALID_VALUE, refused

TRACE = "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1"


@pytest.fixture
def dead(make: Make) -> Queue:
    return make()


def policy(target: Queue, attempts: Any = 3) -> str:
    return json.dumps({"deadLetterTargetArn": target.arn, "maxReceiveCount": attempts})


def fail_once(queue: Queue) -> dict[str, Any]:
    """Receive a message and give it back at once."""
    return queue.one(VisibilityTimeout=0)


def test_after_so_many_receives(queue: Queue, dead: Queue) -> None:
    queue.redrive_to(dead, attempts=3)
    sent = queue.send("poison")
    attempts = [fail_once(queue)["Attributes"]["ApproximateReceiveCount"] for _ in range(3)]
    assert attempts == ["1", "2", "3"]
    assert queue.receive() == []
    letter = dead.one(wait=5)
    assert (letter["MessageId"], letter["Body"]) == (sent["MessageId"], "poison")
    assert queue.counts() == (0, 0, 0)
    assert dead.counts() == (0, 1, 0)


def test_a_delete_in_time_saves_it(queue: Queue, dead: Queue) -> None:
    queue.redrive_to(dead, attempts=2)
    queue.send()
    fail_once(queue)
    queue.delete(queue.one())
    assert queue.counts() == dead.counts() == (0, 0, 0)


def test_what_a_dead_letter_keeps(queue: Queue, dead: Queue) -> None:
    queue.redrive_to(dead, attempts=1)
    queue.send(
        "letter",
        MessageAttributes={"MyAttribute": text("foobar")},
        MessageSystemAttributes={"AWSTraceHeader": text(TRACE)},
    )
    before = fail_once(queue)
    assert queue.receive() == []
    after = dead.one(wait=5)
    for kept in ("MessageId", "Body", "MD5OfBody", "MessageAttributes", "MD5OfMessageAttributes"):
        assert after[kept] == before[kept]
    system = after["Attributes"]
    assert system["AWSTraceHeader"] == TRACE
    # "The expiration of a message is always based on its original enqueue timestamp."
    assert system["SentTimestamp"] == before["Attributes"]["SentTimestamp"]
    assert system["DeadLetterQueueSourceArn"] == queue.arn
    # "Returns the number of times a message has been received across all queues."
    assert system["ApproximateReceiveCount"] == "2"
    assert "DeadLetterQueueSourceArn" not in before["Attributes"]


def test_asking_for_the_source(queue: Queue, dead: Queue) -> None:
    queue.redrive_to(dead, attempts=1)
    queue.send()
    fail_once(queue)
    queue.receive()
    letter = dead.one(wait=5, MessageSystemAttributeNames=["DeadLetterQueueSourceArn"])
    assert letter["Attributes"] == {"DeadLetterQueueSourceArn": queue.arn}


def test_fifo(make: Make) -> None:
    fifo, dead = make(fifo=True), make(fifo=True)
    fifo.redrive_to(dead, attempts=1)
    for body in ("a1", "a2"):
        fifo.send(body, MessageGroupId="a", MessageDeduplicationId=body)
    assert fail_once(fifo)["Body"] == "a1"
    assert fifo.bodies() == ["a2"]  # the group goes on without it
    letter = dead.one(wait=5)
    assert letter["Body"] == "a1"
    assert letter["Attributes"]["MessageGroupId"] == "a"
    assert letter["Attributes"]["MessageDeduplicationId"] == "a1"
    assert letter["Attributes"]["DeadLetterQueueSourceArn"] == fifo.arn


def test_the_policy_is_kept(make: Make, dead: Queue) -> None:
    queue = make(RedrivePolicy=policy(dead, 5))
    kept = json.loads(queue.attributes("RedrivePolicy")["RedrivePolicy"])
    assert kept == {"deadLetterTargetArn": dead.arn, "maxReceiveCount": 5}
    queue.set(RedrivePolicy=policy(dead, "7"))  # many write the number as a text
    kept = json.loads(queue.attributes("RedrivePolicy")["RedrivePolicy"])
    assert int(kept["maxReceiveCount"]) == 7
    queue.set(RedrivePolicy="")
    assert "RedrivePolicy" not in queue.attributes("All")


def test_without_a_policy_nothing_is_moved(queue: Queue, dead: Queue) -> None:
    """Whatever the defaults of native queues are: SQS never gives up without a policy."""
    queue.send()
    for attempt in range(1, 13):
        assert fail_once(queue)["Attributes"]["ApproximateReceiveCount"] == str(attempt)
    assert queue.counts() == (1, 0, 0)


def test_a_policy_that_is_taken_away(queue: Queue, dead: Queue) -> None:
    queue.redrive_to(dead, attempts=2)
    queue.set(RedrivePolicy="")
    queue.send()
    for _ in range(4):
        fail_once(queue)
    assert dead.counts() == (0, 0, 0)
    assert queue.counts() == (1, 0, 0)


@pytest.mark.parametrize("attempts", [0, -1, 1001, "many"])
def test_wrong_counts(queue: Queue, dead: Queue, attempts: Any) -> None:
    with refused(INVALID_VALUE, f"Value {policy(dead, attempts)} for parameter RedrivePolicy is "):
        queue.set(RedrivePolicy=policy(dead, attempts))
    assert "RedrivePolicy" not in queue.attributes("All")


def test_limits_of_the_count(queue: Queue, dead: Queue) -> None:
    for attempts in (1000, 1):
        queue.redrive_to(dead, attempts)
        shown = json.loads(queue.attributes("RedrivePolicy")["RedrivePolicy"])
        assert shown == {"deadLetterTargetArn": dead.arn, "maxReceiveCount": attempts}
    queue.send("poison")
    fail_once(queue)
    assert queue.receive() == []
    assert dead.bodies(wait=5) == ["poison"]


INVALID_POLICY = "Value {} for parameter RedrivePolicy is invalid. Reason: "
LACKS = "Redrive policy does not contain mandatory attribute: "


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ('{"maxReceiveCount": 1}', INVALID_POLICY + LACKS + "deadLetterTargetArn."),
        ('{"deadLetterTargetArn": "ARN"}', INVALID_POLICY + LACKS + "maxReceiveCount."),
        (
            '{"deadLetterTargetArn": "ARN-nobody", "maxReceiveCount": 1}',
            INVALID_POLICY + "Dead letter target does not exist.",
        ),
        ('{"deadLetterTargetArn": "dummy", "maxReceiveCount": 42}', INVALID_POLICY),
        ('{"deadLetterTargetArn": 1', ""),
        ("[]", ""),
    ],
)
def test_wrong_policies(queue: Queue, dead: Queue, wrong: str, told: str) -> None:
    wrong = wrong.replace("ARN", dead.arn)
    with pytest.raises(queue.sqs.exceptions.ClientError) as refusal:
        queue.set(RedrivePolicy=wrong)
    error = refusal.value.response["Error"]
    assert error["Message"].startswith(told.format(wrong))
    assert error["Code"] in (INVALID_VALUE, "InvalidAttributeValue")
    assert "RedrivePolicy" not in queue.attributes("All")


def test_a_fifo_queue_needs_a_fifo_target(make: Make) -> None:
    """The dead-letter queue of a FIFO queue must also be a FIFO queue; standard alike."""
    fifo, standard = make(fifo=True), make()
    for source, target in ((fifo, standard), (standard, fifo)):
        with refused(INVALID_VALUE):
            source.redrive_to(target, 1)


def test_sources_of_a_target(sqs: Any, make: Make, dead: Queue) -> None:
    nobody = sqs.list_dead_letter_source_queues(QueueUrl=dead.url)
    assert nobody.get("queueUrls", []) == []
    sources = [make(RedrivePolicy=policy(dead)) for _ in range(3)]
    found = sqs.list_dead_letter_source_queues(QueueUrl=dead.url)
    assert sorted(found["queueUrls"]) == sorted(source.url for source in sources)
    assert "NextToken" not in found
    first = sqs.list_dead_letter_source_queues(QueueUrl=dead.url, MaxResults=2)
    assert len(first["queueUrls"]) == 2
    rest = sqs.list_dead_letter_source_queues(
        QueueUrl=dead.url, MaxResults=2, NextToken=first["NextToken"]
    )
    assert sorted(first["queueUrls"] + rest["queueUrls"]) == sorted(found["queueUrls"])
    assert "NextToken" not in rest
    sources[0].set(RedrivePolicy="")
    left = sqs.list_dead_letter_source_queues(QueueUrl=dead.url)["queueUrls"]
    assert sorted(left) == sorted(source.url for source in sources[1:])


def allow(target: Queue, **settings: Any) -> None:
    target.set(RedriveAllowPolicy=json.dumps(settings))


def test_who_may_use_a_queue_for_dead_letters(make: Make, dead: Queue) -> None:
    friend, stranger = make(), make()
    allow(dead, redrivePermission="denyAll")
    for source in (friend, stranger):
        with refused(INVALID_VALUE):
            source.redrive_to(dead, 1)
    allow(dead, redrivePermission="byQueue", sourceQueueArns=[friend.arn])
    friend.redrive_to(dead, 1)
    with refused(INVALID_VALUE):
        stranger.redrive_to(dead, 1)
    allow(dead, redrivePermission="allowAll")
    stranger.redrive_to(dead, 1)
    kept = json.loads(dead.attributes("RedriveAllowPolicy")["RedriveAllowPolicy"])
    assert kept == {"redrivePermission": "allowAll"}


@pytest.mark.parametrize(
    "wrong",
    [
        {"redrivePermission": "perhaps"},
        {"redrivePermission": "byQueue"},
        {"redrivePermission": "byQueue", "sourceQueueArns": []},
        {
            "redrivePermission": "byQueue",
            "sourceQueueArns": [f"arn:aws:sqs:{REGION}:{ACCOUNT}:q{n}" for n in range(11)],
        },
        {"redrivePermission": "allowAll", "sourceQueueArns": [f"arn:aws:sqs:{REGION}:1:q"]},
        {"sourceQueueArns": []},
    ],
)
def test_wrong_permissions(dead: Queue, wrong: dict[str, Any]) -> None:
    with pytest.raises(dead.sqs.exceptions.ClientError) as refusal:
        allow(dead, **wrong)
    error = refusal.value.response["Error"]
    assert error["Code"] in (INVALID_VALUE, "InvalidAttributeValue")
    assert "RedriveAllowPolicy" in error["Message"]
    assert "RedriveAllowPolicy" not in dead.attributes("All")


def test_a_deleted_dead_letter_queue_stays_deleted(sqs: Any, queue: Queue, dead: Queue) -> None:
    """Messages that are out of receives stay where they are, and are received again."""
    queue.redrive_to(dead, attempts=1)
    dead.set(VisibilityTimeout="77")
    queue.send("poison")
    sqs.delete_queue(QueueUrl=dead.url)
    counts = [fail_once(queue)["Attributes"]["ApproximateReceiveCount"] for _ in range(3)]
    assert counts == ["1", "2", "3"]
    assert json.loads(queue.attributes("RedrivePolicy")["RedrivePolicy"]) == {
        "deadLetterTargetArn": queue.arn.replace(queue.name, dead.name),
        "maxReceiveCount": 1,
    }
    with refused("AWS.SimpleQueueService.NonExistentQueue"):
        sqs.get_queue_url(QueueName=dead.name)
    sqs.create_queue(QueueName=dead.name)
    fail_once(queue)
    assert queue.receive() == []
    assert dead.one(wait=5)["Body"] == "poison"


def test_a_message_in_flight_moves_to_a_queue_created_meanwhile(
    sqs: Any, queue: Queue, dead: Queue
) -> None:
    """It needs no further receive: it moves when its visibility timeout ends."""
    queue.redrive_to(dead, attempts=1)
    sqs.delete_queue(QueueUrl=dead.url)
    queue.send("poison")
    queue.one(VisibilityTimeout=3)
    sqs.create_queue(QueueName=dead.name)
    assert dead.one(wait=15)["Body"] == "poison"
    assert queue.receive() == []
