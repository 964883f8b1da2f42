"""Accounts and regions: queues of one are not those of another; who is calling."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.aws import ACCOUNT
from tests.compliance import clients
from tests.compliance.broker import ServedBroker
from tests.compliance.queue import Queue
from tests.compliance.refusals import NO_QUEUE, refused

OTHER = "123456789012"

Connect = Callable[..., Any]


@pytest.fixture
def connect(broker: ServedBroker) -> Iterator[Connect]:
    opened = []

    def connect_as(**options: str) -> Any:
        opened.append(clients.client(broker.endpoint, **options))
        return opened[-1]

    yield connect_as
    for client in opened:
        client.close()


def create(sqs: Any, name: str) -> Queue:
    return Queue(sqs, sqs.create_queue(QueueName=name)["QueueUrl"])


@pytest.mark.parametrize("protocol", ["json", "query"])
def test_an_access_key_of_twelve_digits_is_an_account(
    broker: ServedBroker, connect: Connect, name: str, protocol: str
) -> None:
    mine = create(connect(protocol=protocol), name)
    theirs = create(connect(protocol=protocol, key=OTHER), name)
    assert mine.url == f"{broker.endpoint}/{ACCOUNT}/{name}"
    assert theirs.url == f"{broker.endpoint}/{OTHER}/{name}"
    assert theirs.arn == f"arn:aws:sqs:us-east-1:{OTHER}:{name}"
    mine.send("mine")
    assert theirs.bodies() == []
    assert mine.bodies() == ["mine"]


def test_lists_are_of_one_account(connect: Connect, name: str) -> None:
    mine, theirs = connect(), connect(key=OTHER)
    create(theirs, name)
    assert "QueueUrls" not in mine.list_queues(QueueNamePrefix=name)
    with refused(NO_QUEUE):
        mine.get_queue_url(QueueName=name)
    found = mine.get_queue_url(QueueName=name, QueueOwnerAWSAccountId=OTHER)
    assert found["QueueUrl"].endswith(f"/{OTHER}/{name}")


def test_a_url_names_its_account(connect: Connect, name: str) -> None:
    theirs = create(connect(key=OTHER), name)
    through_me = Queue(connect(), theirs.url)
    through_me.send("hello")
    assert theirs.bodies() == ["hello"]


def test_other_access_keys_mean_the_default_account(connect: Connect, name: str) -> None:
    queue = create(connect(key="AKIAIOSFODNN7EXAMPLE"), name)
    assert f"/{ACCOUNT}/" in queue.url
    assert f"/{ACCOUNT}/" in create(connect(key="12345"), name).url


def test_regions(connect: Connect, name: str) -> None:
    here, there = connect(region="us-east-1"), connect(region="eu-central-1")
    mine = create(here, name)
    theirs = create(there, name)
    assert mine.arn == f"arn:aws:sqs:us-east-1:{ACCOUNT}:{name}"
    assert theirs.arn == f"arn:aws:sqs:eu-central-1:{ACCOUNT}:{name}"
    mine.send("here")
    assert theirs.bodies() == []
    assert mine.bodies() == ["here"]
    there.delete_queue(QueueUrl=theirs.url)
    assert "QueueUrls" not in there.list_queues(QueueNamePrefix=name)
    assert here.list_queues(QueueNamePrefix=name)["QueueUrls"] == [mine.url]


def test_dead_letters_stay_in_their_region(connect: Connect, name: str) -> None:
    source = create(connect(region="us-east-1"), name)
    target = create(connect(region="eu-central-1"), name + "-dead")
    with pytest.raises(source.sqs.exceptions.ClientError):
        source.redrive_to(target, 1)


@pytest.mark.parametrize(("key", "account"), [("test", ACCOUNT), (OTHER, OTHER)])
def test_who_is_calling(connect: Connect, key: str, account: str) -> None:
    """Many tools ask this first."""
    reply = connect(service="sts", key=key).get_caller_identity()
    assert reply["Account"] == account
    assert reply["Arn"].startswith(f"arn:aws:iam::{account}:")
    assert reply["UserId"]


def test_senders(connect: Connect, name: str) -> None:
    mine, theirs = connect(), connect(key=OTHER)
    queue = create(mine, name)
    queue.send("mine")
    Queue(theirs, queue.url).send("theirs")
    first, second = (queue.one()["Attributes"]["SenderId"] for _ in range(2))
    assert first != second
