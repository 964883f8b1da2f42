"""Between shards: dead letters, redrives, move tasks and bindings whose target lives in another
shard of the cluster, at the same node and at another."""

from __future__ import annotations

import json
import time
import urllib.request
from functools import partial
from typing import TYPE_CHECKING, Any

import boto3
import pytest

import nexo
from nexo.cluster.placement import shard_of
from nexo.vocabulary.errors import QueueNotFound
from tests.cluster.nodes import SHARDS
from tests.cluster.test_one_address import apart, sqs
from tests.cluster.test_whole import post

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cluster.nodes import Nodes


def pairs(nodes: Nodes) -> list[tuple[str, str]]:
    """Names of two shards: of two nodes, either way round, and of one."""
    mine, other = apart(nodes)
    names = [f"near{each}" for each in range(99)]
    near = next(
        name
        for name in names
        if nodes.owner_of(name) == "a" and shard_of(name, SHARDS) != shard_of(mine, SHARDS)
    )
    return [(mine, other), (other, mine), (mine, near)]


def until(is_so: Callable[[], bool], limit_s: float = 20) -> None:
    give_up = time.monotonic() + limit_s
    while not is_so():
        assert time.monotonic() < give_up
        time.sleep(0.02)


def test_dead_letters_go_there_and_come_back(nodes: Nodes) -> None:
    for at, (here, there) in enumerate(pairs(nodes)):
        with nexo.connect(nodes["ab"[at % 2]].url) as client:
            letters = client.queue(f"{there}.letters{at}")
            queue = client.create_queue(f"{here}.in{at}", max_attempts=1, dead_letter=letters.name)
            ids = queue.push_batch([b"%d" % each for each in range(250)], priority=3)
            while popped := queue.pop_batch(100, wait=0.1):
                for message in popped:
                    message.nack(reason="broken")
            until(lambda letters=letters: len(_peek(letters)) == 250)  # type: ignore[misc]
            found = _peek(letters)
            assert [message.id for message in found] == ids
            assert {message.priority for message in found} == {3}
            assert {(each.dead_letter.reason, each.dead_letter.source) for each in found} == {
                ("broken", queue.name)
            }
            assert letters.redrive() == 250
            assert [message.id for message in _popped(queue, 250)] == ids
            queue.delete()
            letters.delete()


def test_a_letter_goes_back_with_another_body(nodes: Nodes) -> None:
    for at, (here, there) in enumerate(pairs(nodes)):
        with nexo.connect(nodes["ab"[at % 2]].url) as client:
            letters = client.queue(f"{there}.mended{at}")
            queue = client.create_queue(
                f"{here}.sick{at}", max_attempts=1, dead_letter=letters.name
            )
            queue.push_batch([b"0", b"1", b"2"])
            for message in queue.pop_batch(3):
                message.nack(reason="broken")
            until(lambda letters=letters: len(_peek(letters)) == 3)  # type: ignore[misc]
            first, second, third = _peek(letters)
            letters.resend(first.id, body=b"rpc")
            base = f"http://127.0.0.1:{nodes['ba'[at % 2]].http_port}"
            api = f"{base}/api/v1/queues/{letters.name}/messages/{second.id}/resend"
            request = urllib.request.Request(api, b'{"body": "api"}', method="POST")
            request.add_header("content-type", "application/json")
            with urllib.request.urlopen(request) as answer:
                assert json.loads(answer.read())["queue"] == queue.name
            form = {"body": "console", "attributes": ""}
            post(nodes, "ba"[at % 2], f"/queues/{letters.name}/messages/{third.id}/resend", **form)
            assert [message.body for message in _popped(queue, 3)] == [b"rpc", b"api", b"console"]
            assert _peek(letters) == []
            queue.delete()
            letters.delete()


def _peek(queue: Any) -> list[Any]:
    try:
        return list(queue.peek(limit=1_000))
    except QueueNotFound:
        return []


def _popped(queue: Any, count: int) -> list[Any]:
    found: list[Any] = []
    give_up = time.monotonic() + 20
    while len(found) < count and time.monotonic() < give_up:
        found += queue.pop_batch(count, wait=0.1)
    assert not queue.pop_batch(1, wait=0.1)
    return found


def test_a_redrive_to_another_queue(nodes: Nodes) -> None:
    for at, (here, there) in enumerate(pairs(nodes)):
        with nexo.connect(nodes["ba"[at % 2]].url) as client:
            queue = client.create_queue(f"{here}.from{at}")
            target = client.create_queue(f"{there}.to{at}")
            queue.push_batch([b"%d" % each for each in range(2_500)])
            with pytest.raises(QueueNotFound):
                queue.redrive(to=f"{there}.none")
            assert queue.redrive(to=target.name) == 2_500
            got = [message.body for message in _popped(target, 2_500)]
            assert got == [b"%d" % each for each in range(2_500)]
            queue.delete()
            target.delete()


def test_bindings_with_filters_and_a_start_in_the_past(nodes: Nodes) -> None:
    for at, (here, there) in enumerate(pairs(nodes)):
        with nexo.connect(nodes["ab"[at % 2]].url) as client:
            topic = client.create_topic(f"{here}.news{at}")
            for each in range(6):
                topic.publish(b"%d" % each, attributes={"odd": "yes" if each % 2 else "no"})
            topic.bind(queue=f"{there}.odd{at}", where={"odd": "yes"}, start="earliest")
            assert topic.info().bound_queues == [f"{there}.odd{at}"]
            topic.publish(b"7", attributes={"odd": "yes"})
            topic.publish(b"8", attributes={"odd": "no"})
            queue = client.queue(f"{there}.odd{at}")
            assert [each.body for each in _popped(queue, 4)] == [b"1", b"3", b"5", b"7"]
            topic.unbind(queue=queue.name)
            assert topic.info().bound_queues == []
            queue.delete()
            topic.delete()


def test_an_aws_sdk_moves_between_shards(nodes: Nodes) -> None:
    client = sqs(nodes, "a")
    for at, (here, there) in enumerate(pairs(nodes)):
        letters = client.create_queue(QueueName=f"{there}-letters{at}")["QueueUrl"]
        arn = _arn(client, letters)
        policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 1})
        queue = client.create_queue(
            QueueName=f"{here}-in{at}",
            Attributes={"RedrivePolicy": policy, "VisibilityTimeout": "0"},
        )["QueueUrl"]
        client.send_message(QueueUrl=queue, MessageBody="poison")
        assert client.receive_message(QueueUrl=queue, WaitTimeSeconds=5)["Messages"]
        client.receive_message(QueueUrl=queue)
        until(lambda letters=letters: _count(client, letters) == 1)  # type: ignore[misc]
        target = client.create_queue(QueueName=f"{here}-again{at}")["QueueUrl"]
        client.start_message_move_task(SourceArn=arn, DestinationArn=_arn(client, target))
        until(lambda target=target: _count(client, target) == 1)  # type: ignore[misc]
        # That it has arrived is known to the task a moment later.
        until(lambda arn=arn: _moved(client, arn) == ("COMPLETED", 1))  # type: ignore[misc]
        for url in (letters, queue, target):
            client.delete_queue(QueueUrl=url)


def _moved(client: Any, arn: str) -> tuple[str, int]:
    """How the only move task of a queue is, and how many messages it has moved."""
    (task,) = client.list_message_move_tasks(SourceArn=arn)["Results"]
    return task["Status"], task["ApproximateNumberOfMessagesMoved"]


def _arn(client: Any, url: str) -> str:
    found = client.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
    return str(found["Attributes"]["QueueArn"])


def _count(client: Any, url: str) -> int:
    name = "ApproximateNumberOfMessages"
    found = client.get_queue_attributes(QueueUrl=url, AttributeNames=[name])
    return int(found["Attributes"][name])


def test_sns_subscriptions_of_queues_elsewhere(nodes: Nodes) -> None:
    client = sqs(nodes, "b")
    sns = boto3.client(
        "sns",
        endpoint_url=f"http://127.0.0.1:{nodes['b'].http_port}",
        region_name="us-east-1",
        aws_access_key_id="nexo",
        aws_secret_access_key="nexo",
    )
    for at, (here, there) in enumerate(pairs(nodes)):
        topic = sns.create_topic(Name=f"{here}-sns{at}")["TopicArn"]
        urls = [
            client.create_queue(QueueName=f"{there}-{form}{at}")["QueueUrl"]
            for form in ("raw", "wrapped")
        ]
        subscriptions = [
            sns.subscribe(
                TopicArn=topic,
                Protocol="sqs",
                Endpoint=_arn(client, url),
                Attributes={"RawMessageDelivery": raw},
            )["SubscriptionArn"]
            for url, raw in zip(urls, ("true", "false"), strict=True)
        ]
        told = sns.list_subscriptions_by_topic(TopicArn=topic)["Subscriptions"]
        assert {each["Endpoint"] for each in told} == {_arn(client, url) for url in urls}
        sns.publish(TopicArn=topic, Message="hello")
        raw, wrapped = [
            client.receive_message(QueueUrl=url, WaitTimeSeconds=10)["Messages"][0]["Body"]
            for url in urls
        ]
        assert raw == "hello"
        assert json.loads(wrapped)["Message"] == "hello"
        for each in subscriptions:
            sns.unsubscribe(SubscriptionArn=each)
        assert not sns.list_subscriptions_by_topic(TopicArn=topic)["Subscriptions"]
        for url in urls:
            client.delete_queue(QueueUrl=url)
        sns.delete_topic(TopicArn=topic)


def test_what_waits_is_shown(nodes: Nodes) -> None:
    """Of a redrive to a queue that was deleted meanwhile, and is there again."""
    here, there = apart(nodes)
    with nexo.connect(nodes["a"].url) as client:
        queue = client.create_queue(f"{here}.shown")
        queue.push_batch([b"x"] * 400)  # more than arrive before the target can be deleted
        target, shard = client.queue(f"{there}.shown"), shard_of(here, SHARDS)
        before = waiting = 0
        while not waiting:  # what arrives before the deletion goes with the target
            client.create_queue(target.name)
            before = queue.info().depth
            assert before, "all of it has arrived in time"
            task = queue.redrive(to=target.name, rate=20.0, wait=False)
            target.delete()
            with pytest.raises(QueueNotFound):
                task.wait()
            waiting = nodes.status("a").shards[shard].transfers_waiting or 0
        assert waiting <= before - queue.info().depth
        for name in "ab":
            # A node that is slow to answer the other is left out, which shows as None.
            until(partial(_shows, nodes, name, shard, waiting))
        metrics = _metrics(nodes, "a")
        assert f'nexo_transfer_backlog{{shard="{shard}"}} {waiting}\n' in metrics
        client.create_queue(target.name)
        _popped(target, waiting)
        until(lambda: nodes.status("b").shards[shard].transfers_waiting == 0)
        queue.delete()
        target.delete()


def _shows(nodes: Nodes, name: str, shard: int, waiting: int) -> bool:
    figures = nodes.status(name).shards[shard]
    return figures.transfers_waiting == waiting and figures.transfers_oldest_s is not None


def _metrics(nodes: Nodes, name: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{nodes[name].http_port}/metrics") as answer:
        return str(answer.read().decode())
