"""Any node takes any call: over RPC and over HTTP, wherever the queue lives."""

from __future__ import annotations

import json
import re
import threading
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

import boto3
import pytest

import nexo
from nexo.vocabulary.errors import QueueNotFound, StaleReceipt
from tests.cli.commands import Nexo
from tests.cluster.nodes import SHARDS, Nodes

if TYPE_CHECKING:
    from pathlib import Path

NAMES = [f"queue{each}" for each in range(24)]


def sqs(nodes: Nodes, node: str) -> Any:
    return boto3.client(
        "sqs",
        endpoint_url=f"http://127.0.0.1:{nodes[node].http_port}",
        region_name="us-east-1",
        aws_access_key_id="nexo",
        aws_secret_access_key="nexo",
    )


def apart(nodes: Nodes) -> tuple[str, str]:
    """A queue of node a and one of node b."""
    owners = {name: nodes.owner_of(name) for name in NAMES}
    return (
        next(name for name in NAMES if owners[name] == "a"),
        next(name for name in NAMES if owners[name] == "b"),
    )


def test_a_queue_of_each_node_at_either(nodes: Nodes) -> None:
    for entry in "ab":
        with nexo.connect(nodes[entry].url) as client:
            for name in apart(nodes):
                queue = client.create_queue(f"{name}.{entry}", visibility_timeout=30.0)
                ids = queue.push_batch([b"one", b"two", b"three"])
                one = queue.pop()
                assert one is not None
                assert (one.id, one.body) == (ids[0], b"one")
                one.ack()
                two = queue.pop()
                assert two is not None
                two.nack(delay=0)
                assert [message.body for message in queue.pop_batch(10)] == [b"two", b"three"]
                assert queue.info().in_flight == 2
                with pytest.raises(StaleReceipt):
                    one.ack()
                queue.delete()
                with pytest.raises(QueueNotFound):
                    queue.push(b"late")


def test_one_subscriber_at_each_node_gets_what_comes_in_at_the_other(nodes: Nodes) -> None:
    for name in apart(nodes):
        got: list[bytes] = []
        with nexo.connect(nodes["a"].url) as consumer, nexo.connect(nodes["b"].url) as producer:
            queue = consumer.create_queue(f"{name}.subscribed")
            subscription = queue.subscribe(prefetch=10)

            def work(subscription: Any = subscription, got: list[bytes] = got) -> None:
                for message in subscription:
                    with message:
                        got.append(message.body)
                    if len(got) == 300:
                        return

            worker = threading.Thread(target=work, daemon=True)
            worker.start()
            target = producer.queue(f"{name}.subscribed")
            for batch in range(3):
                target.push_batch([b"%d" % (100 * batch + each) for each in range(100)])
            worker.join(20)
            assert not worker.is_alive(), len(got)
            assert got == [b"%d" % each for each in range(300)]
            subscription.close()
            queue.delete()


def test_each_connection_is_as_to_another_run_of_a_broker(nodes: Nodes) -> None:
    """Else a client takes an ack that is refused at its second try for one that was accepted at the
    first, though the shard moved in between."""
    with nexo.connect(nodes["a"].url) as client, nexo.connect(nodes["a"].url) as other:
        assert client._connection.session.instance != other._connection.session.instance


def test_topics_and_groups(nodes: Nodes) -> None:
    for name in apart(nodes):
        with nexo.connect(nodes["a"].url) as client, nexo.connect(nodes["b"].url) as other:
            topic = client.create_topic(f"{name}.news")
            topic.bind(queue=f"{name}.billing")
            assert other.topic(f"{name}.news").publish("hello") == 0
            assert [event.text for event in topic.read()] == ["hello"]
            message = other.queue(f"{name}.billing").pop(wait=5)
            assert message is not None
            assert message.text == "hello"
            message.ack()
            for event in topic.subscribe(start="earliest"):
                assert event.text == "hello"
                break
            topic.delete()
            client.queue(f"{name}.billing").delete()


def test_dead_letters_and_their_redrive(nodes: Nodes) -> None:
    for name in apart(nodes):
        with nexo.connect(nodes["b"].url) as client:
            queue = client.create_queue(f"{name}.failing", max_attempts=1)
            queue.push(b"x")
            message = queue.pop()
            assert message is not None
            message.nack(reason="broken")
            letters = client.queue(f"{name}.failing_dlq")
            assert letters.info().depth == 1
            assert letters.redrive() == 1
            assert queue.info().depth == 1
            queue.delete()
            letters.delete()


def test_lists_are_of_all_nodes(nodes: Nodes) -> None:
    mine, other = apart(nodes)
    with nexo.connect(nodes["a"].url) as client:
        for name in (mine, other):
            client.create_queue(f"{name}.listed")
            client.create_topic(f"{name}.told")
        wanted = sorted([f"{mine}.listed", f"{other}.listed"])
        assert [each.name for each in client.queues() if each.name.endswith(".listed")] == wanted
        told = [each.name for each in client.topics() if each.name.endswith(".told")]
        assert told == sorted([f"{mine}.told", f"{other}.told"])
    for entry in "ab":
        found = sqs(nodes, entry).list_queues()["QueueUrls"]
        assert [url.rpartition("/")[2] for url in found if url.endswith(".listed")] == wanted
    with nexo.connect(nodes["b"].url) as client:
        for name in (mine, other):
            client.queue(f"{name}.listed").delete()
            client.topic(f"{name}.told").delete()


def test_an_aws_sdk_sees_every_queue_at_either_node(nodes: Nodes) -> None:
    for entry in "ab":
        client = sqs(nodes, entry)
        for name in apart(nodes):
            url = client.create_queue(QueueName=f"{name}-sqs-{entry}")["QueueUrl"]
            assert str(nodes[entry].http_port) in url  # the way back leads to the same address
            client.send_message(QueueUrl=url, MessageBody="hello")
            found = client.receive_message(QueueUrl=url, WaitTimeSeconds=5)["Messages"]
            assert [message["Body"] for message in found] == ["hello"]
            client.delete_message(QueueUrl=url, ReceiptHandle=found[0]["ReceiptHandle"])
            counted = client.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])
            assert counted["Attributes"]["ApproximateNumberOfMessages"] == "0"
            client.delete_queue(QueueUrl=url)
            with pytest.raises(client.exceptions.QueueDoesNotExist):
                client.send_message(QueueUrl=url, MessageBody="late")


def test_the_admin_api_by_name(nodes: Nodes) -> None:
    def ask(node: str, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        url = f"http://127.0.0.1:{nodes[node].http_port}/api/v1/{path}"
        request = urllib.request.Request(url, data, method=method)
        request.add_header("content-type", "application/json")
        with urllib.request.urlopen(request) as answer:
            return json.loads(answer.read() or b"null")

    for entry in "ab":
        for name in apart(nodes):
            ask(entry, "POST", "queues", {"name": f"{name}.api"})
            ask(entry, "POST", f"queues/{name}.api/messages", {"messages": [{"body": "hello"}]})
            assert ask(entry, "GET", f"queues/{name}.api")["depth"] == 1
            ask(entry, "DELETE", f"queues/{name}.api")
            with pytest.raises(urllib.error.HTTPError) as refused:
                ask(entry, "GET", f"queues/{name}.api")
            assert refused.value.code == 404
            refused.value.close()


def test_metrics_are_those_of_a_node(nodes: Nodes) -> None:
    names = dict(zip("ab", apart(nodes), strict=True))
    with nexo.connect(nodes["a"].url) as client:
        for name in names.values():
            client.create_queue(f"{name}.measured").push(b"x")
    for node, name in names.items():
        with urllib.request.urlopen(f"http://127.0.0.1:{nodes[node].http_port}/metrics") as answer:
            told = answer.read().decode()
        assert re.findall(r'nexo_queue_depth{queue="(.*)\.measured"} 1', told) == [name]
        assert re.search(r"nexo_commit_seconds_count [1-9]", told)
    with nexo.connect(nodes["b"].url) as client:
        for name in names.values():
            client.queue(f"{name}.measured").delete()


def test_health(nodes: Nodes) -> None:
    with urllib.request.urlopen(f"http://127.0.0.1:{nodes['b'].http_port}/health") as answer:
        assert json.loads(answer.read())["status"] == "ok"


def test_the_command_line(nodes: Nodes, tmp_path: Path) -> None:
    at_a = Nexo(tmp_path, nodes["a"].url)
    for name in apart(nodes):
        at_a("push", f"{name}.cli", "hello", "--create")
        assert "hello" in at_a("pop", f"{name}.cli").out
        at_a("queue", "delete", f"{name}.cli", "--yes")
    told = at_a("cluster", "status")
    assert "up" in told.lines[2]
    found = at_a("cluster", "status", "--json").json()
    assert [node["name"] for node in found["nodes"]] == ["a", "b"]
    assert len(found["shards"]) == SHARDS
    refused = at_a("cluster", "drain", "nobody", status=2)
    assert "there is no node 'nobody'" in refused.err


def test_wrong_starts(nodes: Nodes, tmp_path: Path) -> None:
    run = Nexo(tmp_path)
    ports = ("--rpc-port", "0", "--http-port", "0")
    alone = run("serve", "--journal", nodes.journal, *ports, status=2)
    assert "holds a cluster" in alone.err
    twin = run("serve", "--journal", nodes.journal, "--node", "a", *ports, status=1)
    assert "a node of the name 'a' is running already" in twin.err
    without = run("serve", "--node", "c", *ports, status=2)
    assert "--journal" in without.err
    nowhere = run("serve", "--advertise", "host", *ports, status=2)
    assert "--node" in nowhere.err
    again = run("cluster", "create", "--journal", nodes.journal, status=2)
    assert "there is a cluster" in again.err
    fine = run("cluster", "create", "--journal", nodes.journal, "--if-missing")
    assert "There is a cluster" in fine.out
    many = run("cluster", "create", "--journal", nodes.journal, "--shards", "100000", status=2)
    assert "1 to 4,096 shards" in many.err
