"""Nodes that come, go, die and sleep: nothing is lost, and nothing comes from who has lost it."""

from __future__ import annotations

import contextlib
import signal
import time
from typing import TYPE_CHECKING

import nexo
from nexo.vocabulary.errors import StaleReceipt
from nexo.vocabulary.limits import CLUSTER_LEASE_S, HEARTBEATS_MISSED_MAX
from nexo.wire import commands
from nexo.wire.frame import Kind
from tests.cli.commands import Nexo
from tests.cluster.speaker import HELLO, Speaker

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cluster.nodes import Nodes

QUEUES = [f"queue{each}" for each in range(12)]


def fill(nodes: Nodes, name: str) -> dict[str, list[bytes]]:
    bodies = [b"%d" % each for each in range(20)]
    with nexo.connect(nodes[name].url) as client:
        for queue in QUEUES:
            client.create_queue(queue).push_batch(bodies)
    return {queue: list(bodies) for queue in QUEUES}


def left(nodes: Nodes, name: str) -> dict[str, list[bytes]]:
    """What is there, taken and acked."""
    found: dict[str, list[bytes]] = {}
    with nexo.connect(nodes[name].url, timeout=40) as client:
        for queue in QUEUES:
            taken = client.queue(queue).pop_batch(100, wait=0.1)
            client.queue(queue).ack_batch(taken)
            found[queue] = [message.body for message in taken]
    return found


def test_the_shards_of_a_killed_node_are_taken_over(moving: Nodes) -> None:
    wanted = fill(moving, "a")
    moving.kill("b")
    killed_at = time.monotonic()
    with nexo.connect(moving["a"].url, timeout=40) as client:
        for queue in QUEUES:  # those of the dead node wait; nobody sees an error
            client.queue(queue).push(b"after")
            wanted[queue].append(b"after")
    # Its lease had to end first; a machine that has other things to do takes longer.
    assert time.monotonic() - killed_at < CLUSTER_LEASE_S + 15
    assert left(moving, "a") == wanted
    found = moving.status("a")
    assert {node.name: node.state for node in found.nodes} == {"a": "up", "b": "down"}
    assert {shard.node for shard in found.shards} == {"a"}


def test_a_node_that_joins_gets_its_share_and_gives_it_back(moving: Nodes) -> None:
    wanted = fill(moving, "b")
    moving.start("c")  # returns when the shards are where they belong
    assert left(moving, "c") == wanted
    wanted = fill(moving, "c")
    process = moving.processes.pop("c")
    code, _, err = process.stop()
    assert code == 0, err
    began = time.monotonic()
    assert left(moving, "a") == wanted
    assert time.monotonic() - began < CLUSTER_LEASE_S + 10
    moving.wait_until(lambda found: {shard.node for shard in found.shards} == {"a", "b"})


def test_a_drained_node_has_no_shards_and_takes_calls(moving: Nodes) -> None:
    wanted = fill(moving, "a")
    with nexo.connect(moving["a"].url) as client:
        client.drain_node("a")
    found = moving.wait_until(lambda found: {shard.node for shard in found.shards} == {"b"})
    assert {node.name: node.state for node in found.nodes} == {"a": "draining", "b": "up"}
    assert left(moving, "a") == wanted
    with nexo.connect(moving["b"].url) as client:
        client.rebalance()
    moving.wait_until(lambda found: {shard.node for shard in found.shards} == {"a", "b"})


def test_the_last_node_keeps_its_shards(moving: Nodes, tmp_path: Path) -> None:
    drain = Nexo(tmp_path, moving["a"].url)
    assert drain("cluster", "drain", "a").out == "Draining node a\n"
    moving.wait_until(lambda found: found.nodes[0].state == "draining")
    last = drain("cluster", "drain", "b")
    assert "No other node takes shards, so it keeps its own" in last.out
    assert drain("cluster", "drain", "b", "--json").json()["keeps_shards"] is True


def test_a_node_that_slept_gives_out_nothing_of_what_it_lost(moving: Nodes) -> None:
    """A consumer waits at it, and messages become due: all of that happens while it sleeps. When it
    wakes up another node has its shards, and has given them out."""
    queue = next(each for each in QUEUES if moving.owner_of(each) == "b")
    with nexo.connect(moving["b"].url) as sleeping:
        orders = sleeping.create_queue(queue, visibility_timeout=60.0)
        orders.push_batch([b"due"] * 5, delay=6.0)  # about when its lease has ended
        subscription = orders.subscribe(prefetch=10)  # waits at the node that is about to sleep
        assert orders.info().scheduled == 5
        moving.send("b", signal.SIGSTOP)
        with nexo.connect(moving["a"].url, timeout=40) as client:
            taken: list[nexo.Message] = []
            while len(taken) < 5:
                taken += client.queue(queue).pop_batch(5, wait=20.0)
            assert client.queue(queue).ack_batch(taken) == []
            moving.send("b", signal.SIGCONT)
            info = client.queue(queue).info()
            assert (info.depth, info.acked) == (0, 5)
        # In its memory they are due, and a consumer waits for them.
        orders.push(b"last")  # the sleeper's client has come back to who owns it now
        for message in subscription:
            assert message.body == b"last"
            with contextlib.suppress(StaleReceipt):  # the shard goes back to the node that woke up
                message.ack()
                break
        subscription.close()


def test_a_node_beats_often_and_waits_for_a_client_that_does_not(moving: Nodes) -> None:
    """So clients know of a node that hangs soon after its lease has ended."""
    asked_ms = 5_000
    hello = (*HELLO, None, asked_ms)
    with Speaker(moving["a"].url, hello) as client:
        welcome = client.until(lambda each: each.kind is Kind.WELCOME)
        told: commands.Welcome = commands.unpack(welcome.head, commands.Welcome)
        silence_s = told.heartbeat_ms / 1000 * HEARTBEATS_MISSED_MAX
        assert CLUSTER_LEASE_S < silence_s < 2 * CLUSTER_LEASE_S
        client.look(lambda _: False, silence_s + 2.5)  # in which it is not hung up on
        assert Kind.HEARTBEAT in {each.kind for each in client.frames}
