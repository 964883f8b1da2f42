"""A seed repeats exactly, and the checkers are able to fail."""

from __future__ import annotations

import asyncio
import hashlib
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from nexo.engine.committer import Committer
from nexo.engine.recorder import Recorder
from nexo.machine import settle
from nexo.simulation.history import Violation
from nexo.simulation.world import World
from nexo.vocabulary.errors import DataCorrupt

if TYPE_CHECKING:
    from nexo.machine.queue import Queue

# A world that fails is left as it is, with coroutines under way.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
SEEDS_TO_FAIL = 60  # a planted bug must be caught within this many

TELL = """
import hashlib, sys
from nexo.simulation.world import World
world = World(int(sys.argv[1]))
world.run()
print(hashlib.sha256("\\n".join(world.history.text()).encode()).hexdigest())
"""


@pytest.mark.parametrize("seed", [3, 11])
def test_a_seed_has_one_history(seed: int) -> None:
    """Also in another process, where sets and dicts of strings are ordered otherwise."""
    world = World(seed)
    world.run()
    here = hashlib.sha256("\n".join(world.history.text()).encode()).hexdigest()
    for hash_seed in ("1", "2"):
        told = subprocess.run(
            [sys.executable, "-c", TELL, str(seed)],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        assert told.stdout.strip() == here, f"seed {seed} differs in another process"


def test_an_answer_before_the_commit_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer_at_once(self: Committer, result: object) -> asyncio.Future[object]:
        future = asyncio.get_running_loop().create_future()
        future.set_result(result)
        return future

    monkeypatch.setattr(Committer, "when_durable", answer_at_once)
    _some_seed_fails()


def test_a_lost_record_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    write, calls = Recorder.write, [0]

    def sometimes_forget(self: Recorder, draft, changes, snapshot) -> bool:  # type: ignore[no-untyped-def]
        calls[0] += 1
        return write(self, draft, changes[:-1] if calls[0] % 7 == 0 else changes, snapshot)

    monkeypatch.setattr(Recorder, "write", sometimes_forget)
    _some_seed_fails()


def test_a_delivery_before_the_commit_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    collect = settle.collect

    def settle_at_once(queue: Queue) -> settle.Collected:
        collected = collect(queue)
        settle.settle(queue, collected.mark)
        return collected

    monkeypatch.setattr(settle, "collect", settle_at_once)
    _some_seed_fails()


def _some_seed_fails() -> None:
    for seed in range(SEEDS_TO_FAIL):
        world = World(seed)
        try:
            world.run()
        except (Violation, DataCorrupt, AssertionError, KeyError):
            return
    pytest.fail(f"{SEEDS_TO_FAIL} seeds did not notice")
