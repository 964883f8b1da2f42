"""Backoff grows up to its limit; its jitter shortens a wait, the same way in every replay."""

import pytest

from nexo.machine.deadlines import next_ms, run_due
from nexo.machine.fail import backoff_ms, nack
from nexo.vocabulary.settings import Backoff
from tests.unit.machine.orders import bodies, orders, put, take


def test_wait_grows_by_the_factor_up_to_the_limit() -> None:
    backoff = Backoff(initial_ms=100, factor=3.0, max_ms=2_000)
    assert [backoff_ms(backoff, attempts, 0) for attempts in range(1, 6)] == [
        100,
        300,
        900,
        2_000,
        2_000,
    ]


def test_million_attempts_do_not_overflow() -> None:
    assert backoff_ms(Backoff(factor=1_000.0, max_ms=5_000), 1_000_000, 0) == 5_000


def test_without_backoff_there_is_no_wait() -> None:
    assert backoff_ms(None, 3, 0) == 0


@pytest.mark.parametrize("jitter", [0.2, 1.0])
def test_jitter_spreads_the_waits_within_its_bounds(jitter: float) -> None:
    backoff = Backoff(initial_ms=10_000, jitter=jitter)
    waits = [backoff_ms(backoff, 1, seq) for seq in range(1_000)]
    assert 10_000 * (1 - jitter) <= min(waits)
    assert max(waits) <= 10_000
    spread = max(waits) - min(waits)
    assert spread > 0.9 * 10_000 * jitter, f"waits are spread over {spread} ms only"
    assert waits == [backoff_ms(backoff, 1, seq) for seq in range(1_000)]


def test_nacked_message_waits_out_its_backoff() -> None:
    queue = orders(backoff=Backoff(initial_ms=200))
    put(queue, b"one", b"two")
    nack(queue, take(queue, 1).lease, 0, 1, 1_000)
    assert (queue.scheduled_count, next_ms(queue)) == (1, 1_200)
    run_due(queue, 1_200)
    assert bodies(queue, take(queue, now_ms=1_200)) == [b"one", b"two"]


@pytest.mark.parametrize(("delay_ms", "scheduled"), [(0, 0), (50, 1)])
def test_delay_of_a_nack_goes_before_the_backoff(delay_ms: int, scheduled: int) -> None:
    queue = orders(backoff=Backoff(initial_ms=200))
    put(queue, b"one")
    nack(queue, take(queue).lease, 0, 1, 1_000, delay_ms=delay_ms)
    assert queue.scheduled_count == scheduled
    run_due(queue, 1_050)
    assert queue.ready == 1
