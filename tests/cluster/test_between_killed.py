"""A node is killed while messages go from its shards to others and from others to its own: each of
them arrives once."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest

import nexo
from nexo.cluster.placement import shard_of, wanted_owner
from tests.cluster.nodes import SHARDS, running

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cluster.nodes import Nodes
    from tests.postgresql import PostgresqlServer

MESSAGES, BATCH = 1_500, 50


@pytest.mark.timeout(180)
def test_the_source_and_the_target_are_killed(tmp_path: Path, postgresql: PostgresqlServer) -> None:
    """Two topics, one of each node, each with a queue of the other node bound to it; and two queues
    whose dead letters go to the other node."""
    with (
        postgresql.database("cluster_between") as url,
        running(tmp_path, url, "a", "b", "c") as nodes,
    ):
        mine, other = _apart()
        with nexo.connect(nodes["c"].url, timeout=60) as client:
            for here, there in ((mine, other), (other, mine)):
                client.create_topic(f"{here}.news").bind(queue=f"{there}.bound")
                client.create_queue(f"{there}.letters")
                client.create_queue(f"{here}.in", max_attempts=1, dead_letter=f"{there}.letters")
            work = [
                threading.Thread(target=_produce, args=(nodes["c"].url, name))
                for name in (mine, other)
            ]
            for each in work:
                each.start()
            time.sleep(0.5)
            nodes.kill("b")
            for each in work:
                each.join(90)
                assert not each.is_alive()
            for name in (mine, other):
                for queue in (f"{name}.bound", f"{name}.letters"):
                    _check(client.queue(queue))
            assert _waiting(nodes) == 0


def _apart() -> tuple[str, str]:
    """Names of shards of nodes a and b."""
    names = [f"name{each}" for each in range(99)]
    owners = {name: wanted_owner(shard_of(name, SHARDS), ["a", "b", "c"]) for name in names}
    return (
        next(name for name in names if owners[name] == "a"),
        next(name for name in names if owners[name] == "b"),
    )


def _produce(url: str, name: str) -> None:
    """Publish, and let messages fail, as fast as it goes."""
    with nexo.connect(url, timeout=60) as client:
        topic, queue = client.topic(f"{name}.news"), client.queue(f"{name}.in")
        for start in range(0, MESSAGES, BATCH):
            bodies = [b"%d" % each for each in range(start, start + BATCH)]
            topic.publish_batch(bodies)
            queue.push_batch(bodies)
            while taken := queue.pop_batch(BATCH, wait=0.01):
                queue.nack_batch(taken, reason="broken")
        give_up = time.monotonic() + 60
        while queue.info().depth and time.monotonic() < give_up:
            if taken := queue.pop_batch(BATCH, wait=0.5):
                queue.nack_batch(taken, reason="broken")


def _check(queue: nexo.Queue) -> None:
    """All of them, each once; those of a topic in their order."""
    found: list[bytes] = []
    give_up = time.monotonic() + 40
    while len(found) < MESSAGES and time.monotonic() < give_up:
        taken = queue.pop_batch(1_000, wait=0.5)
        queue.ack_batch(taken)
        found += [message.body for message in taken]
    found += [message.body for message in queue.pop_batch(10, wait=0.5)]
    wanted = [b"%d" % each for each in range(MESSAGES)]
    counted = Counter(found)
    assert [body for body in wanted if not counted[body]] == [], f"lost on the way to {queue.name}"
    assert [body for body, count in counted.items() if count > 1] == [], f"doubled in {queue.name}"
    if queue.name.endswith(".bound"):
        assert found == wanted


def _waiting(nodes: Nodes) -> int:
    return sum(shard.transfers_waiting or 0 for shard in nodes.status("c").shards)
