"""Planted bugs: worlds must find them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from nexo.simulation.seeds import run_seed

if TYPE_CHECKING:
    from nexo.simulation.seeds import Failure


def first_failure(seeds: int) -> Failure:
    """What the first of so many worlds says that finds the bug."""
    for seed in range(seeds):
        failure = run_seed(seed)
        if failure is not None:
            return failure
    pytest.fail(f"{seeds} seeds did not find a planted bug")
