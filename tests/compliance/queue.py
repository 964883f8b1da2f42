"""A queue as tests speak of it: boto3's calls with the URL filled in."""

import json
from collections.abc import Callable
from itertools import count
from typing import Any

Message = dict[str, Any]
Make = Callable[..., "Queue"]


class Queue:
    def __init__(self, sqs: Any, url: str) -> None:
        self.sqs = sqs
        self.url = url

    @property
    def name(self) -> str:
        return self.url.rpartition("/")[2]

    @property
    def arn(self) -> str:
        return self.attributes("QueueArn")["QueueArn"]

    # -- Messages ---------------------------------------------------------------------------------

    def send(self, body: str = "body", **options: Any) -> dict[str, Any]:
        reply: dict[str, Any] = self.sqs.send_message(
            QueueUrl=self.url, MessageBody=body, **options
        )
        return reply

    def send_batch(self, *entries: dict[str, Any] | str, **options: Any) -> dict[str, Any]:
        """Entries, or bodies to make them of; the options go into each."""
        whole = [
            {"Id": str(number), "MessageBody": entry, **options}
            if isinstance(entry, str)
            else {**entry, **options}
            for number, entry in enumerate(entries)
        ]
        reply: dict[str, Any] = self.sqs.send_message_batch(QueueUrl=self.url, Entries=whole)
        return reply

    def receive(self, count: int = 10, wait: int = 0, **options: Any) -> list[Message]:
        reply = self.sqs.receive_message(
            QueueUrl=self.url, MaxNumberOfMessages=count, WaitTimeSeconds=wait, **options
        )
        messages: list[Message] = reply.get("Messages", [])
        return messages

    def one(self, wait: int = 0, **options: Any) -> Message:
        """The next message, with all of its attributes."""
        options.setdefault("MessageSystemAttributeNames", ["All"])
        options.setdefault("MessageAttributeNames", ["All"])
        (message,) = self.receive(1, wait, **options)
        return message

    def bodies(self, count: int = 10, wait: int = 0, **options: Any) -> list[str]:
        return [message["Body"] for message in self.receive(count, wait, **options)]

    def delete(self, *messages: Message) -> None:
        for message in messages:
            self.sqs.delete_message(QueueUrl=self.url, ReceiptHandle=message["ReceiptHandle"])

    def change(self, message: Message, seconds: int) -> None:
        self.sqs.change_message_visibility(
            QueueUrl=self.url, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=seconds
        )

    def drain(self) -> list[str]:
        """Take and delete everything that is there now; returns the bodies."""
        bodies: list[str] = []
        while messages := self.receive():
            bodies += [message["Body"] for message in messages]
            self.delete(*messages)
        return bodies

    # -- The queue --------------------------------------------------------------------------------

    def attributes(self, *names: str) -> dict[str, str]:
        reply = self.sqs.get_queue_attributes(
            QueueUrl=self.url, AttributeNames=list(names) or ["All"]
        )
        found: dict[str, str] = reply.get("Attributes", {})
        return found

    def set(self, **attributes: str) -> None:
        self.sqs.set_queue_attributes(QueueUrl=self.url, Attributes=attributes)

    def counts(self) -> tuple[int, int, int]:
        """Visible, in flight and delayed messages."""
        found = self.attributes("All")
        visible, in_flight, delayed = (
            int(found[f"ApproximateNumberOfMessages{kind}"])
            for kind in ("", "NotVisible", "Delayed")
        )
        return visible, in_flight, delayed

    def redrive_to(self, target: "Queue", attempts: int) -> None:
        policy = {"deadLetterTargetArn": target.arn, "maxReceiveCount": attempts}
        self.set(RedrivePolicy=json.dumps(policy))


def maker(sqs: Any, prefix: str) -> Make:
    """Makes queues: `make(VisibilityTimeout="5")`, `make(fifo=True)`."""
    numbers = count(1)

    def make(fifo: bool = False, **attributes: str) -> Queue:
        name = f"{prefix}-{next(numbers)}"
        if fifo:
            name, attributes = f"{name}.fifo", {"FifoQueue": "true", **attributes}
        return Queue(sqs, sqs.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"])

    return make
