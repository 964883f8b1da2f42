"""Seeded worlds: some that are always the same, and some that nobody has seen before."""

from __future__ import annotations

import pytest

from nexo.simulation.seeds import run_seed

SEEDS_A_CASE = 25
FIXED_CASES = 12
DRAWN_CASES = 2


def assert_kept(first: int) -> None:
    for seed in range(first, first + SEEDS_A_CASE):
        failure = run_seed(seed)
        assert failure is None, failure.text


@pytest.mark.parametrize("first", range(0, FIXED_CASES * SEEDS_A_CASE, SEEDS_A_CASE))
def test_fixed_seeds_keep_every_promise(first: int) -> None:
    assert_kept(first)


@pytest.mark.soak
@pytest.mark.parametrize("case", range(DRAWN_CASES))
def test_drawn_seeds_keep_every_promise(case: int, pytestconfig: pytest.Config) -> None:
    """They follow from the seed that the header of the run names; a failure names its own."""
    drawn = int(pytestconfig.option.hypothesis_seed)
    first = 1_000_000 + (drawn * DRAWN_CASES + case) * SEEDS_A_CASE
    assert_kept(first)
