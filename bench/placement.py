"""Placement at the size of a large cluster, by the rules alone: how evenly queues and shards are
spread, how many shards move when a node comes or goes, and how long a plan takes.

Nothing here runs a node; the rules are those that nodes follow.
"""

from __future__ import annotations

import random
import statistics
from collections import Counter
from time import process_time
from typing import TYPE_CHECKING

from bench.result import Result
from nexo.cluster.placement import ClusterState, NodeState, Wishes, plan_of, shard_of

if TYPE_CHECKING:
    from collections.abc import Iterable

QUEUES = 100_000
SIZES = ((64, 10), (1_024, 100), (4_096, 100), (4_096, 1_000))  # shards, nodes
SAMPLE = 10  # nodes that leave, one at a time
PLAN_S_MAX = 0.1  # for a plan after a change: it is made in the event loop


def run(queues: int = QUEUES) -> Iterable[Result]:
    draw = random.Random(1)
    names = [f"{draw.choice(_WORDS)}-{draw.getrandbits(40):x}" for _ in range(queues)]
    for shards in sorted({shards for shards, _ in SIZES}):
        filled = Counter(shard_of(name, shards) for name in names)
        counts = [filled[shard] for shard in range(shards)]
        yield from _spread(f"{queues:,} queues on {shards:,} shards", "queues a shard", counts)
    for shards, nodes in SIZES:
        yield from _cluster(shards, nodes, names)


def _spread(name: str, unit: str, counts: list[int]) -> Iterable[Result]:
    yield Result(f"{name}: mean", statistics.mean(counts), unit)
    yield Result(f"{name}: fewest", min(counts), unit)
    yield Result(f"{name}: most", max(counts), unit)


def _cluster(shards: int, nodes: int, names: list[str]) -> Iterable[Result]:
    what = f"{shards:,} shards, {nodes:,} nodes"
    living = [f"node-{number}" for number in range(nodes)]
    wishes = Wishes()
    began_s = process_time()
    before = wishes.of(range(shards), living)
    yield Result(f"{what}: CPU of the first plan", process_time() - began_s, "s")
    held = Counter(before.values())
    yield from _spread(
        f"{shards:,} shards on {nodes:,} nodes", "shards a node", [held[n] for n in living]
    )
    load = Counter(before[shard_of(name, shards)] for name in names)
    busiest = max(load.values()) * nodes / len(names)
    yield Result(f"{what}: queues of the fullest node", busiest, "of the mean")
    moved, spent = [], []
    for node in living[:SAMPLE]:
        rest = [each for each in living if each != node]
        began_s = process_time()
        after = wishes.of(range(shards), rest)
        spent.append(process_time() - began_s)
        moved.append(sum(after[each] != before[each] for each in before))
        assert moved[-1] == held[node]  # what it had, and nothing else
        began_s = process_time()
        assert wishes.of(range(shards), living) == before  # it is back
        spent.append(process_time() - began_s)
    yield Result(f"{what}: move with a node, mean", statistics.mean(moved), "shards")
    yield Result(f"{what}: move with a node, most", max(moved), "shards")
    yield Result(f"{what}: of all shards", statistics.mean(moved) / shards * 100, "%")
    state = ClusterState(
        {name: NodeState(name, 1, "", "", "", False, 4.0) for name in living}, dict(before)
    )
    began_s = process_time()
    plan_of(state, living[0], set(), wishes)
    spent.append(process_time() - began_s)
    yield Result(f"{what}: CPU of a later plan, most", max(spent), "s", PLAN_S_MAX, "most")


_WORDS = ("orders", "billing", "mail", "gps", "audit", "thumbnails", "search", "payments")
