"""Subscriptions of queues to topics, with boto3."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.aws import ACCOUNT, REGION
from tests.sns.rig import Rig

if TYPE_CHECKING:
    from nexo.testing import Broker

DIFFERENT = "Subscription already exists with different attributes"
EITHER = "Please use either MessageBody or MessageAttributes"
NO_SUBSCRIPTION = ("NotFound", "Subscription does not exist")


def test_a_subscription_is_confirmed_at_once(rig: Rig) -> None:
    topic, queue = rig.topic(), rig.queue()
    arn = rig.subscribe(topic, queue)
    assert arn.startswith(f"{topic}:")
    assert rig.subscription(arn) == {
        "SubscriptionArn": arn,
        "TopicArn": topic,
        "Owner": ACCOUNT,
        "Protocol": "sqs",
        "Endpoint": queue.arn,
        "ConfirmationWasAuthenticated": "true",
        "PendingConfirmation": "false",
        "RawMessageDelivery": "false",
        "SubscriptionPrincipal": f"arn:aws:iam::{ACCOUNT}:root",
    }
    assert rig.refused("confirm_subscription", TopicArn=topic, Token="x") == (
        "InvalidParameter",
        "Invalid parameter: Token",
    )


def test_to_subscribe_again_is_the_same_subscription(rig: Rig) -> None:
    topic, queue = rig.topic(), rig.queue()
    arn = rig.subscribe(topic, queue, RawMessageDelivery="true")
    assert rig.subscribe(topic, queue) == arn
    assert rig.subscribe(topic, queue, RawMessageDelivery="true") == arn
    again = {"TopicArn": topic, "Protocol": "sqs", "Endpoint": queue.arn}
    assert rig.refused("subscribe", **again, Attributes={"RawMessageDelivery": "false"}) == (
        "InvalidParameter",
        f"Invalid parameter: Attributes Reason: {DIFFERENT}",
    )


def test_subscriptions_are_listed(rig: Rig) -> None:
    topic, other = rig.topic(), rig.topic("-other")
    made = [rig.subscribe(topic, rig.queue(f"-{number}")) for number in range(3)]
    elsewhere = rig.subscribe(other, rig.queue("-0"))
    listed = rig.sns.list_subscriptions_by_topic(TopicArn=topic)["Subscriptions"]
    assert [each["SubscriptionArn"] for each in listed] == made
    assert set(listed[0]) == {"SubscriptionArn", "Owner", "Protocol", "Endpoint", "TopicArn"}
    pages = rig.sns.get_paginator("list_subscriptions").paginate()
    everywhere = [each["SubscriptionArn"] for page in pages for each in page["Subscriptions"]]
    assert {*made, elsewhere} <= set(everywhere)


def test_many_subscriptions_come_in_pages(broker: Broker, rig: Rig) -> None:
    here = Rig(broker.sqs_url, rig.name, region="us-west-2")  # where there are no others
    topic, other = here.topic("-b"), here.topic("-a")
    queues = [here.queue(f"-{number:03d}") for number in range(103)]
    made = [here.subscribe(topic, queue) for queue in queues]
    first = here.subscribe(other, queues[50])
    by_topic = list(here.sns.get_paginator("list_subscriptions_by_topic").paginate(TopicArn=topic))
    assert [len(page["Subscriptions"]) for page in by_topic] == [100, 3]
    assert [e["SubscriptionArn"] for page in by_topic for e in page["Subscriptions"]] == made
    pages = list(here.sns.get_paginator("list_subscriptions").paginate())
    assert [len(page["Subscriptions"]) for page in pages] == [100, 4]
    assert [e["SubscriptionArn"] for page in pages for e in page["Subscriptions"]] == [first, *made]


def test_to_unsubscribe_ends_it_and_keeps_what_came(rig: Rig) -> None:
    topic, queue = rig.topic(), rig.queue()
    arn = rig.subscribe(topic, queue)
    rig.sns.publish(TopicArn=topic, Message="before")
    rig.sns.unsubscribe(SubscriptionArn=arn)
    rig.sns.unsubscribe(SubscriptionArn=arn)
    rig.sns.publish(TopicArn=topic, Message="after")
    assert queue.texts() == ["before"]
    assert rig.refused("get_subscription_attributes", SubscriptionArn=arn) == NO_SUBSCRIPTION


def test_a_deleted_queue_is_subscribed_no_more(rig: Rig) -> None:
    topic, queue = rig.topic(), rig.queue()
    arn = rig.subscribe(topic, queue)
    rig.sqs.delete_queue(QueueUrl=queue.url)
    rig.queue()  # of the same name: another life
    assert rig.refused("get_subscription_attributes", SubscriptionArn=arn) == NO_SUBSCRIPTION
    assert rig.sns.list_subscriptions_by_topic(TopicArn=topic)["Subscriptions"] == []


@pytest.mark.parametrize(
    ("arn", "told"),
    [
        ("x", "SubscriptionArn Reason: An ARN must have at least 6 elements, not 1"),
        (f"arn:aws:sns:{REGION}:{ACCOUNT}:news", "SubscriptionId"),
    ],
)
def test_what_is_no_arn_of_a_subscription(rig: Rig, arn: str, told: str) -> None:
    for action in ("unsubscribe", "get_subscription_attributes"):
        assert rig.refused(action, SubscriptionArn=arn) == (
            "InvalidParameter",
            f"Invalid parameter: {told}",
        )


@pytest.mark.parametrize("last", ["x", "00000000-0000-0000-0000-000000000000", "é" * 36])
def test_a_subscription_that_never_was(rig: Rig, last: str) -> None:
    arn = f"{rig.topic()}:{last}"
    rig.sns.unsubscribe(SubscriptionArn=arn)
    given = {"AttributeName": "RawMessageDelivery", "AttributeValue": "true"}
    assert rig.refused("set_subscription_attributes", SubscriptionArn=arn, **given) == (
        NO_SUBSCRIPTION
    )


def test_where_it_may_go(rig: Rig) -> None:
    topic, queue = rig.topic(), rig.queue()
    fifo, fifo_queue = rig.fifo_topic(), rig.queue(".fifo")

    def refused(protocol: str, endpoint: str, arn: str = topic) -> tuple[str, str]:
        given = {"TopicArn": arn, "Protocol": protocol, "Endpoint": endpoint}
        code, message = rig.refused("subscribe", **given)
        return code, message.removeprefix("Invalid parameter: ")

    assert refused("http", "http://127.0.0.1/") == (
        "InvalidParameter",
        "Protocol Reason: this broker delivers to sqs only, not to http",
    )
    assert refused("pigeon", queue.arn)[1] == (
        "Amazon SNS does not support this protocol string: pigeon"
    )
    assert refused("sqs", "http://127.0.0.1/q")[1] == "SQS endpoint ARN"
    assert refused("sqs", queue.arn + "-not-there")[1].startswith("Endpoint Reason: the queue")
    assert refused("sqs", "") == ("NotFound", "Endpoint not specified in subscription")
    assert refused("sqs", fifo_queue.arn)[1] == (
        "Invalid parameter: Endpoint Reason: FIFO SQS Queues can not be subscribed to standard "
        "SNS topics"
    )
    assert refused("sqs", queue.arn, topic + "x") == ("NotFound", "Topic does not exist")
    assert rig.subscribe(fifo, queue)
    assert rig.subscribe(fifo, fifo_queue)


def test_attributes_of_a_subscription_change(rig: Rig) -> None:
    arn = rig.subscribe(rig.topic(), rig.queue())

    def put(name: str, value: str) -> dict[str, str]:
        given = {"SubscriptionArn": arn, "AttributeName": name, "AttributeValue": value}
        rig.sns.set_subscription_attributes(**given)
        return rig.subscription(arn)

    policy = json.dumps({"kind": ["a"]})
    assert put("RawMessageDelivery", "True")["RawMessageDelivery"] == "true"
    assert put("FilterPolicy", policy)["FilterPolicy"] == policy
    assert put("RawMessageDelivery", "false")["FilterPolicyScope"] == "MessageAttributes"
    assert put("FilterPolicyScope", "MessageBody")["FilterPolicyScope"] == "MessageBody"
    nested = json.dumps({"a": {"b": ["c"]}})
    assert put("FilterPolicy", nested)["FilterPolicy"] == nested
    redrive = json.dumps({"deadLetterTargetArn": f"arn:aws:sqs:{REGION}:{ACCOUNT}:dead"})
    assert put("RedrivePolicy", redrive)["RedrivePolicy"] == redrive
    assert "RedrivePolicy" not in put("RedrivePolicy", "")
    assert "FilterPolicy" not in put("FilterPolicy", "{}")


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("Colour", "blue", "AttributeName"),
        (
            "RawMessageDelivery",
            "maybe",
            "RawMessageDelivery: Invalid value [maybe]. Must be true or false.",
        ),
        ("FilterPolicy", "{", "FilterPolicy: failed to parse JSON."),
        ("FilterPolicy", "[1]", "FilterPolicy: Filter policy must be an object"),
        ("FilterPolicy", '{"a": "b"}', 'FilterPolicy: "a" must be an object or an array'),
        (
            "FilterPolicy",
            '{"a": {"b": ["c"]}}',
            "Filter policy scope MessageAttributes does not support nested filter policy",
        ),
        (
            "FilterPolicyScope",
            "Moon",
            f"FilterPolicyScope: Invalid value [Moon]. {EITHER}",
        ),
        ("RedrivePolicy", "{", "RedrivePolicy: failed to parse JSON."),
        ("RedrivePolicy", "{}", "RedrivePolicy: deadLetterTargetArn is an invalid arn"),
        ("RedrivePolicy", "[1]", "RedrivePolicy: deadLetterTargetArn is an invalid arn"),
    ],
)
def test_attributes_that_cannot_be(rig: Rig, name: str, value: str, told: str) -> None:
    topic, queue = rig.topic(), rig.queue()
    given = {"TopicArn": topic, "Protocol": "sqs", "Endpoint": queue.arn}
    assert rig.refused("subscribe", **given, Attributes={name: value}) == (
        "InvalidParameter",
        f"Invalid parameter: Attributes Reason: {told}",
    )
    assert rig.sns.list_subscriptions_by_topic(TopicArn=topic)["Subscriptions"] == []
    arn = rig.subscribe(topic, queue)
    before = rig.subscription(arn)
    change = {"AttributeName": name, "AttributeValue": value}
    assert rig.refused("set_subscription_attributes", SubscriptionArn=arn, **change) == (
        "InvalidParameter",
        f"Invalid parameter: {told}",
    )
    assert rig.subscription(arn) == before


def test_a_queue_that_was_bound_natively_is_a_subscription(broker: Broker, rig: Rig) -> None:
    topic, queue = rig.topic(), rig.queue()
    with broker.client() as client:
        client.topic(rig.name).bind(rig.name, where={"kind": "a"})
    (found,) = rig.sns.list_subscriptions_by_topic(TopicArn=topic)["Subscriptions"]
    shown = rig.subscription(found["SubscriptionArn"])
    assert shown["RawMessageDelivery"] == "true"
    assert json.loads(shown["FilterPolicy"]) == {"kind": ["a"]}
    for kind in "ab":
        attributes = {"kind": {"DataType": "String", "StringValue": kind}}
        rig.sns.publish(TopicArn=topic, Message=kind, MessageAttributes=attributes)
    assert queue.bodies() == ["a"]
    rig.sns.unsubscribe(SubscriptionArn=found["SubscriptionArn"])
    with broker.client() as client:
        assert client.topic(rig.name).info().bound_queues == []
