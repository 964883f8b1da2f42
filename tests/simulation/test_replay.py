"""A seed tells the same story each time, and the checkers can fail."""

from __future__ import annotations

import asyncio
import hashlib
import os
import subprocess
import sys
from typing import Any

import pytest

from nexo.engine.committer import Committer
from nexo.engine.engine import Engine
from nexo.engine.recorder import Recorder
from nexo.engine.rows import SharedRows
from nexo.machine.snapshot import QueueSnapshot
from nexo.simulation.world import World
from tests.simulation.planted import first_failure

SEEDS_TO_FIND_IT = 150

DIGEST = """
import hashlib
from nexo.simulation.world import World
digest = hashlib.sha256()
for seed in range(4):
    world = World(seed)
    world.run()
    digest.update("\\n".join(world.history.text()).encode())
print(digest.hexdigest())
"""


def history_of(seed: int) -> list[str]:
    world = World(seed)
    world.run()
    return world.history.text()


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
def test_a_seed_has_the_same_history_twice(seed: int) -> None:
    one, other = history_of(seed), history_of(seed)
    assert len(one) > 20, "nothing happens in this world"
    assert one == other


def test_a_seed_has_the_same_history_in_another_process() -> None:
    found = [
        subprocess.run(
            [sys.executable, "-c", DIGEST],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
        ).stdout.strip()
        for hash_seed in ("1", "2")
    ]
    digest = hashlib.sha256()
    for seed in range(4):
        digest.update("\n".join(history_of(seed)).encode())
    assert found == [digest.hexdigest()] * 2


def test_answering_before_the_commit_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Committer.when_durable

    def hasty(self: Committer, result: Any, actor: Any = None) -> Any:
        future = honest(self, result, actor)

        def answer() -> None:
            if not future.done():
                future.set_result(result)

        asyncio.get_running_loop().call_soon(answer)  # whoever waits for more must get a turn
        return future

    monkeypatch.setattr(Committer, "when_durable", hasty)
    assert "broke a promise" in first_failure(SEEDS_TO_FIND_IT).text


def test_a_record_that_misses_a_change_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Recorder.write

    def careless(self: Recorder, draft: Any, changes: list[Any], snapshot: Any) -> bool:
        return honest(self, draft, changes[:-1] if len(changes) > 3 else changes, snapshot)

    monkeypatch.setattr(Recorder, "write", careless)
    assert "broke a promise" in first_failure(SEEDS_TO_FIND_IT).text


def test_a_snapshot_without_leases_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(QueueSnapshot, "_leased", lambda self, chunk, low, end, most: ([], 0, end))
    assert "broke a promise" in first_failure(SEEDS_TO_FIND_IT).text


def test_a_shared_row_that_goes_too_early_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SharedRows, "release", lambda self, row: True)
    assert "row" in first_failure(SEEDS_TO_FIND_IT).text


def test_going_on_after_a_failed_commit_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The state in memory is ahead of the journal then, and must be given up."""
    honest = Engine.load_all

    def stubborn(self: Engine) -> None:
        if self.committer.commits:
            self.committer.resume()
        else:
            honest(self)

    monkeypatch.setattr(Engine, "load_all", stubborn)
    found = first_failure(SEEDS_TO_FIND_IT).text
    assert "broke a promise" in found or "DataCorrupt" in found


def test_a_failure_says_how_to_see_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SharedRows, "release", lambda self, row: True)
    failure = first_failure(SEEDS_TO_FIND_IT)
    assert f"python -m nexo.simulation --seed {failure.seed}" in failure.text
    assert "the last lines of its history" in failure.text
