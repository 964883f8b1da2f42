"""boto3 clients of SNS and SQS on one broker, and what tests do with them."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from tests.aws import REGION, options


@lru_cache(maxsize=1)
def _session() -> boto3.Session:
    return boto3.Session()  # it parses AWS's models


def client(service: str, endpoint: str, key: str = "test", region: str = REGION) -> Any:
    return _session().client(service, **options(endpoint, key, region=region))


class Rig:
    """`name` is one that no other test uses."""

    def __init__(self, endpoint: str, name: str, **place: str) -> None:
        self.endpoint = endpoint
        self.name = name
        self.sns = client("sns", endpoint, **place)
        self.sqs = client("sqs", endpoint, **place)

    def topic(self, suffix: str = "", **attributes: str) -> str:
        made = self.sns.create_topic(Name=self.name + suffix, Attributes=attributes)
        arn: str = made["TopicArn"]
        return arn

    def fifo_topic(self, **attributes: str) -> str:
        return self.topic(".fifo", FifoTopic="true", **attributes)

    def queue(self, suffix: str = "", **attributes: str) -> Queue:
        if suffix.endswith(".fifo"):
            attributes = {"FifoQueue": "true", **attributes}
        made = self.sqs.create_queue(QueueName=self.name + suffix, Attributes=attributes)
        return Queue(self, made["QueueUrl"])

    def subscribe(self, topic: str, queue: Queue, **attributes: str) -> str:
        made = self.sns.subscribe(
            TopicArn=topic, Protocol="sqs", Endpoint=queue.arn, Attributes=attributes
        )
        arn: str = made["SubscriptionArn"]
        return arn

    def subscription(self, arn: str) -> dict[str, str]:
        found: dict[str, str] = self.sns.get_subscription_attributes(SubscriptionArn=arn)
        attributes = found["Attributes"]
        assert isinstance(attributes, dict)
        return attributes

    def refused(self, action: str, **params: Any) -> tuple[str, str]:
        """The code and the message of a refusal."""
        with pytest.raises(ClientError) as caught:
            getattr(self.sns, action)(**params)
        error = caught.value.response["Error"]
        return error["Code"], error["Message"]


class Queue:
    def __init__(self, rig: Rig, url: str) -> None:
        self._rig = rig
        self.url = url
        wanted = {"QueueUrl": url, "AttributeNames": ["QueueArn"]}
        self.arn: str = rig.sqs.get_queue_attributes(**wanted)["Attributes"]["QueueArn"]

    def receive(self) -> list[dict[str, Any]]:
        """All that is there, as SQS gives it, and gone from the queue."""
        messages: list[dict[str, Any]] = []
        while True:
            found = self._rig.sqs.receive_message(
                QueueUrl=self.url,
                MaxNumberOfMessages=10,
                MessageAttributeNames=["All"],
                AttributeNames=["All"],
            ).get("Messages", [])
            if not found:
                return messages
            for each in found:
                handle = each["ReceiptHandle"]
                self._rig.sqs.delete_message(QueueUrl=self.url, ReceiptHandle=handle)
            messages += found

    def bodies(self) -> list[str]:
        return [each["Body"] for each in self.receive()]

    def notifications(self) -> list[dict[str, Any]]:
        return [json.loads(body) for body in self.bodies()]

    def texts(self) -> list[str]:
        """The messages inside of their envelopes."""
        return [each["Message"] for each in self.notifications()]
