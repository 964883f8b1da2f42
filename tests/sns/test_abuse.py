"""Requests that no SDK would send: every one is refused in SNS's words, and none is a failure."""

from __future__ import annotations

import json
from http.client import HTTPConnection
from typing import TYPE_CHECKING
from urllib.parse import urlencode, urlsplit
from xml.etree import ElementTree as Xml

import pytest

from nexo.doors.sns_http.app import ACTIONS
from tests.aws import ACCOUNT, REGION

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nexo.testing import Broker
    from tests.sns.rig import Rig

SPACE = "{http://sns.amazonaws.com/doc/2010-03-31/}"
TOPIC = f"arn:aws:sns:{REGION}:{ACCOUNT}:nobody"
SUBSCRIPTION = f"{TOPIC}:00000000-0000-8000-8000-000000000000"
# Of each action a request that is right but for what it speaks of.
RIGHT: dict[str, dict[str, str]] = {
    "ConfirmSubscription": {"TopicArn": TOPIC, "Token": "t"},
    "CreateTopic": {
        "Name": "nobody",
        "Attributes.entry.1.key": "DisplayName",
        "Attributes.entry.1.value": "x",
        "Tags.member.1.Key": "a",
        "Tags.member.1.Value": "b",
    },
    "DeleteTopic": {"TopicArn": TOPIC},
    "GetSubscriptionAttributes": {"SubscriptionArn": SUBSCRIPTION},
    "GetTopicAttributes": {"TopicArn": TOPIC},
    "ListSubscriptions": {"NextToken": ""},
    "ListSubscriptionsByTopic": {"TopicArn": TOPIC, "NextToken": ""},
    "ListTagsForResource": {"ResourceArn": TOPIC},
    "ListTopics": {"NextToken": ""},
    "Publish": {
        "TopicArn": TOPIC,
        "TargetArn": TOPIC,
        "Message": "m",
        "Subject": "s",
        "MessageStructure": "plain",
        "MessageGroupId": "g",
        "MessageDeduplicationId": "d",
        "MessageAttributes.entry.1.Name": "a",
        "MessageAttributes.entry.1.Value.DataType": "String",
        "MessageAttributes.entry.1.Value.StringValue": "v",
        "MessageAttributes.entry.1.Value.BinaryValue": "AAAA",
    },
    "PublishBatch": {
        "TopicArn": TOPIC,
        "PublishBatchRequestEntries.member.1.Id": "i",
        "PublishBatchRequestEntries.member.1.Message": "m",
        "PublishBatchRequestEntries.member.1.MessageAttributes.entry.1.Name": "a",
        "PublishBatchRequestEntries.member.1.MessageAttributes.entry.1.Value.DataType": "String",
    },
    "SetSubscriptionAttributes": {
        "SubscriptionArn": SUBSCRIPTION,
        "AttributeName": "FilterPolicy",
        "AttributeValue": "{}",
    },
    "SetTopicAttributes": {
        "TopicArn": TOPIC,
        "AttributeName": "DisplayName",
        "AttributeValue": "x",
    },
    "Subscribe": {
        "TopicArn": TOPIC,
        "Protocol": "sqs",
        "Endpoint": f"arn:aws:sqs:{REGION}:{ACCOUNT}:nobody",
        "Attributes.entry.1.key": "FilterPolicy",
        "Attributes.entry.1.value": "{}",
        "ReturnSubscriptionArn": "true",
    },
    "TagResource": {"ResourceArn": TOPIC, "Tags.member.1.Key": "a", "Tags.member.1.Value": "b"},
    "Unsubscribe": {"SubscriptionArn": SUBSCRIPTION},
    "UntagResource": {"ResourceArn": TOPIC, "TagKeys.member.1": "a"},
}
BAD = [
    "",
    "x",
    "arn:::::",
    "arn:aws:sns:us-east-1:000000000000:",
    "arn:aws:sns:us-east-1:000000000000:nexo.events",
    "arn:aws:sns:us-east-1:000000000000:a/b/c:d",
    ":" * 1_000,
    "x" * 300_000,
    "\x00\x01\ufffe",
    "🦊" * 300,
    "<a>&\"'",
    "[" * 50_000,
    '{"a":' * 20_000,
    "-1",
    "1e999",
    "null",
    "\n",
]


class Raw:
    def __init__(self, broker: Broker) -> None:
        split = urlsplit(broker.sqs_url)
        self._connection = HTTPConnection(str(split.hostname), int(split.port or 0), timeout=20)

    def close(self) -> None:
        self._connection.close()

    def ask(self, body: str, method: str = "POST", path: str = "/") -> tuple[int, bytes]:
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        self._connection.request(method, path, body.encode(), headers)
        answer = self._connection.getresponse()
        return answer.status, answer.read()

    def call(self, action: str, **fields: str) -> tuple[int, str]:
        """The status and the code of a refusal, or the name of the answer."""
        given = {"Action": action, "Version": "2010-03-31", **fields}
        status, body = self.ask(urlencode(given, errors="surrogatepass"))
        return status, code_of(body)


def code_of(body: bytes) -> str:
    root = Xml.fromstring(body)
    assert root.find(f".//{SPACE}RequestId") is not None
    code = root.find(f".//{SPACE}Code")
    return root.tag.removeprefix(SPACE) if code is None else code.text or ""


@pytest.fixture
def raw(broker: Broker) -> Iterator[Raw]:
    speaking = Raw(broker)
    yield speaking
    speaking.close()


def test_every_action_is_here() -> None:
    assert set(RIGHT) == set(ACTIONS)


@pytest.mark.parametrize("exists", [False, True])
@pytest.mark.parametrize("action", RIGHT)
def test_bad_values_in_every_field(rig: Rig, raw: Raw, action: str, exists: bool) -> None:
    right = dict(RIGHT[action])
    for field in RIGHT[action]:
        if exists:  # then the rest of the request is looked at, too
            topic = rig.sns.create_topic(Name="nobody")["TopicArn"]
            subscription = rig.subscribe(topic, rig.queue(), RawMessageDelivery="true")
            right |= {"SubscriptionArn": subscription} if "SubscriptionArn" in right else {}
        for value in BAD:
            status, code = raw.call(action, **{**right, field: value})
            assert status < 500, f"{action} {field}={value[:40]!r}: {code}"
            assert status == 200 or code not in ("", "InternalError"), f"{field}={value[:40]!r}"
        raw.call("DeleteTopic", TopicArn=TOPIC)
    rig.queue().receive()  # what came of it can be read


@pytest.mark.parametrize("action", RIGHT)
def test_fields_that_are_not_there(raw: Raw, action: str) -> None:
    right = RIGHT[action]
    for field in right:
        status, _ = raw.call(action, **{key: right[key] for key in right if key != field})
        assert status < 500, field
    status, _ = raw.call(action)
    assert status < 500
    raw.call("DeleteTopic", TopicArn=TOPIC)


@pytest.mark.parametrize("action", RIGHT)
def test_fields_of_another_form(raw: Raw, action: str) -> None:
    """A list where a text should be, a text where a list should be, and deeper than anything."""
    right = RIGHT[action]
    for field in right:
        head = field.partition(".")[0]
        rest = {key: value for key, value in right.items() if not key.startswith(head)}
        for key in (f"{head}.member.1", f"{head}.entry.1", f"{head}.entry.1.key.x", head,
                    f"{head}.member.1.x.y", f"{head}.member.x", f"{head}.", f"{head}.entry.1.Name",
                    f"{head}.1.2.3.4.5.6.7.8.9"):  # fmt: skip
            status, code = raw.call(action, **rest, **{key: "v"})
            assert status < 500, f"{key}: {code}"
    raw.call("DeleteTopic", TopicArn=TOPIC)


def test_an_action_that_sns_does_not_have(raw: Raw) -> None:
    assert raw.call("SendPigeon") == (400, "InvalidAction")
    assert raw.call("CreateSMSSandboxPhoneNumber") == (400, "InvalidAction")
    assert raw.call("") == (400, "InvalidAction")


def test_what_is_missing_is_named(raw: Raw) -> None:
    status, body = raw.ask("Action=GetTopicAttributes&Version=2010-03-31")
    assert status == 400
    assert b"Value null at 'topicArn' failed to satisfy constraint" in body


def test_without_a_version_the_action_tells_the_service(raw: Raw) -> None:
    status, body = raw.ask("Action=ListTopics")
    assert (status, code_of(body)) == (200, "ListTopicsResponse")
    status, body = raw.ask("Action=ListQueues")
    assert b"http://queue.amazonaws.com/doc/2012-11-05/" in body


def test_a_link_changes_nothing(raw: Raw, rig: Rig) -> None:
    """A page that a user has opened could hold it as an image."""
    subscription = rig.subscribe(rig.topic(), rig.queue())
    link = f"/?Action=Unsubscribe&SubscriptionArn={subscription}"
    status, body = raw.ask("", "GET", link)
    assert (status, code_of(body)) == (403, "AuthorizationError")
    assert rig.subscription(subscription)
    status, body = raw.ask("", "GET", "/?Action=ListTopics")
    assert (status, code_of(body)) == (200, "ListTopicsResponse")


def test_the_topics_of_the_broker_are_none_of_sns(raw: Raw, rig: Rig) -> None:
    events = f"arn:aws:sns:{REGION}:{ACCOUNT}:nexo.events"
    queue = rig.queue()
    for action, more in (
        ("GetTopicAttributes", {}),
        ("Publish", {"Message": "x"}),
        ("Subscribe", {"Protocol": "sqs", "Endpoint": queue.arn}),
        ("SetTopicAttributes", {"AttributeName": "DisplayName", "AttributeValue": "x"}),
    ):
        assert raw.call(action, TopicArn=events, **more) == (404, "NotFound")
    assert raw.call("DeleteTopic", TopicArn=events) == (200, "DeleteTopicResponse")
    assert rig.sns.list_subscriptions_by_topic(TopicArn=rig.topic())["Subscriptions"] == []


def test_special_characters_come_back_as_they_were(rig: Rig) -> None:
    name = "<b>&amp; \"x\" 'y' ä 🦊"
    arn = rig.topic(DisplayName=name)
    assert rig.sns.get_topic_attributes(TopicArn=arn)["Attributes"]["DisplayName"] == name
    policy = json.dumps({"<k>": ["&", "🦊"]}, ensure_ascii=False)
    subscription = rig.subscribe(arn, rig.queue(), FilterPolicy=policy)
    assert rig.subscription(subscription)["FilterPolicy"] == policy
