"""Queues: made, found, listed, emptied and deleted."""

import time
from typing import Any

import pytest

from tests.aws import ACCOUNT
from tests.compliance.broker import ServedBroker
from tests.compliance.marks import json_only
from tests.compliance.queue import Make, Queue
from tests.compliance.refusals import INVALID_VALUE, NO_QUEUE, NO_QUEUE_MESSAGE, refused

BAD_NAME = "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length"


def test_create_gives_the_url(sqs: Any, broker: ServedBroker, name: str) -> None:
    url = sqs.create_queue(QueueName=name)["QueueUrl"]
    assert url == f"{broker.endpoint}/{ACCOUNT}/{name}"
    assert sqs.get_queue_url(QueueName=name)["QueueUrl"] == url
    owned = sqs.get_queue_url(QueueName=name, QueueOwnerAWSAccountId=ACCOUNT)
    assert owned["QueueUrl"] == url


def test_create_again_with_the_same_attributes_gives_the_same_queue(sqs: Any, name: str) -> None:
    attributes = {"VisibilityTimeout": "45", "DelaySeconds": "3"}
    first = sqs.create_queue(QueueName=name, Attributes=attributes)
    assert sqs.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"] == first["QueueUrl"]
    assert sqs.create_queue(QueueName=name)["QueueUrl"] == first["QueueUrl"]
    some = {"VisibilityTimeout": "45"}
    assert sqs.create_queue(QueueName=name, Attributes=some)["QueueUrl"] == first["QueueUrl"]
    Queue(sqs, first["QueueUrl"]).set(VisibilityTimeout="46")
    changed = {"VisibilityTimeout": "46"}
    assert sqs.create_queue(QueueName=name, Attributes=changed)["QueueUrl"] == first["QueueUrl"]


def test_create_again_with_other_attributes_is_refused(sqs: Any, name: str) -> None:
    sqs.create_queue(QueueName=name, Attributes={"VisibilityTimeout": "45"})
    with refused(
        "QueueAlreadyExists",
        "A queue already exists with the same name and a different value for attribute "
        "DelaySeconds",
    ):
        sqs.create_queue(QueueName=name, Attributes={"DelaySeconds": "1"})
    with refused(
        "QueueAlreadyExists",
        "A queue already exists with the same name and a different value for attribute "
        "VisibilityTimeout",
    ):
        sqs.create_queue(QueueName=name, Attributes={"VisibilityTimeout": "46"})
    with pytest.raises(sqs.exceptions.QueueNameExists):
        sqs.create_queue(QueueName=name, Attributes={"MaximumMessageSize": "2048"})


def test_create_fifo_again_with_other_attributes_is_refused(sqs: Any, name: str) -> None:
    attributes = {"FifoQueue": "true", "ContentBasedDeduplication": "true"}
    first = sqs.create_queue(QueueName=name + ".fifo", Attributes=attributes)
    again = sqs.create_queue(QueueName=name + ".fifo", Attributes=attributes)
    assert again == {**first, "ResponseMetadata": again["ResponseMetadata"]}
    with refused(
        "QueueAlreadyExists",
        "A queue already exists with the same name and a different value for attribute "
        "ContentBasedDeduplication",
    ):
        other = {"FifoQueue": "true", "ContentBasedDeduplication": "false"}
        sqs.create_queue(QueueName=name + ".fifo", Attributes=other)


@pytest.mark.parametrize("bad", ["a b", "a.b", "a/b", "ä", "a" * 81, "a:b", "name.fifo"])
def test_names_of_queues(sqs: Any, bad: str) -> None:
    with refused(INVALID_VALUE, BAD_NAME):
        sqs.create_queue(QueueName=bad)


def test_names_have_up_to_80_characters(sqs: Any, name: str) -> None:
    longest = name + "_" * (80 - len(name))
    assert sqs.create_queue(QueueName=longest)["QueueUrl"].endswith("/" + longest)
    fifo = name + "-" * (75 - len(name)) + ".fifo"
    attributes = {"FifoQueue": "true"}
    url = sqs.create_queue(QueueName=fifo, Attributes=attributes)["QueueUrl"]
    assert url.endswith("/" + fifo)


def test_names_are_case_sensitive(sqs: Any, name: str) -> None:
    lower = Queue(sqs, sqs.create_queue(QueueName=name)["QueueUrl"])
    upper = Queue(sqs, sqs.create_queue(QueueName=name.upper())["QueueUrl"])
    lower.send("lower")
    assert upper.bodies() == []
    assert lower.bodies() == ["lower"]


def test_an_unknown_queue(sqs: Any, broker: ServedBroker, name: str) -> None:
    with refused(NO_QUEUE, NO_QUEUE_MESSAGE):
        sqs.get_queue_url(QueueName=name)
    with pytest.raises(sqs.exceptions.QueueDoesNotExist):
        sqs.get_queue_url(QueueName=name)
    ghost = Queue(sqs, f"{broker.endpoint}/{ACCOUNT}/{name}")
    calls = [
        lambda: ghost.send(),
        lambda: ghost.send_batch("a"),
        lambda: ghost.receive(),
        lambda: ghost.attributes(),
        lambda: ghost.set(DelaySeconds="1"),
        lambda: sqs.purge_queue(QueueUrl=ghost.url),
        lambda: sqs.delete_queue(QueueUrl=ghost.url),
        lambda: sqs.tag_queue(QueueUrl=ghost.url, Tags={"a": "b"}),
        lambda: sqs.untag_queue(QueueUrl=ghost.url, TagKeys=["a"]),
        lambda: sqs.list_queue_tags(QueueUrl=ghost.url),
        lambda: sqs.list_dead_letter_source_queues(QueueUrl=ghost.url),
        lambda: ghost.delete({"ReceiptHandle": "x"}),
        lambda: ghost.change({"ReceiptHandle": "x"}, 1),
        lambda: sqs.remove_permission(QueueUrl=ghost.url, Label="x"),
    ]
    for call in calls:
        with refused(NO_QUEUE, NO_QUEUE_MESSAGE):
            call()


def test_a_bare_name_and_any_host_are_urls(sqs: Any, queue: Queue) -> None:
    for url in (
        queue.name,
        f"http://sqs.us-east-1.localhost:1/{ACCOUNT}/{queue.name}",
        f"https://sqs.us-east-1.amazonaws.com/{ACCOUNT}/{queue.name}",
        f"/{ACCOUNT}/{queue.name}",
    ):
        Queue(sqs, url).send(url)
        assert queue.drain() == [url]


def test_delete_takes_messages_along(sqs: Any, queue: Queue) -> None:
    queue.send("old")
    sqs.delete_queue(QueueUrl=queue.url)
    with refused(NO_QUEUE, NO_QUEUE_MESSAGE):
        queue.receive()
    # AWS makes clients wait for 60 seconds before they may take the name again; here they need not.
    sqs.create_queue(QueueName=queue.name)
    assert queue.bodies() == []
    assert queue.counts() == (0, 0, 0)


@json_only
def test_delete_ends_those_who_wait(sqs: Any, queue: Queue) -> None:
    from threading import Timer

    timer = Timer(0.3, lambda: sqs.delete_queue(QueueUrl=queue.url))
    timer.start()
    began = time.monotonic()
    with refused(NO_QUEUE, NO_QUEUE_MESSAGE):
        queue.receive(wait=20)
    assert time.monotonic() - began < 10
    timer.join()


def test_list_by_prefix(sqs: Any, make: Make, name: str) -> None:
    urls = sorted(make().url for _ in range(3))
    assert sorted(sqs.list_queues(QueueNamePrefix=name)["QueueUrls"]) == urls
    assert set(urls) <= set(sqs.list_queues()["QueueUrls"])
    nothing = sqs.list_queues(QueueNamePrefix=name + "-nothing")
    assert "QueueUrls" not in nothing
    assert "NextToken" not in nothing


def test_list_in_pages(sqs: Any, make: Make, name: str) -> None:
    urls = {make().url for _ in range(5)}
    first = sqs.list_queues(QueueNamePrefix=name, MaxResults=2)
    assert len(first["QueueUrls"]) == 2
    second = sqs.list_queues(QueueNamePrefix=name, MaxResults=2, NextToken=first["NextToken"])
    third = sqs.list_queues(QueueNamePrefix=name, MaxResults=2, NextToken=second["NextToken"])
    assert len(third["QueueUrls"]) == 1
    assert "NextToken" not in third
    assert {*first["QueueUrls"], *second["QueueUrls"], *third["QueueUrls"]} == urls
    # "You must set MaxResults to receive a value for NextToken in the response."
    assert "NextToken" not in sqs.list_queues(QueueNamePrefix=name)
    exact = sqs.list_queues(QueueNamePrefix=name, MaxResults=5)
    assert set(exact["QueueUrls"]) == urls
    assert "NextToken" not in exact


def test_the_paginator_of_boto3(sqs: Any, make: Make, name: str) -> None:
    urls = [make().url for _ in range(5)]
    pages = sqs.get_paginator("list_queues").paginate(
        QueueNamePrefix=name, PaginationConfig={"PageSize": 2}
    )
    assert sorted(url for page in pages for url in page["QueueUrls"]) == sorted(urls)


@pytest.mark.parametrize("wrong", [0, -1, 1001])
def test_list_limits(sqs: Any, wrong: int) -> None:
    with refused(INVALID_VALUE):
        sqs.list_queues(MaxResults=wrong)


def test_list_with_a_wrong_token(sqs: Any) -> None:
    with refused(INVALID_VALUE):
        sqs.list_queues(MaxResults=1, NextToken="no token at all")


@json_only
def test_list_holds_at_most_1000(sqs: Any, name: str) -> None:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: sqs.create_queue(QueueName=f"{name}-{n}"), range(1001)))
    try:
        assert len(sqs.list_queues(QueueNamePrefix=name)["QueueUrls"]) == 1000
        first = sqs.list_queues(QueueNamePrefix=name, MaxResults=1000)
        rest = sqs.list_queues(QueueNamePrefix=name, MaxResults=1000, NextToken=first["NextToken"])
        assert len({*first["QueueUrls"], *rest["QueueUrls"]}) == 1001
    finally:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda n: sqs.delete_queue(QueueUrl=f"{name}-{n}"), range(1001)))


def test_purge_takes_everything(sqs: Any, queue: Queue) -> None:
    queue.send_batch("visible", "in flight")
    queue.send("delayed", DelaySeconds=900)
    (held,) = queue.receive(1)
    assert queue.counts() == (1, 1, 1)
    reply = sqs.purge_queue(QueueUrl=queue.url)
    assert set(reply) == {"ResponseMetadata"}
    assert queue.counts() == (0, 0, 0)
    queue.delete(held)  # it is gone already, and that is fine
    # AWS allows one purge every 60 seconds; here another one may follow at once.
    queue.send("later")
    sqs.purge_queue(QueueUrl=queue.url)
    assert queue.counts() == (0, 0, 0)
    queue.send("after")
    assert queue.bodies() == ["after"]
