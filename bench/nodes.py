"""A cluster: what many shards cost on one node, how long a failover and a planned move take, and
what a call at the wrong node costs.

The server is the one that tests use, with everything synced to disk. Nodes of the first part live
in this process; those of the second are processes.
"""

from __future__ import annotations

import asyncio
import resource
import statistics
import time
from time import perf_counter
from typing import TYPE_CHECKING

import nexo
from bench.result import Result
from nexo.cluster.node import Node
from nexo.cluster.store import PostgresqlStore
from nexo.engine import process
from nexo.journal.postgresql_cluster import create_cluster
from nexo.vocabulary.batch import batch_of
from nexo.vocabulary.limits import MEMORY_LIMIT_BYTES
from tests.cluster.nodes import running
from tests.postgresql import postgresql_server

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tests.cluster.nodes import Nodes
    from tests.postgresql import PostgresqlServer

BODY = bytes(100)
TURNS, TURN_S = 3, 2.0
MANY = 64
IDLE_S = 5.0
FAILOVERS, PUSHES = 3, 300
SHARE_MIN = 0.9  # of the throughput of one shard
IDLE_CPU_MAX, IDLE_MB_MAX = 0.01, 64.0
FAILOVER_S_MAX, MOVE_S_MAX = 10.0, 1.0


def run(directory: Path) -> Iterable[Result]:
    process.tune_process()
    directory.mkdir(parents=True, exist_ok=True)
    with postgresql_server(durable=True) as server:
        for pushers, size in ((64, 1), (4, 100)):
            rates: dict[int, list[float]] = {1: [], MANY: []}
            for _ in range(TURNS):
                for shards in rates:
                    rates[shards].append(process.run(_push(server, shards, pushers, size)))
            one, many = (statistics.median(rates[shards]) for shards in (1, MANY))
            yield Result(f"durable push, {pushers}x{size}: one shard", one, "msg/s")
            yield Result(f"durable push, {pushers}x{size}: {MANY} shards", many, "msg/s")
            yield Result(f"durable push, {pushers}x{size}: share", many / one, "x", SHARE_MIN)
        yield from process.run(_idle(server))
        with (
            server.database("nodes") as url,
            running(directory, url, "a", "b") as nodes,
        ):
            yield from _hop(nodes)
            yield from _move(nodes)
            yield from _failover(nodes)


async def _node(server: PostgresqlServer, shards: int) -> Node:
    server.execute("DROP SCHEMA IF EXISTS nexo CASCADE")
    create_cluster(server.url, shards)
    node = Node(PostgresqlStore(server.url, "a"), MEMORY_LIMIT_BYTES)
    await node.prepare()
    await node.join("127.0.0.1:1", "127.0.0.1:2", "0")
    await node.settled()
    return node


async def _push(server: PostgresqlServer, shards: int, pushers: int, size: int) -> float:
    node = await _node(server, shards)
    queues = []
    for number in range(pushers):  # as many as pushers, wherever their names lead
        name = f"bench{number}"
        queues.append(await node.engines[node.shard_of(name)].create_queue(name))
    batch = batch_of([BODY] * size)
    ends, pushed = perf_counter() + TURN_S, 0

    async def pusher(at: int) -> None:
        nonlocal pushed
        while perf_counter() < ends:
            await (queues[at].push_one(BODY) if size == 1 else queues[at].push(batch))
            pushed += size

    began = perf_counter()
    await asyncio.gather(*[pusher(at) for at in range(pushers)])
    rate = pushed / (perf_counter() - began)
    await node.leave()
    return rate


async def _idle(server: PostgresqlServer) -> list[Result]:
    before_kb = _resident_kb()
    node = await _node(server, MANY)
    used_mb = (_resident_kb() - before_kb) / 1024
    began_s, began = resource.getrusage(resource.RUSAGE_SELF), perf_counter()
    await asyncio.sleep(IDLE_S)
    after_s = resource.getrusage(resource.RUSAGE_SELF)
    spent_s = after_s.ru_utime + after_s.ru_stime - began_s.ru_utime - began_s.ru_stime
    share = spent_s / (perf_counter() - began)
    await node.leave()
    return [
        Result(f"{MANY} idle shards: CPU", share, "of a core", IDLE_CPU_MAX, "most"),
        Result(f"{MANY} idle shards: memory", used_mb, "MB", IDLE_MB_MAX, "most"),
    ]


def _resident_kb() -> int:
    with open("/proc/self/statm", encoding="ascii") as statm:  # noqa: PTH123
        return int(statm.read().split()[1]) * resource.getpagesize() // 1024


def _hop(nodes: Nodes) -> Iterable[Result]:
    name = next(f"hop{each}" for each in range(100) if nodes.owner_of(f"hop{each}") == "a")
    medians = {}
    for node in "ab":
        with nexo.connect(nodes[node].url) as client:
            queue = client.queue(name, create=True)
            took = []
            for _ in range(PUSHES):
                began = perf_counter()
                queue.push(BODY)
                took.append((perf_counter() - began) * 1000)
        medians[node] = statistics.median(took)
    yield Result("one push at the owner: p50", medians["a"], "ms")
    yield Result("one push at another node: p50", medians["b"], "ms")


def _move(nodes: Nodes) -> Iterable[Result]:
    """The longest that a push took while all shards of its node moved away and came back."""
    name = next(f"move{each}" for each in range(100) if nodes.owner_of(f"move{each}") == "a")
    longest = 0.0
    with nexo.connect(nodes["b"].url, timeout=60) as client:
        queue = client.queue(name, create=True)
        for step in (lambda: client.drain_node("a"), client.rebalance):
            step()
            until = perf_counter() + 3
            while perf_counter() < until:
                began = perf_counter()
                queue.push(BODY)
                longest = max(longest, perf_counter() - began)
    yield Result("a planned move, seen by a push: at most", longest, "s", MOVE_S_MAX, "most")


def _failover(nodes: Nodes) -> Iterable[Result]:
    """From the kill of the owner to the next confirmed push."""
    took = []
    for turn in range(FAILOVERS):
        name = f"failover{turn}"
        with nexo.connect(nodes["a"].url, timeout=60) as client:
            client.queue(name, create=True).push(BODY)
            names = [f"{name}-{each}" for each in range(100)]
            theirs = next(each for each in names if nodes.owner_of(each) == "b")
            queue = client.queue(theirs, create=True)
            queue.push(BODY)
            time.sleep(0.3 * turn)  # at another time of the lease
            nodes.kill("b")
            began = perf_counter()
            queue.push(BODY)
            took.append(perf_counter() - began)
        nodes.start("b")
    yield Result("failover: median", statistics.median(took), "s", 6.0, "most")
    yield Result("failover: at most", max(took), "s", FAILOVER_S_MAX, "most")
