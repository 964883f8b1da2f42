"""Nodes are killed, put to sleep and cut off while messages go from their shards to others and from
others to their own: each of them arrives once."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest

import nexo
from nexo.cluster.placement import shard_of, wanted_owner
from tests.client.eventually import eventually
from tests.cluster.nodes import SHARDS, running
from tests.cluster.test_rounds import NAMES, closing_network, one_round

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cluster.nodes import Nodes
    from tests.postgresql import PostgresqlServer

logger = logging.getLogger("tests.between")  # seen with --log-cli-level INFO
BATCH = 50


class Flow:
    """Messages from a topic to a queue of another shard that is bound to it, and from a queue in
    which they fail to a dead-letter queue of another shard."""

    def __init__(self, url: str, here: str, there: str) -> None:
        self._url, self._here, self._there = url, here, there
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._work)
        self.count = 0
        with nexo.connect(url, timeout=120) as client:
            client.create_topic(f"{here}.news").bind(queue=f"{there}.bound")
            client.create_queue(f"{there}.letters")
            client.create_queue(f"{here}.in", max_attempts=1, dead_letter=f"{there}.letters")

    def begin(self) -> None:
        self._thread.start()

    def end(self) -> None:
        self._is_over.set()
        self._thread.join(120)
        assert not self._thread.is_alive()

    def _work(self) -> None:
        with nexo.connect(self._url, timeout=120) as client:
            topic, queue = client.topic(f"{self._here}.news"), client.queue(f"{self._here}.in")
            while not self._is_over.is_set():
                bodies = [b"%d" % each for each in range(self.count, self.count + BATCH)]
                topic.publish_batch(bodies)
                queue.push_batch(bodies)
                self.count += BATCH
                while taken := queue.pop_batch(BATCH, wait=0.01):
                    queue.nack_batch(taken, reason="broken")
            give_up = time.monotonic() + 90
            while queue.info().depth and time.monotonic() < give_up:
                if taken := queue.pop_batch(BATCH, wait=0.5):
                    queue.nack_batch(taken, reason="broken")

    def check(self) -> None:
        """All of them, each once; those of the topic in their order."""
        with nexo.connect(self._url, timeout=120) as client:
            wanted = [b"%d" % each for each in range(self.count)]
            assert self._taken(client.queue(f"{self._there}.bound")) == wanted
            assert Counter(self._taken(client.queue(f"{self._there}.letters"))) == Counter(wanted)

    def _taken(self, queue: nexo.Queue) -> list[bytes]:
        found: list[bytes] = []
        give_up = time.monotonic() + 40
        while len(found) < self.count and time.monotonic() < give_up:
            taken = queue.pop_batch(1_000, wait=0.5)
            queue.ack_batch(taken)
            found += [message.body for message in taken]
        found += [message.body for message in queue.pop_batch(10, wait=0.5)]
        return found


def flows(url: str) -> list[Flow]:
    """From a shard of node a to one of node b, and back."""
    names = [f"name{each}" for each in range(99)]
    owners = {name: wanted_owner(shard_of(name, SHARDS), NAMES) for name in names}
    a, b = (next(name for name in names if owners[name] == node) for node in "ab")
    return [Flow(url, a, b), Flow(url, b, a)]


def waiting(nodes: Nodes) -> int:
    return sum(shard.transfers_waiting or 0 for shard in nodes.status("c").shards)


@pytest.mark.timeout(180)
def test_a_node_is_killed(tmp_path: Path, postgresql: PostgresqlServer) -> None:
    """It is the source of one flow, and the target of the other."""
    with (
        postgresql.database("cluster_between") as url,
        running(tmp_path, url, *NAMES) as nodes,
    ):
        both = flows(nodes["c"].url)
        for flow in both:
            flow.begin()
        eventually(lambda: min(flow.count for flow in both) > 0, 40)  # they are under way
        time.sleep(0.3)
        nodes.kill("b")
        time.sleep(2)
        for flow in both:
            flow.end()
        for flow in both:
            flow.check()
        # What has arrived is confirmed to where it came from a moment later.
        eventually(lambda: waiting(nodes) == 0)


@pytest.mark.soak
@pytest.mark.timeout(1_200)
def test_twenty_rounds(tmp_path: Path, postgresql: PostgresqlServer) -> None:
    seed = random.randrange(1 << 30)
    chance, told = random.Random(seed), []
    with (
        closing_network() as network,
        postgresql.database("cluster_between_rounds") as journal,
        running(tmp_path, journal, *NAMES, network=network) as nodes,
    ):
        both = flows("nexo://" + ",".join(f"127.0.0.1:{nodes[name].port}" for name in NAMES))
        for flow in both:
            flow.begin()
        try:
            for number in range(20):
                told.append(one_round(nodes, chance))
                logger.info("round %d: %s; %s", number, told[-1], [flow.count for flow in both])
            nodes.settle()
        finally:
            for flow in both:
                flow.end()
        logger.info("seed %d: %s", seed, told)
        for flow in both:
            flow.check()
        eventually(lambda: waiting(nodes) == 0)
