"""The `aws` command, as people type it."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.aws import ACCOUNT, REGION
from tests.compliance.broker import ServedBroker
from tests.compliance.queue import Queue

AWS = str(Path(sys.executable).with_name("aws"))


class Aws:
    def __init__(self, broker: ServedBroker) -> None:
        self._endpoint = broker.endpoint
        self._environment = {
            **os.environ,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": REGION,
            "AWS_PAGER": "",
        }

    def __call__(self, *arguments: str, fails: bool = False) -> Any:
        """What a command prints, read as JSON."""
        done = subprocess.run(
            [AWS, "--endpoint-url", self._endpoint, "--output", "json", *arguments],
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=40,
            check=False,
        )
        assert (done.returncode != 0) is fails, done.stderr
        return json.loads(done.stdout) if done.stdout.strip() else done.stderr


@pytest.fixture
def aws(broker: ServedBroker) -> Aws:
    return Aws(broker)


@pytest.fixture
def protocol() -> str:
    """Of the client beside the command."""
    return "json"


def test_a_message_from_end_to_end(aws: Aws, queue: Queue) -> None:
    attributes = '{"colour": {"DataType": "String", "StringValue": "red"}}'
    sent = aws("sqs", "send-message", "--queue-url", queue.url, "--message-body", "hello ✓",
               "--message-attributes", attributes)  # fmt: skip
    received = aws("sqs", "receive-message", "--queue-url", queue.url,
                   "--message-attribute-names", "All")  # fmt: skip
    (message,) = received["Messages"]
    assert message["Body"] == "hello ✓"
    assert message["MessageId"] == sent["MessageId"]
    assert message["MessageAttributes"] == json.loads(attributes)
    queue.delete(message)
    assert queue.counts() == (0, 0, 0)


def test_refusals_lists_and_identity(aws: Aws, queue: Queue, name: str) -> None:
    commands: list[tuple[tuple[str, ...], bool]] = [
        (("sqs", "get-queue-url", "--queue-name", name), True),
        (("sqs", "list-queues", "--queue-name-prefix", queue.name), False),
        (("sts", "get-caller-identity"), False),
    ]
    with ThreadPoolExecutor(3) as pool:  # each is a Python that starts
        told, listed, caller = pool.map(lambda each: aws(*each[0], fails=each[1]), commands)
    assert "(AWS.SimpleQueueService.NonExistentQueue)" in told
    assert "The specified queue does not exist." in told
    assert listed["QueueUrls"] == [queue.url]
    assert caller["Account"] == ACCOUNT
