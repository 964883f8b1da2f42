"""Worlds of size: a step costs what it does for somebody, however much lies there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from nexo.simulation.large.chunks import Claims, Filtered
from nexo.simulation.large.leases import Lease
from nexo.simulation.large.world import SHAPES
from nexo.simulation.seeds import run_large

if TYPE_CHECKING:
    from nexo.simulation.large.shape import Shape

pytestmark = pytest.mark.timeout(180)  # every line is counted, which takes long
SOAKED_ROUNDS = 3  # of all shapes, each with other draws
SOAKED_SCALE = 2.0


@pytest.mark.parametrize("seed", range(len(SHAPES)), ids=[each.__name__ for each in SHAPES])
def test_every_shape_keeps_its_bounds(seed: int) -> None:
    failure = run_large(seed)
    assert failure is None, failure.text


@pytest.mark.parametrize("shape", [Claims, Filtered, Lease])
def test_three_times_as_large_they_keep_the_same_bounds(shape: type[Shape]) -> None:
    """Of those whose cost once grew more than they did."""
    failure = run_large(SHAPES.index(shape), 3.0)
    assert failure is None, failure.text


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(len(SHAPES), (1 + SOAKED_ROUNDS) * len(SHAPES)))
def test_larger_ones_keep_the_same_bounds(seed: int) -> None:
    failure = run_large(seed, SOAKED_SCALE)
    assert failure is None, failure.text
