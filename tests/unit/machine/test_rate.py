"""The receive rate: a burst of 100 ms at once, then one message after the other."""

import pytest

from nexo.machine.rate import Rate
from tests.unit.machine.orders import bodies, orders, put, take


def test_burst_of_100_ms_goes_at_once() -> None:
    rate = Rate()
    assert rate.allowed(1_000.0, 0) == 100
    rate.spend(100)
    assert rate.allowed(1_000.0, 0) == 0
    assert rate.allowed(1_000.0, 7) == 7


def test_burst_does_not_grow_with_idleness() -> None:
    rate = Rate()
    rate.allowed(1_000.0, 0)
    assert rate.allowed(1_000.0, 3_600_000) == 100


def test_slow_rate_lets_one_through() -> None:
    rate = Rate()
    assert rate.allowed(0.5, 0) == 1
    rate.spend(1)
    assert rate.allowed(0.5, 1_999) == 0
    assert rate.allowed(0.5, 2_000) == 1


@pytest.mark.parametrize("per_second", [0.5, 3.0, 7.7, 1_000.0])
def test_next_time_is_when_one_is_allowed_and_not_before(per_second: float) -> None:
    rate = Rate()
    rate.spend(rate.allowed(per_second, 0))
    at_ms = rate.next_ms(per_second, 0)
    assert rate.allowed(per_second, at_ms - 1) == 0
    assert rate.allowed(per_second, at_ms) >= 1


def test_queue_holds_back_what_is_above_its_rate() -> None:
    queue = orders(max_receive_rate=20.0)
    put(queue, *[b"x"] * 10)
    assert len(bodies(queue, take(queue))) == 2
    assert bodies(queue, take(queue)) == []
    assert len(bodies(queue, take(queue, now_ms=1_050))) == 1


def test_peak_is_shaved_to_the_rate() -> None:
    """Over ten seconds exactly the rate goes out, and the burst once."""
    queue = orders(max_receive_rate=50.0, visibility_timeout_ms=1_000_000)
    put(queue, *[b"x"] * 2_000)
    out = sum(len(bodies(queue, take(queue, 100, now_ms=1_000 + ms))) for ms in range(0, 10_000, 7))
    assert 500 <= out <= 505
