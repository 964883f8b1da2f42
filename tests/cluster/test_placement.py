"""The rules of placement, by themselves."""

from __future__ import annotations

import hashlib
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nexo.cluster.placement import (
    ClusterState,
    Lease,
    NodeState,
    Wishes,
    moves,
    plan_of,
    shard_of,
    stem_of,
    wanted_owner,
)

NAMES = st.text("abcxyz_-", min_size=1, max_size=12)
NODES = st.sets(NAMES, min_size=1, max_size=8)


@pytest.mark.parametrize(
    ("name", "stem"),
    [
        ("orders", "orders"),
        ("orders_dlq", "orders"),
        ("orders.fifo", "orders"),
        ("orders_dlq.fifo", "orders"),
        ("nexo.archive.orders", "orders"),
        ("nexo.archive.orders.fifo", "orders"),
        ("orders.billing", "orders"),
        ("orders.billing_dlq", "orders"),
        ("123456789012/eu-west-1/orders", "orders"),
        ("123456789012/eu-west-1/orders_dlq.fifo", "orders"),
        ("_dlq", "_dlq"),
        ("nexo.events", "nexo"),
    ],
)
def test_stem(name: str, stem: str) -> None:
    assert stem_of(name) == stem


def test_anyone_can_compute_the_shard_of_a_name() -> None:
    """Other programs do: this must never change."""
    digest = hashlib.sha256(b"orders").hexdigest()
    assert shard_of("orders.fifo", 64) == int(digest[:16], 16) % 64 == 36


@given(NAMES, st.integers(1, 4096))
def test_what_is_derived_from_a_name_lives_with_it(name: str, shards: int) -> None:
    here = shard_of(name, shards)
    assert 0 <= here < shards
    for other in (f"{name}.fifo", f"nexo.archive.{name}", f"{name}.group"):
        assert shard_of(other, shards) == here
    if not name.endswith("_dlq"):
        assert shard_of(f"{name}_dlq", shards) == here


@given(NODES, NAMES, st.integers(1, 128))
def test_only_what_a_node_gets_or_had_moves(nodes: set[str], other: str, shards: int) -> None:
    more = nodes | {other}
    for shard in range(shards):
        before, after = wanted_owner(shard, nodes), wanted_owner(shard, more)
        assert after in (before, other)
    if other not in nodes:
        gets = sum(wanted_owner(shard, more) == other for shard in range(shards))
        assert moves(nodes, more, shards) == moves(more, nodes, shards) == gets


def test_shards_are_spread() -> None:
    nodes = [f"node-{each}" for each in range(8)]
    counts = Counter(wanted_owner(shard, nodes) for shard in range(4096))
    assert min(counts.values()) > 400
    assert max(counts.values()) < 630
    names = Counter(shard_of(f"queue-{each}", 64) for each in range(64_000))
    assert min(names.values()) > 850
    assert max(names.values()) < 1_150


def test_nobody_has_nothing() -> None:
    assert wanted_owner(1, []) is None


@given(st.lists(st.sets(NAMES, max_size=6), max_size=6), st.integers(1, 24))
def test_what_is_remembered_changes_nothing(turns: list[set[str]], shards: int) -> None:
    """Nodes that come and go, one or several at once, or all of them."""
    wishes = Wishes()
    for nodes in turns:
        wanted = {shard: wanted_owner(shard, nodes) for shard in range(shards)}
        assert wishes.of(range(shards), nodes) == wanted
        assert wishes.hashes(range(shards), nodes) == 0


def test_a_node_that_comes_or_goes_costs_little() -> None:
    nodes = [f"node-{each}" for each in range(100)]
    wishes = Wishes()
    assert wishes.hashes(range(1_000), nodes) == 100_000
    wished = wishes.of(range(1_000), nodes)
    assert wishes.hashes(range(1_000), nodes) == 0
    assert wishes.hashes(range(1_000), [*nodes, "new"]) == 1_000
    had = sum(owner == "node-0" for owner in wished.values())
    assert wishes.hashes(range(1_000), nodes[1:]) == had * 99


# -- The plan ---------------------------------------------------------------------------------


def node(name: str, *, left_s: float = 4.0, is_draining: bool = False) -> NodeState:
    return NodeState(name, 1, f"{name}:1", f"{name}:2", "0", is_draining, left_s)


@st.composite
def states(draw: st.DrawFn) -> ClusterState:
    names = sorted(draw(NODES))
    nodes = {
        name: node(name, left_s=draw(st.sampled_from([-1.0, 3.0])), is_draining=draw(st.booleans()))
        for name in names
    }
    owner = st.sampled_from([None, "gone", *names])
    owners = {shard: draw(owner) for shard in range(draw(st.integers(1, 12)))}
    return ClusterState(nodes, owners)


@given(states())
def test_one_at_most_takes_a_shard_and_only_of_the_dead(state: ClusterState) -> None:
    plans = {name: plan_of(state, name, set()) for name in state.living()}
    for shard, owner in state.owners.items():
        takers = [name for name, plan in plans.items() if shard in plan.taken]
        assert len(takers) <= 1
        if owner in state.living():
            assert not takers
        elif state.candidates():
            assert len(takers) == 1


@given(states())
def test_carried_out_the_plans_come_to_rest(state: ClusterState) -> None:
    """Whatever the beginning: every shard ends at the node that should have it."""
    owners, held = dict(state.owners), {name: set[int]() for name in state.living()}
    for _ in range(3):
        for name in state.living():
            plan = plan_of(ClusterState(state.nodes, owners), name, held[name])
            held[name] -= set(plan.lost)
            held[name] |= set(plan.opened)
            for shard in plan.taken:
                owners[shard] = name
            for shard, to in plan.given:
                held[name].discard(shard)
                owners[shard] = to
    if not state.candidates():
        return
    for shard, owner in owners.items():
        assert owner == wanted_owner(shard, state.candidates())
        assert [name for name in held if shard in held[name]] == [owner]


@given(states(), st.sets(st.integers(0, 11)))
def test_what_another_owns_is_lost(state: ClusterState, held: set[int]) -> None:
    for name in state.living():
        lost = plan_of(state, name, held).lost
        assert lost == sorted(each for each in held if state.owners.get(each) != name)


def test_if_all_drain_nothing_moves() -> None:
    nodes = {"a": node("a", is_draining=True), "b": node("b", is_draining=True)}
    plan = plan_of(ClusterState(nodes, {0: "a", 1: "b", 2: None}), "a", {0})
    assert (plan.lost, plan.opened, plan.taken, plan.given) == ([], [], [], [])


# -- The lease --------------------------------------------------------------------------------


def test_a_lease_counts_from_when_it_was_asked_for() -> None:
    lease = Lease(5.0, 0.5)
    assert not lease.is_held(0.0)
    lease.renewed(10.0)
    assert lease.is_held(14.4)
    assert not lease.is_held(14.5)
    lease.renewed(9.0)  # an answer that came late takes nothing back
    assert lease.left_s(14.0) == 0.5
    lease.end()
    assert not lease.is_held(10.0)
