from __future__ import annotations

import math
from bisect import bisect_left

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nexo.telemetry.meters import LIFE_BOUNDS_S, Histogram


def test_a_value_on_a_bound_belongs_to_it() -> None:
    values = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 2.0, 2.5):
        values.add(value)
    assert values.counts == [2, 2, 1]
    assert values.count == 5
    assert values.sum == 7.5


def test_many_that_are_alike_count_as_many() -> None:
    values = Histogram((1.0, 2.0))
    values.add(1.5, 1_000)
    assert (values.counts, values.sum) == ([0, 1_000, 0], 1_500.0)


@given(st.lists(st.floats(0, 4_000), min_size=1, max_size=200), st.floats(0.01, 1))
def test_a_quantile_is_in_the_right_bucket(numbers: list[float], share: float) -> None:
    values = Histogram(LIFE_BOUNDS_S)
    for number in numbers:
        values.add(number)
    exact = sorted(numbers)[math.ceil(share * len(numbers)) - 1]
    bucket = bisect_left(LIFE_BOUNDS_S, exact)
    bounds = (0.0, *LIFE_BOUNDS_S)
    low, high = bounds[bucket], bounds[min(bucket + 1, len(LIFE_BOUNDS_S))]
    assert low <= values.quantile(share) <= high


def test_merging_adds() -> None:
    one, two = Histogram((1.0,)), Histogram((1.0,))
    one.add(0.5)
    two.add(3.0, 2)
    one.merge(two)
    assert (one.counts, one.sum) == ([1, 2], 6.5)
    with pytest.raises(AssertionError):
        one.merge(Histogram((2.0,)))
