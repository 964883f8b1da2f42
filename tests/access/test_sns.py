"""The actions of SNS, tried with every kind of wrong credentials and with just enough."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from nexo.doors.sns_http.app import ACTIONS
from nexo.vocabulary.sns import subscription_id

if TYPE_CHECKING:
    from nexo.access.tokens import Minted
    from tests.access.guarded import GuardedBroker

pytestmark = pytest.mark.usefixtures("patient")

CONFIG = Config(retries={"total_max_attempts": 1}, connect_timeout=10, read_timeout=30)
ARN = "arn:aws:sns:us-east-1:000000000000:"
NEWS = {"TopicArn": ARN + "news"}
TAGGED = {"ResourceArn": ARN + "news"}
MESSAGE = {"Id": "a", "Message": "x"}
ANY = {"push", "pop", "peek", "manage"}
READ = {"pop", "peek"}
ONE: dict[str, str] = {"SubscriptionArn": ""}  # that of the queue `inbox`, once it is there

# What to ask, what will do on the topic `news`, and whether the queue `inbox` has to be managed.
ROWS: dict[str, tuple[dict[str, Any], set[str], bool]] = {
    "ConfirmSubscription": ({**NEWS, "Token": "t"}, set(), False),
    "CreateTopic": ({"Name": "news"}, {"manage"}, False),
    "DeleteTopic": (NEWS, {"manage"}, False),
    "GetSubscriptionAttributes": (ONE, ANY, False),
    "GetTopicAttributes": (NEWS, ANY, False),
    "ListSubscriptions": ({}, set(), False),
    "ListSubscriptionsByTopic": (NEWS, ANY, False),
    "ListTagsForResource": (TAGGED, ANY, False),
    "ListTopics": ({}, set(), False),
    "Publish": ({**NEWS, "Message": "x"}, {"push"}, False),
    "PublishBatch": ({**NEWS, "PublishBatchRequestEntries": [MESSAGE]}, {"push"}, False),
    "SetSubscriptionAttributes": (
        {**ONE, "AttributeName": "RawMessageDelivery", "AttributeValue": "true"},
        {*READ, "manage"},
        True,
    ),
    "SetTopicAttributes": (
        {**NEWS, "AttributeName": "DisplayName", "AttributeValue": "x"},
        {"manage"},
        False,
    ),
    "Subscribe": (
        {**NEWS, "Protocol": "sqs", "Endpoint": "arn:aws:sqs:us-east-1:000000000000:inbox"},
        {*READ, "manage"},
        True,
    ),
    "TagResource": ({**TAGGED, "Tags": [{"Key": "a", "Value": "b"}]}, {"manage"}, False),
    "Unsubscribe": (ONE, {*READ, "manage"}, True),
    "UntagResource": ({**TAGGED, "TagKeys": ["a"]}, {"manage"}, False),
}


def call(broker: GuardedBroker, key: str, secret: str, action: str) -> Any:
    """The answer, or the code of the refusal."""
    params = dict(ROWS[action][0])
    if "SubscriptionArn" in params:
        incarnation = broker.engine.queues["inbox"].incarnation
        params["SubscriptionArn"] = f"{NEWS['TopicArn']}:{subscription_id(incarnation)}"
    client = boto3.client(
        "sns",
        endpoint_url=broker.http,
        region_name="us-east-1",
        aws_access_key_id=key,
        aws_secret_access_key=secret,
        config=CONFIG,
    )
    method = "".join("_" + each.lower() if each.isupper() else each for each in action)[1:]
    try:
        return getattr(client, method)(**params)
    except ClientError as error:
        return str(error.response["Error"]["Code"])


def signed(broker: GuardedBroker, minted: Minted, action: str) -> Any:
    return call(broker, minted.access_key_id, minted.secret_access_key, action)


async def _restore(broker: GuardedBroker) -> None:
    engine = broker.engine
    if "inbox" not in engine.queues:
        await engine.create_queue("inbox")
    if "news" not in engine.topics:
        await engine.create_topic("news")
    await engine.bind("news", "inbox")


def test_every_action_has_a_row() -> None:
    assert set(ROWS) == set(ACTIONS)


@pytest.mark.parametrize("action", ROWS)
def test_an_action_takes_just_what_it_needs(broker: GuardedBroker, action: str) -> None:
    _, on_topic, on_queue = ROWS[action]
    broker.wait_for(_restore(broker))
    if not on_topic:
        assert signed(broker, broker.mint("x:push", aws=True), action) != "AuthorizationError"
        return
    queue = ["inbox:manage"] if on_queue else []
    lacking = ",".join(sorted(ANY - on_topic)) or "x"
    others = [f"news:{lacking}"] if ANY - on_topic else ["other:*"]
    refused = signed(broker, broker.mint(*others, *queue, aws=True), action)
    assert refused == "AuthorizationError"
    if on_queue:
        refused = signed(broker, broker.mint("news:*", "inbox:push,pop,peek", aws=True), action)
        assert refused == "AuthorizationError"
    for each in on_topic:
        broker.wait_for(_restore(broker))
        enough = broker.mint(f"news:{each}", *queue, aws=True)
        assert signed(broker, enough, action) != "AuthorizationError", each


@pytest.mark.parametrize("state", ["unknown", "wrong", "revoked"])
@pytest.mark.parametrize("action", ROWS)
def test_no_action_is_done_without_a_key_that_holds(
    broker: GuardedBroker, action: str, state: str
) -> None:
    broker.wait_for(_restore(broker))
    minted = broker.mint("*:*", aws=True)
    key, secret = minted.access_key_id, minted.secret_access_key
    if state == "unknown":
        key = "AKIAIOSFODNN7EXAMPLE"
    elif state == "wrong":
        secret = secret[::-1]
    else:
        broker.revoke(minted)
    expected = "SignatureDoesNotMatch" if state == "wrong" else "InvalidClientTokenId"
    assert call(broker, key, secret, action) == expected


def test_lists_hold_only_what_the_caller_knows(broker: GuardedBroker) -> None:
    broker.wait_for(_restore(broker))
    stranger, known = broker.mint("other:*", aws=True), broker.mint("news:push", aws=True)
    assert signed(broker, stranger, "ListTopics")["Topics"] == []
    assert signed(broker, stranger, "ListSubscriptions")["Subscriptions"] == []
    assert signed(broker, known, "ListTopics")["Topics"] == [NEWS]
    assert len(signed(broker, known, "ListSubscriptions")["Subscriptions"]) == 1


def test_changes_are_in_the_audit_log(broker: GuardedBroker) -> None:
    broker.wait_for(_restore(broker))
    minted = broker.mint("news:manage", "inbox:manage", aws=True)
    for action in ("SetTopicAttributes", "Unsubscribe", "Publish", "GetTopicAttributes"):
        signed(broker, minted, action)
    lacking = broker.mint("news:push", aws=True)
    signed(broker, lacking, "DeleteTopic")
    told = [
        (each.action, each.outcome, each.door)
        for each in broker.audit()
        if each.who in (minted.defined.name, lacking.defined.name)
    ]
    assert sorted(told) == [
        ("DeleteTopic", "forbidden", "sns"),
        ("SetTopicAttributes", "done", "sns"),
        ("Unsubscribe", "done", "sns"),
    ]
