"""Seeded clusters keep every promise, tell the same story each time, and find planted bugs."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import msgspec
import pytest

from nexo.cluster.node import Node
from nexo.cluster.post import Post
from nexo.engine.transfers import Transfers
from nexo.simulation.cluster.database import Database, SimulatedTables
from nexo.simulation.cluster.store import SimulatedShards
from nexo.simulation.cluster.world import ClusterWorld
from nexo.simulation.seeds import run_cluster

SEEDS_A_CASE = 5
pytestmark = pytest.mark.timeout(180)
FIXED_CASES = 4
DRAWN_CASES = 2
SEEDS_TO_FIND_IT = 60


def assert_kept(first: int) -> None:
    for seed in range(first, first + SEEDS_A_CASE):
        failure = run_cluster(seed)
        assert failure is None, failure.text


@pytest.mark.parametrize("first", range(0, FIXED_CASES * SEEDS_A_CASE, SEEDS_A_CASE))
def test_fixed_seeds_keep_every_promise(first: int) -> None:
    assert_kept(first)


@pytest.mark.soak
@pytest.mark.parametrize("case", range(DRAWN_CASES))
def test_drawn_seeds_keep_every_promise(case: int, pytestconfig: pytest.Config) -> None:
    drawn = int(pytestconfig.option.hypothesis_seed)
    assert_kept(1_000_000 + (drawn * DRAWN_CASES + case) * SEEDS_A_CASE)


def test_a_seed_has_the_same_history_twice() -> None:
    histories = []
    for _ in range(2):
        world = ClusterWorld(3)
        world.run()
        histories.append(world.history.text())
    assert len(histories[0]) > 100, "nothing happens in this world"
    assert histories[0] == histories[1]


# -- Planted bugs -----------------------------------------------------------------------------


def first_failure(first: int = 0) -> str:
    """`first` is a seed shortly before one that finds it, where that takes many."""
    for seed in range(first, first + SEEDS_TO_FIND_IT):
        failure = run_cluster(seed)
        if failure is not None:
            assert f"--cluster --seed {seed}" in failure.text
            return failure.text
    pytest.fail(f"{SEEDS_TO_FIND_IT} seeds did not find a planted bug")


def test_a_commit_without_the_fence_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Database, "holds", lambda self, shard, epoch: True)
    first_failure()


def test_a_lease_that_another_run_of_the_name_renews_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It believes to own what the present run has opened."""

    def renew(self: Any, *given: Any) -> Any:
        self._database.nodes[self._node].until_s = self._lease_end()
        return self.read(*given)

    monkeypatch.setattr(SimulatedTables, "renew", renew)
    assert "broke a promise" in first_failure()


def test_a_lease_that_another_node_renews_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever renews, renews all: the dead live on, and nobody takes their shards."""
    honest = SimulatedTables.renew

    def renew(self: Any) -> Any:
        for known in self._database.nodes.values():
            known.until_s = self._lease_end()
        return honest(self)

    monkeypatch.setattr(SimulatedTables, "renew", renew)
    first_failure()


def test_a_former_owner_that_still_serves_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Node, "is_held", property(lambda self: True))
    assert "a node gives out nothing of a shard that it lost" in first_failure()


def test_a_commit_in_doubt_that_is_taken_as_done_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = SimulatedShards._commit

    async def commit(self: Any, jobs: list[Any]) -> list[Any]:
        return [
            (0.0, None) if error else (result, error) for result, error in await honest(self, jobs)
        ]

    monkeypatch.setattr(SimulatedShards, "_commit", commit)
    first_failure()


def test_opening_without_raising_the_epoch_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def raise_epoch(self: Any, shard: int, node: str, run: int) -> int:
        self.opened_by[shard] = (node, run)
        self.disks[shard].epoch = max(1, self.disks[shard].epoch)
        return int(self.disks[shard].epoch)

    monkeypatch.setattr(Database, "raise_epoch", raise_epoch)
    first_failure()


def test_an_owner_that_does_not_notice_that_another_had_its_shard_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It slept, another took the shard, worked and gave it back: its state is of the past."""
    honest = SimulatedTables.read

    def read(self: Any, *given: Any) -> Any:
        found = honest(self, *given)
        return found._replace(epochs=dict.fromkeys(found.epochs, 0))

    monkeypatch.setattr(SimulatedTables, "read", read)
    assert "broke a promise" in first_failure(1_360)


def test_a_transfer_that_is_acked_before_it_is_stored_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    honest = Post.push

    async def push(self: Any, transfer: Any) -> None:
        task = asyncio.get_running_loop().create_task(honest(self, transfer))
        await asyncio.wait((task,), timeout=0.001)

    monkeypatch.setattr(Post, "push", push)
    assert "nothing confirmed is lost" in first_failure()


def test_a_transfer_that_is_stored_twice_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The target does not know what it has."""
    honest = Transfers.accept
    numbers = itertools.count()

    async def accept(self: Any, transfer: Any) -> None:
        producer = f"{transfer.producer} {next(numbers)}"
        await honest(self, msgspec.structs.replace(transfer, producer=producer))

    monkeypatch.setattr(Transfers, "accept", accept)
    assert "broke a promise" in first_failure(28)
