"""Patterns of topics and the events of all shards, at any node."""

from __future__ import annotations

import json
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

import nexo
from nexo.cluster.follower import shard_meant
from nexo.cluster.placement import shard_of
from nexo.vocabulary.errors import InvalidArgument, TopicNotFound
from nexo.vocabulary.names import is_events
from tests.cli.commands import Nexo
from tests.cluster.nodes import SHARDS, Nodes
from tests.cluster.test_one_address import apart

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("pattern", "shard"),
    [
        ("fleet.*", shard_of("fleet", 64)),
        ("fleet.>", shard_of("fleet", 64)),
        ("fleet_dlq.*", shard_of("fleet", 64)),
        ("nexo.archive.fleet.*", shard_of("fleet", 64)),
        ("nexo.archive.orders.fifo", shard_of("orders", 64)),
        ("nexo.events.7", 7),
        ("orders.billing", shard_of("orders", 64)),
        *((each, None) for each in (">", "*", "*.x", "nexo.>", "nexo.archive.*", "nexo.events")),
        ("nexo.events.*", None),
    ],
)
def test_where_the_topics_of_a_pattern_live(pattern: str, shard: int | None) -> None:
    assert shard_meant(pattern, 64) == shard


class Reader(threading.Thread):
    """One who follows, until so many have come."""

    def __init__(self, url: str, pattern: str, count: int, start: Any = "latest") -> None:
        super().__init__(daemon=True)
        self._client = nexo.connect(url)
        self._subscription = self._client.topic(pattern).subscribe(start=start)
        self._count = count
        self.got: list[tuple[str, str]] = []

    def run(self) -> None:
        while len(self.got) < self._count:
            event = self._subscription.get(timeout=20)
            if event is None:
                return
            self.got.append((event.topic, event.text))

    def wait(self) -> list[tuple[str, str]]:
        self.join(25)
        self._client.close()
        return self.got


def test_a_pattern_follows_topics_of_all_nodes(nodes: Nodes) -> None:
    names = [f"{name}.followed.x" for name in apart(nodes)]
    later = [f"{name}.followed.later" for name in apart(nodes)]
    with nexo.connect(nodes["a"].url) as client:
        topics = [client.create_topic(name) for name in names]
        for topic in topics:
            topic.publish("before")
        readers = [Reader(nodes[node].url, "*.followed.*", 44) for node in "ab"]
        for reader in readers:
            reader._subscription.get(timeout=0.2)  # it begins here
            reader.start()
        for number in range(20):
            for topic in topics:
                topic.publish(f"{number}")
            time.sleep(0.01)
        for name in later:
            made = client.create_topic(name)
            made.publish("one")
            made.publish("two")
        for reader in readers:
            got = reader.wait()
            for name in names:
                assert [text for each, text in got if each == name] == [f"{n}" for n in range(20)]
            for name in later:
                assert [text for each, text in got if each == name] == ["one", "two"]
        for name in names + later:
            client.topic(name).delete()


def test_a_pattern_is_followed_while_shards_move(nodes: Nodes) -> None:
    """Away from a node and back: nothing is left out, and nothing told twice."""
    names = [f"{name}.moving.x" for name in apart(nodes)]
    with nexo.connect(nodes["a"].url) as client:
        topics = [client.create_topic(name) for name in names]
        readers = [Reader(nodes[node].url, "*.moving.*", 120) for node in "ab"]
        for reader in readers:
            reader._subscription.get(timeout=0.2)
            reader.start()
        for number in range(60):
            for topic in topics:
                topic.publish(f"{number}")
            if number == 20:
                client.drain_node("b")
                nodes.wait_until(lambda found: all(each.node == "a" for each in found.shards))
            elif number == 40:
                client.rebalance()
                nodes.wait_until(nodes._is_spread)
        for reader in readers:
            got = reader.wait()
            for name in names:
                assert [text for each, text in got if each == name] == [f"{n}" for n in range(60)]
        for name in names:
            client.topic(name).delete()


def test_from_the_beginning_and_without_waiting(nodes: Nodes, tmp_path: Path) -> None:
    names = [f"{name}.kept.x" for name in apart(nodes)]
    with nexo.connect(nodes["b"].url) as client:
        for name in names:
            client.create_topic(name).publish_batch([f"{n}" for n in range(2_500)])
        got = Reader(nodes["a"].url, "*.kept.x", 5_000, "earliest")
        got.start()
        found = got.wait()
        for name in names:
            assert [text for each, text in found if each == name] == [f"{n}" for n in range(2_500)]
        told = Nexo(tmp_path, nodes["b"].url)("topic", "tail", "*.kept.x", "--no-follow")
        assert len(told.out.splitlines()) == 5_000
        with pytest.raises(InvalidArgument, match="not a pattern"):
            next(iter(client.topic("a.>.b").subscribe()))
        for name in names:
            client.topic(name).delete()


def test_events_of_all_shards(nodes: Nodes, tmp_path: Path) -> None:
    queues = [f"{name}.lived" for name in apart(nodes)]
    with nexo.connect(nodes["a"].url) as client:
        reader = Reader(nodes["b"].url, "nexo.events", 8)
        reader._subscription.get(timeout=0.2)
        reader.start()
        ids = {}
        for name in queues:
            queue = client.create_queue(name)
            ids[name] = queue.push("x")
            message = queue.pop()
            assert message is not None
            message.ack()
        told = [(topic, json.loads(text)) for topic, text in reader.wait()]
        for name in queues:
            mine = [(topic, event["kind"]) for topic, event in told if event["queue"] == name]
            topic = f"nexo.events.{shard_of(name, SHARDS)}"
            kinds = ("pushed", "delivered", "received", "acked")
            assert mine == [(topic, kind) for kind in kinds]
            life = Nexo(tmp_path, nodes["b"].url)("queue", "message", name, ids[name]).out
            assert "pushed" in life
            assert "acked" in life
        with pytest.raises(TopicNotFound, match=r"nexo\.events\.0 to nexo\.events\.7"):
            client.topic("nexo.events").info()
        listed = {each.name for each in client.topics() if is_events(each.name)}
        assert {f"nexo.events.{shard_of(name, SHARDS)}" for name in queues} <= listed
        with pytest.raises(InvalidArgument, match="system topic"):
            client.topic(f"nexo.events.{shard_of(queues[0], SHARDS)}").delete()
        for name in queues:
            client.queue(name).delete()
