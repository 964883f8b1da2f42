"""What SNS has answered is there after a crash: topics, subscriptions, messages, duplicates."""

from __future__ import annotations

import html
import json
import urllib.request
from typing import TYPE_CHECKING

import pytest

from tests.compliance.broker import ServedBroker
from tests.sns.rig import Rig

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def served(tmp_path: Path) -> Iterator[ServedBroker]:
    broker = ServedBroker(tmp_path)
    try:
        yield broker.start()
    finally:
        broker.kill()


def test_after_a_crash(served: ServedBroker) -> None:
    rig = Rig(served.endpoint, "news")
    topic, fifo = rig.topic(DisplayName="News"), rig.fifo_topic(ContentBasedDeduplication="true")
    raw, wrapped = rig.queue("-raw"), rig.queue("-wrapped")
    ordered = rig.queue(".fifo")
    policy = json.dumps({"kind": ["a"]})
    rig.sns.tag_resource(ResourceArn=topic, Tags=[{"Key": "team", "Value": "x"}])
    rig.subscribe(topic, raw, RawMessageDelivery="true")
    subscription = rig.subscribe(topic, wrapped, FilterPolicy=policy)
    rig.subscribe(fifo, ordered, RawMessageDelivery="true")
    shown = rig.subscription(subscription)
    for kind in "ab":
        attributes = {"kind": {"DataType": "String", "StringValue": kind}}
        rig.sns.publish(TopicArn=topic, Message=kind, MessageAttributes=attributes)
    first = rig.sns.publish(TopicArn=fifo, Message="once", MessageGroupId="g")

    served.kill()
    served.start()
    rig = Rig(served.endpoint, "news")
    found = rig.sns.get_topic_attributes(TopicArn=topic)["Attributes"]
    assert (found["DisplayName"], found["SubscriptionsConfirmed"]) == ("News", "2")
    tags = rig.sns.list_tags_for_resource(ResourceArn=topic)["Tags"]
    assert tags == [{"Key": "team", "Value": "x"}]
    assert rig.subscription(subscription) == shown
    again = rig.sns.publish(TopicArn=fifo, Message="once", MessageGroupId="g")
    assert again["SequenceNumber"] == first["SequenceNumber"]
    later = rig.sns.publish(TopicArn=fifo, Message="twice", MessageGroupId="g")
    assert later["SequenceNumber"] > first["SequenceNumber"]
    for kind in "ab":
        attributes = {"kind": {"DataType": "String", "StringValue": kind}}
        rig.sns.publish(TopicArn=topic, Message=kind, MessageAttributes=attributes)
    assert rig.queue("-raw").bodies() == ["a", "b", "a", "b"]
    assert rig.queue("-wrapped").texts() == ["a", "a"]
    assert rig.queue(".fifo").bodies() == ["once", "twice"]


def test_other_sides_tell_of_subscriptions(served: ServedBroker, tmp_path: Path) -> None:
    rig = Rig(served.endpoint, "news")
    topic, queue = rig.topic(), rig.queue()
    policy = json.dumps({"kind": ["a"]})
    rig.subscribe(topic, queue, FilterPolicy=policy)
    url = f"{served.endpoint}/api/v1/definitions"
    with urllib.request.urlopen(url, timeout=10) as answer:
        document = answer.read()
    with urllib.request.urlopen(f"{served.endpoint}/console/topics/news", timeout=20) as answer:
        page = html.unescape(answer.read().decode())
    assert policy in page
    (binding,) = json.loads(document)["bindings"]
    assert binding["sns"]["filter_policy"] == policy
    rig.sns.delete_topic(TopicArn=topic)
    request = urllib.request.Request(url, document, {"Content-Type": "application/json"})
    request.method = "PUT"
    with urllib.request.urlopen(request, timeout=10) as answer:
        told = {
            (each["kind"], each["outcome"]) for each in json.loads(answer.read())["definitions"]
        }
    assert ("binding", "created") in told
    (found,) = rig.sns.list_subscriptions_by_topic(TopicArn=topic)["Subscriptions"]
    assert rig.subscription(found["SubscriptionArn"])["FilterPolicy"] == policy
