"""The waits that AWS imposes, for those who test against them: off unless switched on."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.compliance import clients
from tests.compliance.broker import ServedBroker
from tests.compliance.refusals import refused

SERVICE = "AWS.SimpleQueueService."


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedBroker]:
    served = ServedBroker(tmp_path_factory.mktemp("pausing"), "--aws-pauses", "on")
    try:
        yield served.start()
        served.stop()
    finally:
        served.kill()


def test_one_purge_a_minute(sqs: Any, name: str) -> None:
    url = sqs.create_queue(QueueName=name)["QueueUrl"]
    sqs.purge_queue(QueueUrl=url)
    with refused(
        SERVICE + "PurgeQueueInProgress",
        f"Only one PurgeQueue operation on {name} is allowed every 60 seconds.",
    ):
        sqs.purge_queue(QueueUrl=url)
    with pytest.raises(sqs.exceptions.PurgeQueueInProgress):
        sqs.purge_queue(QueueUrl=url)


def test_a_name_rests_for_a_minute(sqs: Any, name: str) -> None:
    url = sqs.create_queue(QueueName=name)["QueueUrl"]
    sqs.delete_queue(QueueUrl=url)
    with refused(
        SERVICE + "QueueDeletedRecently",
        "You must wait 60 seconds after deleting a queue before you can create another with the "
        "same name.",
    ):
        sqs.create_queue(QueueName=name)
    sqs.create_queue(QueueName=name + "-other")


def test_accounts_do_not_share_their_pauses(broker: ServedBroker, sqs: Any, name: str) -> None:
    sqs.delete_queue(QueueUrl=sqs.create_queue(QueueName=name)["QueueUrl"])
    theirs = clients.client(broker.endpoint, key="123456789012")
    try:
        assert theirs.create_queue(QueueName=name)["QueueUrl"]
    finally:
        theirs.close()
