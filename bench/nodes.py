"""A cluster: what many shards cost on one node, what a second node brings, how long a failover and
a planned move take, and what a call at the wrong node costs.

The server is the one that tests use, with everything synced to disk. Nodes of the first part live
in this process; the others are processes.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import resource
import statistics
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
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
    from collections.abc import Awaitable, Callable, Iterable
    from multiprocessing import Queue
    from multiprocessing.synchronize import Barrier

    from nexo.engine.queue_actor import QueueActor
    from tests.cluster.nodes import Nodes
    from tests.postgresql import PostgresqlServer

BODY = bytes(100)
TURNS, TURN_S = 3, 2.0
MANY = 64
IDLE_S = 5.0
FAILOVERS, PUSHES = 3, 300
SHARE_MIN = 0.9  # of the throughput of one shard
NODES = "a", "c"  # of two shards, each of them wants one
SECOND_MIN = 1.5  # of the throughput of one node, where there are cores for two and the server
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
        for pushers, size in ((128, 1), (8, 100)):
            yield from _second_node(server, pushers, size)
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
    rate = await _pushed(node, [f"bench{number}" for number in range(pushers)], size)
    await node.leave()
    return rate


async def _pushed(
    node: Node, names: list[str], size: int, ready: Callable[[], Awaitable[object]] | None = None
) -> float:
    """A pusher for each of these queues, wherever their names lead: messages a second."""
    queues = [await node.engines[node.shard_of(name)].create_queue(name) for name in names]
    batch, pushed = batch_of([BODY] * size), 0
    if ready is not None:
        await ready()
    began = perf_counter()

    async def pusher(queue: QueueActor) -> None:
        nonlocal pushed
        while perf_counter() < began + TURN_S:
            await (queue.push_one(BODY) if size == 1 else queue.push(batch))
            pushed += size

    await asyncio.gather(*[pusher(queue) for queue in queues])
    return pushed / (perf_counter() - began)


def _second_node(server: PostgresqlServer, pushers: int, size: int) -> Iterable[Result]:
    """The same pushers on one node that has both shards, and on two that have one each."""
    rates: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(TURNS):
        for count in rates:
            rates[count].append(_push_on(server, NODES[:count], pushers // count, size))
    one, two = (statistics.median(rates[count]) for count in (1, 2))
    cores = os.cpu_count() or 1
    name = f"durable push, {pushers}x{size}"
    yield Result(f"{name}: one node, two shards", one, "msg/s")
    yield Result(f"{name}: two nodes, a shard each", two, "msg/s")
    bar = SECOND_MIN if cores > len(NODES) + 1 else None
    yield Result(f"{name}: two nodes, on {cores} cores", two / one, "x", bar)


def _push_on(server: PostgresqlServer, names: Iterable[str], pushers: int, size: int) -> float:
    server.execute("DROP SCHEMA IF EXISTS nexo CASCADE")
    create_cluster(server.url, len(NODES))
    spawning = multiprocessing.get_context("spawn")
    names = list(names)
    ready, rates = spawning.Barrier(len(names)), spawning.Queue()
    nodes = [
        spawning.Process(
            target=_push_alone, args=(server.url, name, len(names), pushers, size, ready, rates)
        )
        for name in names
    ]
    for node in nodes:
        node.start()
    total = sum(rates.get(timeout=60) for _ in nodes)
    for node in nodes:
        node.join()
    return float(total)


def _push_alone(
    url: str, name: str, nodes: int, pushers: int, size: int, ready: Barrier, rates: Queue[float]
) -> None:
    """A node in a process of its own, with those who push to its shards."""

    async def work() -> float:
        node = Node(PostgresqlStore(url, name), MEMORY_LIMIT_BYTES)
        await node.prepare()
        await node.join("127.0.0.1:1", "127.0.0.1:2", "0")
        while len(node.engines) != len(NODES) // nodes:  # noqa: ASYNC110 - the other joins
            await asyncio.sleep(0.05)
        await node.settled()
        names = [
            each
            for each in (f"bench{at}" for at in range(8 * pushers))
            if node.owns(node.shard_of(each))
        ]
        rate = await _pushed(node, names[:pushers], size, lambda: asyncio.to_thread(ready.wait, 60))
        await asyncio.to_thread(ready.wait, 60)  # else what one has would go to the other
        await node.leave()
        return rate

    process.tune_process()
    rates.put(process.run(work()))


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
    """A client at the owner of its queue, one at another node that stays there, and one that goes
    to the owner when it is told to; in turns."""
    name = next(f"hop{each}" for each in range(100) if nodes.owner_of(f"hop{each}") == "a")
    kinds = {"at the owner": "a", "at another node": "b", "sent to the owner": "b"}
    took: dict[str, list[float]] = {kind: [] for kind in kinds}
    rates: dict[str, list[float]] = {kind: [] for kind in kinds}
    costs: dict[str, list[float]] = {kind: [] for kind in kinds}
    with contextlib.ExitStack() as stack:
        queues = {}
        for kind, node in kinds.items():
            client = nexo.connect(nodes[node].url, follow_redirects=kind == "sent to the owner")
            queues[kind] = stack.enter_context(client).queue(name, create=True)
        sent = queues["sent to the owner"]._connection
        while str(sent._address) != nodes["a"].url.removeprefix("nexo://"):
            queues["sent to the owner"].push(BODY)
        order = deque(queues.items())
        for _ in range(TURNS):
            for _ in range(PUSHES):
                for kind, queue in order:
                    took[kind].append(_one_push(queue))
            order.rotate()
            for kind, queue in order:
                before_s = _cpu_s(nodes)
                pushed, seconds = _batches(queue)
                rates[kind].append(pushed / seconds)
                costs[kind].append((_cpu_s(nodes) - before_s) * 1e6 / pushed)
            queues["at the owner"].purge()
    for kind in kinds:
        yield Result(f"one push {kind}: p50", statistics.median(took[kind]), "ms")
    for kind in kinds:
        yield Result(f"RPC push, 4x100, {kind}", statistics.median(rates[kind]), "msg/s")
    for kind in kinds:
        cost = statistics.median(costs[kind])
        yield Result(f"RPC push, 4x100, {kind}: CPU of all nodes", cost, "us/msg")


def _cpu_s(nodes: Nodes) -> float:
    """What the nodes have used so far: other work beside them does not count."""
    ticks = 0
    for made in nodes.processes.values():
        assert made.process is not None
        stat = Path(f"/proc/{made.process.pid}/stat").read_text(encoding="ascii")
        ticks += sum(map(int, stat.rpartition(")")[2].split()[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")


def _one_push(queue: nexo.Queue) -> float:
    began = perf_counter()
    queue.push(BODY)
    return (perf_counter() - began) * 1000


def _batches(queue: nexo.Queue) -> tuple[int, float]:
    """Four threads of one client push 100 messages at a time: how many, in how many seconds."""
    batch, ends = [BODY] * 100, perf_counter() + TURN_S

    def push() -> int:
        pushed = 0
        while perf_counter() < ends:
            queue.push_batch(batch)
            pushed += len(batch)
        return pushed

    began = perf_counter()
    with ThreadPoolExecutor(4) as threads:
        pushed = sum(threads.map(lambda _: push(), range(4)))
    return pushed, perf_counter() - began


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
