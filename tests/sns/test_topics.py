"""Topics through SNS, with boto3."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.aws import ACCOUNT, REGION
from tests.sns.rig import Rig

if TYPE_CHECKING:
    from nexo.testing import Broker

ARN = f"arn:aws:sns:{REGION}:{ACCOUNT}:"


def test_a_topic_has_an_arn(rig: Rig) -> None:
    assert rig.topic() == ARN + rig.name


def test_to_create_it_again_is_no_error(rig: Rig) -> None:
    assert rig.topic(DisplayName="one") == rig.topic(DisplayName="one") == rig.topic()


def test_to_create_it_otherwise_is_refused(rig: Rig) -> None:
    rig.topic(DisplayName="one")
    name = rig.name
    assert rig.refused("create_topic", Name=name, Attributes={"DisplayName": "two"}) == (
        "InvalidParameter",
        "Invalid parameter: Attributes Reason: Topic already exists with different attributes",
    )
    assert rig.refused("create_topic", Name=name, Tags=[{"Key": "a", "Value": "b"}]) == (
        "InvalidParameter",
        "Invalid parameter: Tags Reason: Topic already exists with different tags",
    )


@pytest.mark.parametrize(
    ("name", "attributes"),
    [
        ("", {}),
        ("two words", {}),
        ("dotted.name", {}),
        ("nexo.events", {}),
        ("x" * 257, {}),
        ("x" * 81, {}),
        ("plain", {"FifoTopic": "true"}),
        ("queue.fifo", {}),
        ("queue.fifo", {"FifoTopic": "maybe"}),
        ("plain", {"Unheard": "of"}),
        ("plain", {"Policy": "{"}),
        ("plain", {"Policy": "[" * 10_000}),
        ("plain", {"ContentBasedDeduplication": "true"}),
        ("q.fifo", {"FifoTopic": "true", "FifoThroughputScope": "World"}),
        ("q.fifo", {"FifoTopic": "true", "ContentBasedDeduplication": "perhaps"}),
        ("plain", {"DisplayName": "x" * 101}),
        ("plain", {"SignatureVersion": "3"}),
    ],
)
def test_what_is_no_topic_is_refused(rig: Rig, name: str, attributes: dict[str, str]) -> None:
    code, message = rig.refused("create_topic", Name=name, Attributes=attributes)
    assert code == "InvalidParameter"
    assert message.startswith("Invalid parameter: ")


def test_a_deleted_topic_is_gone_and_may_be_deleted_again(rig: Rig) -> None:
    arn = rig.topic()
    rig.sns.delete_topic(TopicArn=arn)
    rig.sns.delete_topic(TopicArn=arn)
    assert rig.refused("get_topic_attributes", TopicArn=arn) == ("NotFound", "Topic does not exist")


def test_a_deleted_topic_takes_its_subscriptions_with_it(rig: Rig) -> None:
    arn, queue = rig.topic(), rig.queue()
    subscription = rig.subscribe(arn, queue)
    rig.sns.delete_topic(TopicArn=arn)
    assert rig.refused("get_subscription_attributes", SubscriptionArn=subscription) == (
        "NotFound",
        "Subscription does not exist",
    )


@pytest.mark.parametrize(
    ("arn", "told"),
    [
        ("news", "Invalid parameter: TopicArn Reason: An ARN must have at least 6 elements, not 1"),
        (f"arn:aws:sqs:{REGION}:{ACCOUNT}:news", "Invalid parameter: TopicArn"),
        (f"arn:aws:sns:eu-west-9:{ACCOUNT}:news", "Invalid parameter: TopicArn"),
        (f"arn:aws:sns:{REGION}:me:news", "Invalid parameter: TopicArn"),
        (f"{ARN}news:more", "Invalid parameter: TopicArn"),
    ],
)
def test_what_is_no_arn_of_a_topic_is_refused(rig: Rig, arn: str, told: str) -> None:
    for action in ("get_topic_attributes", "delete_topic", "list_subscriptions_by_topic"):
        assert rig.refused(action, TopicArn=arn) == ("InvalidParameter", told)
    assert rig.refused("publish", TopicArn=arn, Message="x") == ("InvalidParameter", told)


def test_attributes_are_told_and_kept(rig: Rig) -> None:
    arn = rig.topic()
    for name, value in (("DisplayName", "News"), ("Policy", '{"Version":"1"}')):
        rig.sns.set_topic_attributes(TopicArn=arn, AttributeName=name, AttributeValue=value)
    rig.subscribe(arn, rig.queue())
    found = rig.sns.get_topic_attributes(TopicArn=arn)["Attributes"]
    assert found["TopicArn"] == arn
    assert found["Owner"] == ACCOUNT
    assert found["DisplayName"] == "News"
    assert found["Policy"] == '{"Version":"1"}'
    assert found["SubscriptionsConfirmed"] == "1"
    assert "FifoTopic" not in found
    rig.sns.set_topic_attributes(TopicArn=arn, AttributeName="DisplayName", AttributeValue="")
    assert rig.sns.get_topic_attributes(TopicArn=arn)["Attributes"]["DisplayName"] == ""


def test_a_fifo_topic_says_so(rig: Rig) -> None:
    arn = rig.fifo_topic(FifoThroughputScope="MessageGroup")
    name = "ContentBasedDeduplication"
    rig.sns.set_topic_attributes(TopicArn=arn, AttributeName=name, AttributeValue="true")
    found = rig.sns.get_topic_attributes(TopicArn=arn)["Attributes"]
    assert found["FifoTopic"] == found[name] == "true"
    assert found["FifoThroughputScope"] == "MessageGroup"


@pytest.mark.parametrize("name", ["FifoTopic", "TopicArn", "Owner", "", "x" * 5_000])
def test_other_attributes_cannot_be_set(rig: Rig, name: str) -> None:
    arn = rig.topic()
    given = {"TopicArn": arn, "AttributeName": name, "AttributeValue": "true"}
    assert rig.refused("set_topic_attributes", **given) == (
        "InvalidParameter",
        "Invalid parameter: AttributeName",
    )


def test_topics_are_listed_page_by_page(rig: Rig) -> None:
    made = {rig.topic(f"-{number:03d}") for number in range(101)}
    pages = list(rig.sns.get_paginator("list_topics").paginate())
    found = [each["TopicArn"] for page in pages for each in page["Topics"]]
    assert made <= set(found)
    assert len(found) == len(set(found))
    assert len(pages) > 1
    assert not any(":nexo." in arn for arn in found)
    for arn in made:
        rig.sns.delete_topic(TopicArn=arn)


def test_a_token_of_somebody_else_is_refused(rig: Rig) -> None:
    assert rig.refused("list_topics", NextToken="?")[0] == "InvalidParameter"
    assert rig.refused("list_subscriptions", NextToken="/w==")[0] == "InvalidParameter"


def test_accounts_and_regions_have_topics_of_their_own(broker: Broker, rig: Rig) -> None:
    other = Rig(broker.sqs_url, rig.name, key="123456789012", region="eu-west-1")
    mine, theirs = rig.topic(), other.topic()
    assert theirs == f"arn:aws:sns:eu-west-1:123456789012:{rig.name}"
    queue = other.queue()
    other.subscribe(theirs, queue)
    rig.sns.publish(TopicArn=mine, Message="mine")
    other.sns.publish(TopicArn=theirs, Message="theirs")
    assert queue.texts() == ["theirs"]
    assert other.sns.list_topics()["Topics"] == [{"TopicArn": theirs}]
    assert [each["TopicArn"] for each in other.sns.list_subscriptions()["Subscriptions"]] == [
        theirs
    ]


# -- Tags -------------------------------------------------------------------------------------


def tags(rig: Rig, arn: str) -> dict[str, str]:
    found = rig.sns.list_tags_for_resource(ResourceArn=arn)["Tags"]
    return {each["Key"]: each["Value"] for each in found}


def as_tags(count: int) -> list[dict[str, Any]]:
    return [{"Key": f"k{number}", "Value": "v"} for number in range(count)]


def test_tags_come_and_go(rig: Rig) -> None:
    made = rig.sns.create_topic(Name=rig.name, Tags=[{"Key": "team", "Value": "a"}])
    arn = made["TopicArn"]
    given = [{"Key": "team", "Value": "b"}, {"Key": "cost", "Value": ""}]
    rig.sns.tag_resource(ResourceArn=arn, Tags=given)
    assert tags(rig, arn) == {"team": "b", "cost": ""}
    rig.sns.untag_resource(ResourceArn=arn, TagKeys=["team", "never"])
    assert tags(rig, arn) == {"cost": ""}


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ([{"Key": "a", "Value": "1"}, {"Key": "a", "Value": "2"}], "InvalidParameter"),
        ([{"Key": "k" * 129, "Value": ""}], "InvalidParameter"),
        ([{"Key": "k", "Value": "v" * 257}], "InvalidParameter"),
        ([{"Key": "aws:k", "Value": ""}], "InvalidParameter"),
        ([], "ValidationError"),
        (as_tags(51), "TagLimitExceeded"),
    ],
)
def test_tags_that_cannot_be(rig: Rig, given: list[dict[str, str]], code: str) -> None:
    arn = rig.topic()
    assert rig.refused("tag_resource", ResourceArn=arn, Tags=given)[0] == code
    assert tags(rig, arn) == {}


def test_more_than_fifty_tags_in_two_steps(rig: Rig) -> None:
    arn = rig.topic()
    rig.sns.tag_resource(ResourceArn=arn, Tags=as_tags(50))
    one = [{"Key": "one", "Value": "more"}]
    assert rig.refused("tag_resource", ResourceArn=arn, Tags=one) == (
        "TagLimitExceeded",
        "Could not complete request: tag quota of per resource exceeded",
    )


def test_tags_of_what_is_not_there(rig: Rig) -> None:
    arn = ARN + rig.name
    for action, more in (
        ("list_tags_for_resource", {}),
        ("tag_resource", {"Tags": [{"Key": "a", "Value": "b"}]}),
        ("untag_resource", {"TagKeys": ["a"]}),
    ):
        assert rig.refused(action, ResourceArn=arn, **more) == (
            "ResourceNotFound",
            "Resource does not exist",
        )
