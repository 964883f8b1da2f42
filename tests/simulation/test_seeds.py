"""Seeded worlds: the real engine, rules and journal, through faults. `make simulate` runs more."""

from __future__ import annotations

from random import SystemRandom

import pytest

from nexo.simulation.seeds import run_seeds

FIXED = 240
DRAWN = 60
PARTS = 6


@pytest.mark.timeout(300)
@pytest.mark.parametrize("part", range(PARTS))
def test_fixed_seeds_keep_every_promise(part: int) -> None:
    seeds = range(part * FIXED // PARTS, (part + 1) * FIXED // PARTS)
    _check(list(seeds))


@pytest.mark.timeout(300)
def test_drawn_seeds_keep_every_promise() -> None:
    first = SystemRandom().randrange(10**6, 10**9)
    _check(list(range(first, first + DRAWN)))


def _check(seeds: list[int]) -> None:
    ran, failures = 0, []
    for _, failure in run_seeds(seeds, 1.0, 1):
        ran += 1
        if failure is not None:
            failures.append(failure.text)
    assert not failures, "\n\n".join(failures)
    assert ran == len(seeds)
