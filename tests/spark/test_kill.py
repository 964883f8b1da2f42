"""`kill -9` at every step of a streaming query: each message is in the sink exactly once.

A run of the tests draws one step; the seed is printed, and taken from NEXO_KILL_SEED if that is
set. The soak goes through all of them several times, and through schedules drawn at random.
"""

from __future__ import annotations

import os
from random import Random, SystemRandom
from typing import TYPE_CHECKING

import pytest

from tests.spark.stage import Stage
from tests.spark.striking import Point, Strike

if TYPE_CHECKING:
    from pathlib import Path

MESSAGES = 120
BATCHES = 2  # full ones; the last is smaller
ROUNDS = 5
TEXTS = [f"m{number}" for number in range(MESSAGES)]


def drawn() -> Random:
    seed = int(os.environ.get("NEXO_KILL_SEED") or SystemRandom().randrange(2**32))
    print(f"seed {seed}: repeat with NEXO_KILL_SEED={seed}")  # noqa: T201
    return Random(seed)


# The broker hears neither of the sink's commit nor of the commits log, but of the ack after both.
BROKER_POINTS = [point for point in Point if point is not Point.WRITTEN]


@pytest.mark.timeout(600)
def test_everything_is_killed_somewhere(tmp_path: Path) -> None:
    """A driver at one step; then, in its second life, the broker at another and a worker of an
    executor while it reads."""
    random = drawn()
    driver, batch = random.choice(list(Point)), random.randint(1, BATCHES)
    broker, later = random.choice(BROKER_POINTS), BATCHES
    print(f"driver: {driver} of batch {batch}, broker: {broker} of batch {later}")  # noqa: T201
    with Stage(tmp_path) as stage:
        stage.push(TEXTS)
        stage.kill_driver(driver, batch)
        stage.kill_broker(broker, later, Strike(Point.READING, BATCHES, worker=True))
        stage.check(TEXTS)


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("round_", range(ROUNDS))
@pytest.mark.parametrize("point", list(Point))
def test_a_driver_killed_at(tmp_path: Path, point: Point, round_: int) -> None:
    with Stage(tmp_path) as stage:
        stage.push(TEXTS)
        stage.kill_driver(point, 1 + round_ % BATCHES)
        assert stage.run() == 0, stage.log()
        stage.check(TEXTS)


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("round_", range(ROUNDS))
@pytest.mark.parametrize("point", BROKER_POINTS)
def test_a_broker_killed_at(tmp_path: Path, point: Point, round_: int) -> None:
    with Stage(tmp_path) as stage:
        stage.push(TEXTS)
        stage.kill_broker(point, 1 + round_ % BATCHES)
        stage.check(TEXTS)


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(10))
def test_any_schedule_of_kills(tmp_path: Path, seed: int) -> None:
    """Drivers and brokers, killed again and again, while more messages come."""
    random, pushed = Random(seed), list(TEXTS)
    with Stage(tmp_path) as stage:
        stage.push(pushed)
        for life in range(5):
            if random.random() < 0.4:
                stage.kill_broker(random.choice(BROKER_POINTS), 0)
            else:
                stage.kill_driver(random.choice(list(Point)), 0)
            more = [f"life{life}-{number}" for number in range(random.randint(60, 120))]
            stage.push(more)
            pushed += more
        assert stage.run() == 0, stage.log()
        stage.check(pushed)
