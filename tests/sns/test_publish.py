"""What is published through SNS, and how it arrives in queues, with boto3."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from nexo.client.worker.event import event_of
from nexo.client.worker.function import Function
from nexo.vocabulary.sqs import attributes_digest

if TYPE_CHECKING:
    from nexo.testing import Broker
    from tests.sns.rig import Rig

ATTRIBUTES: dict[str, Any] = {
    "kind": {"DataType": "String", "StringValue": "grüße"},
    "size": {"DataType": "Number", "StringValue": "7.5"},
    "raw": {"DataType": "Binary", "BinaryValue": b"\x00\xff"},
    "all": {"DataType": "String.Array", "StringValue": '["a",1]'},
}


def test_the_envelope(rig: Rig) -> None:
    topic, queue = rig.topic(), rig.queue()
    subscription = rig.subscribe(topic, queue)
    sent = rig.sns.publish(
        TopicArn=topic, Message='say "hello" & <go>', Subject="News", MessageAttributes=ATTRIBUTES
    )
    (message,) = queue.receive()
    assert "MessageAttributes" not in message  # they are inside
    told = json.loads(message["Body"])
    at = datetime.strptime(told.pop("Timestamp"), "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)
    assert abs(datetime.now(UTC) - at) < timedelta(minutes=1)
    assert told == {
        "Type": "Notification",
        "MessageId": sent["MessageId"],
        "TopicArn": topic,
        "Subject": "News",
        "Message": 'say "hello" & <go>',
        "SignatureVersion": "1",
        "Signature": "",
        "SigningCertURL": f"{rig.endpoint}/SimpleNotificationService.pem",
        "UnsubscribeURL": f"{rig.endpoint}/?Action=Unsubscribe&SubscriptionArn={subscription}",
        "MessageAttributes": {
            "kind": {"Type": "String", "Value": "grüße"},
            "size": {"Type": "Number", "Value": "7.5"},
            "raw": {"Type": "Binary", "Value": b64encode(b"\x00\xff").decode()},
            "all": {"Type": "String.Array", "Value": '["a",1]'},
        },
    }


def test_without_subject_and_attributes_neither_is_told(rig: Rig) -> None:
    topic, queue = rig.topic(), rig.queue()
    rig.subscribe(topic, queue)
    rig.sns.publish(TopicArn=topic, Message="x")
    (told,) = queue.notifications()
    assert not {"Subject", "MessageAttributes", "SequenceNumber"} & set(told)


def test_raw_delivery(rig: Rig) -> None:
    topic, queue = rig.topic(), rig.queue()
    rig.subscribe(topic, queue, RawMessageDelivery="true")
    rig.sns.publish(TopicArn=topic, Message="as it is", MessageAttributes=ATTRIBUTES)
    (message,) = queue.receive()  # boto3 has compared the digests
    assert message["Body"] == "as it is"
    assert message["MessageAttributes"] == ATTRIBUTES
    assert "AWS.SNS" not in message["MessageAttributes"]
    typed = {n: (a["DataType"], a.get("StringValue") or a["BinaryValue"]) for n, a in
             ATTRIBUTES.items()}  # fmt: skip
    assert message["MD5OfMessageAttributes"] == attributes_digest(typed)


def test_raw_and_not_raw_queues_of_one_topic(rig: Rig) -> None:
    topic = rig.topic()
    queues = {f"-{number}": rig.queue(f"-{number}") for number in range(5)}
    for raw in (["-0"], ["-0", "-1", "-2", "-3"]):  # few of them, and nearly all
        for suffix, queue in queues.items():
            arn = rig.subscribe(topic, queue)
            value = "true" if suffix in raw else "false"
            given = {"AttributeName": "RawMessageDelivery", "AttributeValue": value}
            rig.sns.set_subscription_attributes(SubscriptionArn=arn, **given)
        rig.sns.publish(TopicArn=topic, Message="x")
        assert {suffix for suffix, queue in queues.items() if queue.bodies() == ["x"]} == set(raw)


def test_the_form_is_that_of_the_moment_of_publishing(rig: Rig) -> None:
    topic, queue, other = rig.topic(), rig.queue(), rig.queue("-other")
    arn = rig.subscribe(topic, queue, RawMessageDelivery="true")
    rig.subscribe(topic, other)
    rig.sns.publish(TopicArn=topic, Message="raw")
    given = {"AttributeName": "RawMessageDelivery", "AttributeValue": "false"}
    rig.sns.set_subscription_attributes(SubscriptionArn=arn, **given)
    rig.sns.publish(TopicArn=topic, Message="wrapped")
    rig.sns.unsubscribe(SubscriptionArn=arn)
    rig.sns.delete_topic(TopicArn=topic)
    first, second = queue.bodies()
    assert first == "raw"
    assert json.loads(second)["Message"] == "wrapped"


def test_the_form_goes_along_to_the_dead_letters_and_back(rig: Rig) -> None:
    topic, dead = rig.topic(), rig.queue("-dead")
    policy = json.dumps({"deadLetterTargetArn": dead.arn, "maxReceiveCount": "1"})
    raw = rig.queue("-raw", RedrivePolicy=policy, VisibilityTimeout="0")
    wrapped = rig.queue("-wrapped", RedrivePolicy=policy, VisibilityTimeout="0")
    rig.subscribe(topic, raw, RawMessageDelivery="true")
    rig.subscribe(topic, wrapped)
    rig.sns.publish(TopicArn=topic, Message="x")
    for queue in (raw, wrapped):
        for _ in range(2):
            rig.sqs.receive_message(QueueUrl=queue.url)
    bodies = sorted(dead.bodies())
    assert bodies[0] == "x"
    assert json.loads(bodies[1])["Message"] == "x"


def test_native_consumers_see_the_message(broker: Broker, rig: Rig) -> None:
    topic, queue = rig.topic(), rig.queue()
    rig.subscribe(topic, queue)
    rig.sns.publish(TopicArn=topic, Message="hello", MessageAttributes=ATTRIBUTES)
    with broker.client() as client:
        message = client.queue(rig.name).pop()
        assert message is not None
        assert message.text == "hello"
        assert message.attributes["kind"] == "grüße"
        message.ack()
        (event,) = client.topic(rig.name).read(offset=0)
        assert event.text == "hello"


def test_a_worker_gets_what_sqs_would_give(broker: Broker, rig: Rig) -> None:
    topic = rig.topic()
    rig.subscribe(topic, rig.queue("-wrapped"))
    rig.subscribe(topic, rig.queue("-raw"), RawMessageDelivery="true")
    rig.sns.publish(TopicArn=topic, Message="hello", MessageAttributes=ATTRIBUTES)
    records = {}
    with broker.client() as client:
        for kind in ("wrapped", "raw"):
            name = f"{rig.name}-{kind}"
            held = client.queue(name).pop_batch(1, wait=10.0)
            (records[kind],) = event_of(held, name, Function("app.handler", 30.0), False)["Records"]
            client.queue(name).ack_batch(held)
    told = json.loads(records["wrapped"]["body"])
    assert (told["Message"], told["TopicArn"]) == ("hello", topic)
    assert records["wrapped"]["messageAttributes"] == {}
    assert records["raw"]["body"] == "hello"
    assert set(records["raw"]["messageAttributes"]) == set(ATTRIBUTES)


def test_what_is_published_natively_arrives_as_it_is(broker: Broker, rig: Rig) -> None:
    topic, queue = rig.topic(), rig.queue()
    rig.subscribe(topic, queue)
    with broker.client() as client:
        client.topic(rig.name).publish("native")
    assert queue.bodies() == ["native"]


def test_a_batch(rig: Rig) -> None:
    topic, queue = rig.topic(), rig.queue()
    rig.subscribe(topic, queue)
    entries = [
        {"Id": f"{number}", "Message": f"m{number}", "Subject": f"s{number}"}
        for number in range(10)
    ]
    entries[3]["MessageAttributes"] = ATTRIBUTES  # type: ignore[assignment]
    answer = rig.sns.publish_batch(TopicArn=topic, PublishBatchRequestEntries=entries)
    assert answer["Failed"] == []
    ids = {each["Id"]: each["MessageId"] for each in answer["Successful"]}
    told = queue.notifications()
    assert [(each["Message"], each["Subject"]) for each in told] == [
        (f"m{number}", f"s{number}") for number in range(10)
    ]
    assert [each["MessageId"] for each in told] == [ids[f"{number}"] for number in range(10)]
    assert "MessageAttributes" in told[3]


def entry(entry_id: str = "a", **more: Any) -> dict[str, Any]:
    return {"Id": entry_id, "Message": "x", **more}


@pytest.mark.parametrize(
    ("entries", "code", "told"),
    [
        ([], "EmptyBatchRequest", "The batch request doesn't contain any entries."),
        (
            [entry(str(number)) for number in range(11)],
            "TooManyEntriesInBatchRequest",
            "The batch request contains more entries than permissible.",
        ),
        (
            [entry(), entry()],
            "BatchEntryIdsNotDistinct",
            "Two or more batch entries in the request have the same Id.",
        ),
        (
            [entry("a b")],
            "InvalidBatchEntryId",
            "The Id of a batch entry in the batch request contains an impermissible character: a b",
        ),
        (
            [entry("a" * 81)],
            "InvalidBatchEntryId",
            "The Id of a batch entry in the batch request is too long: " + "a" * 81,
        ),
        (
            [entry("a", Message="x" * 200_000), entry("b", Message="x" * 100_000)],
            "BatchRequestTooLong",
            "The length of all the messages put together is more than the limit.",
        ),
        ([entry("a"), entry("b", Message="")], "InvalidParameter", "Empty message"),
    ],
)
def test_a_batch_that_cannot_be(
    rig: Rig, entries: list[dict[str, Any]], code: str, told: str
) -> None:
    topic, queue = rig.topic(), rig.queue()
    rig.subscribe(topic, queue)
    found = rig.refused("publish_batch", TopicArn=topic, PublishBatchRequestEntries=entries)
    assert (found[0], found[1].removeprefix("Invalid parameter: ")) == (code, told)
    assert queue.bodies() == []


def test_a_message_for_each_protocol(rig: Rig) -> None:
    topic, queue = rig.topic(), rig.queue()
    rig.subscribe(topic, queue)
    for texts in ({"default": "d", "sqs": "q"}, {"default": "d", "sqs": 1, "http": "h"}):
        rig.sns.publish(TopicArn=topic, Message=json.dumps(texts), MessageStructure="json")
    assert queue.texts() == ["q", "d"]
    for text, told in (
        ("{", "JSON message body failed to parse"),
        ("[1]", "JSON message body failed to parse"),
        ("[" * 100_000, "JSON message body failed to parse"),
        ("{}", "No default entry in JSON message body"),
        ('{"default":1}', "No default entry in JSON message body"),
    ):
        given = {"TopicArn": topic, "Message": text, "MessageStructure": "json"}
        assert rig.refused("publish", **given) == (
            "InvalidParameter",
            f"Invalid parameter: Message Structure - {told}",
        )


def test_a_topic_as_a_target(rig: Rig) -> None:
    topic, queue = rig.topic(), rig.queue()
    rig.subscribe(topic, queue)
    rig.sns.publish(TargetArn=topic, Message="x")
    assert queue.texts() == ["x"]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"Message": ""}, "Empty message"),
        ({"Message": "x" * (256 * 1024 + 1)}, "Message too long"),
        ({"Subject": ""}, "Subject"),
        ({"Subject": "x" * 101}, "Subject"),
        ({"Subject": "two\nlines"}, "Subject"),
        ({"TopicArn": None, "PhoneNumber": "+15551234567"}, "PhoneNumber Reason: this broker"),
        ({"TopicArn": None}, "TopicArn or TargetArn Reason: no value for required parameter"),
        ({"MessageDeduplicationId": "a"}, "MessageDeduplicationId Reason: The request includes"),
        ({"MessageGroupId": "ä"}, "MessageGroupId Reason: MessageGroupId can only include"),
    ],
)
def test_what_cannot_be_published(rig: Rig, given: dict[str, Any], told: str) -> None:
    topic, queue = rig.topic(), rig.queue()
    rig.subscribe(topic, queue)
    wanted = {"TopicArn": topic, "Message": "x", **given}
    code, message = rig.refused("publish", **{k: v for k, v in wanted.items() if v is not None})
    assert code == "InvalidParameter"
    assert message.startswith(f"Invalid parameter: {told}")
    assert queue.bodies() == []


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        (".a", {}, "starting with character '.'"),
        ("a.", {}, "ending with character '.'"),
        ("a..b", {}, "successive '.'"),
        ("a b", {}, "Invalid non-alphanumeric character '#x20'"),
        ("a" * 257, {}, "must be less than 256 bytes"),
        ("AWS.SNS", {}, "reserved prefix"),
        ("a", {"DataType": "Strange"}, "invalid message attribute type"),
        ("a", {"StringValue": ""}, "must contain non-empty"),
        ("a", {"DataType": "Binary"}, "must use field 'Binary'"),
        ("a", {"DataType": "Number", "StringValue": "many"}, "Could not cast"),
    ],
)
def test_attributes_that_cannot_be(rig: Rig, name: str, value: dict[str, Any], told: str) -> None:
    topic, queue = rig.topic(), rig.queue()
    rig.subscribe(topic, queue)
    attributes = {name: {"DataType": "String", "StringValue": "x", **value}}
    for action, given in (
        ("publish", {"Message": "x", "MessageAttributes": attributes}),
        ("publish_batch", {"PublishBatchRequestEntries": [entry(MessageAttributes=attributes)]}),
    ):
        code, message = rig.refused(action, TopicArn=topic, **given)
        assert code == "ParameterValueInvalid"
        assert told in message
    assert queue.bodies() == []


def test_a_message_of_the_largest_size(rig: Rig) -> None:
    topic, queue = rig.topic(), rig.queue()
    rig.subscribe(topic, queue)
    text = "ä" * (128 * 1024)
    rig.sns.publish(TopicArn=topic, Message=text)
    assert queue.texts() == [text]


def test_groups_of_a_standard_topic_are_those_of_fair_queues(rig: Rig) -> None:
    topic, queue = rig.topic(), rig.queue()
    rig.subscribe(topic, queue)
    rig.sns.publish(TopicArn=topic, Message="x", MessageGroupId="tenant")
    (message,) = queue.receive()
    assert message["Attributes"]["MessageGroupId"] == "tenant"


ODD = "can only include alphanumeric and punctuation characters. 1 to 128 in length"

# -- FIFO -------------------------------------------------------------------------------------


def test_a_fifo_topic_keeps_the_order_of_groups(rig: Rig) -> None:
    topic, queue = rig.fifo_topic(), rig.queue(".fifo")
    rig.subscribe(topic, queue)
    entries = [
        entry(f"{number}", Message=f"{number}", MessageGroupId=f"g{number % 2}",
              MessageDeduplicationId=f"d{number}")
        for number in range(10)
    ]  # fmt: skip
    answer = rig.sns.publish_batch(TopicArn=topic, PublishBatchRequestEntries=entries)
    numbers = [each["SequenceNumber"] for each in answer["Successful"]]
    assert numbers == sorted(set(numbers))
    assert all(re.fullmatch(r"\d{20}", number) for number in numbers)
    received = queue.receive()
    told = [json.loads(each["Body"]) for each in received]
    assert sorted(each["SequenceNumber"] for each in told) == numbers
    for group in ("g0", "g1"):
        of_group = [each for each in received if each["Attributes"]["MessageGroupId"] == group]
        texts = [json.loads(each["Body"])["Message"] for each in of_group]
        assert texts == sorted(texts)
        assert len(texts) == 5
    assert {each["Attributes"]["MessageDeduplicationId"] for each in received} == {
        f"d{number}" for number in range(10)
    }


def test_what_repeats_is_answered_and_not_delivered(rig: Rig) -> None:
    topic, queue = rig.fifo_topic(), rig.queue(".fifo")
    rig.subscribe(topic, queue, RawMessageDelivery="true")
    given = {"TopicArn": topic, "MessageGroupId": "g"}
    first = rig.sns.publish(**given, Message="one", MessageDeduplicationId="d")
    again = rig.sns.publish(**given, Message="other", MessageDeduplicationId="d")
    assert (again["MessageId"], again["SequenceNumber"]) == (
        first["MessageId"],
        first["SequenceNumber"],
    )
    keys = [("a", "d"), ("b", "e"), ("c", "e")]
    entries = [
        entry(each, Message=each, MessageGroupId="g", MessageDeduplicationId=key)
        for each, key in keys
    ]
    answer = rig.sns.publish_batch(TopicArn=topic, PublishBatchRequestEntries=entries)
    ids = [each["MessageId"] for each in answer["Successful"]]
    assert ids[0] == first["MessageId"]
    assert ids[1] == ids[2] != ids[0]
    assert queue.bodies() == ["one", "b"]


def test_by_content(rig: Rig) -> None:
    topic, queue = rig.fifo_topic(ContentBasedDeduplication="true"), rig.queue(".fifo")
    rig.subscribe(topic, queue, RawMessageDelivery="true")
    for text in ("one", "two", "one"):
        rig.sns.publish(TopicArn=topic, Message=text, MessageGroupId="g")
    assert queue.bodies() == ["one", "two"]


@pytest.mark.parametrize(("scope", "expected"), [("Topic", 1), ("MessageGroup", 2)])
def test_where_duplicates_are_looked_for(rig: Rig, scope: str, expected: int) -> None:
    topic, queue = rig.fifo_topic(FifoThroughputScope=scope), rig.queue(".fifo")
    rig.subscribe(topic, queue)
    for group in ("a", "b", "a"):
        given = {"MessageGroupId": group, "MessageDeduplicationId": "d"}
        rig.sns.publish(TopicArn=topic, Message="x", **given)
    assert len(queue.receive()) == expected


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "The MessageGroupId parameter is required for FIFO topics"),
        (
            {"MessageGroupId": "g"},
            (
                "The topic should either have ContentBasedDeduplication enabled or "
                "MessageDeduplicationId provided explicitly"
            ),
        ),
        (
            {"MessageGroupId": "g", "MessageDeduplicationId": "x" * 129},
            f"MessageDeduplicationId Reason: MessageDeduplicationId {ODD}",
        ),
        (
            {"MessageGroupId": "g g", "MessageDeduplicationId": "x"},
            f"MessageGroupId Reason: MessageGroupId {ODD}",
        ),
    ],
)
def test_what_a_fifo_topic_needs(rig: Rig, given: dict[str, str], told: str) -> None:
    topic = rig.fifo_topic()
    expected = ("InvalidParameter", f"Invalid parameter: {told}")
    assert rig.refused("publish", TopicArn=topic, Message="x", **given) == expected
    entries = [entry(**given)]
    found = rig.refused("publish_batch", TopicArn=topic, PublishBatchRequestEntries=entries)
    assert found == expected
