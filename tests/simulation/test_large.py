"""Worlds of size: a step costs what it does for somebody, however much lies there."""

from __future__ import annotations

import pytest

from nexo.simulation.large.world import SHAPES
from nexo.simulation.seeds import run_large

SOAKED_ROUNDS = 3  # of all shapes, each with other draws
SOAKED_SCALE = 2.0


@pytest.mark.parametrize("seed", range(len(SHAPES)), ids=[each.__name__ for each in SHAPES])
def test_every_shape_keeps_its_bounds(seed: int) -> None:
    failure = run_large(seed)
    assert failure is None, failure.text


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(len(SHAPES), (1 + SOAKED_ROUNDS) * len(SHAPES)))
def test_larger_ones_keep_the_same_bounds(seed: int) -> None:
    failure = run_large(seed, SOAKED_SCALE)
    assert failure is None, failure.text
