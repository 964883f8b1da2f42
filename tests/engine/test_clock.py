"""Two clocks: queues live by one that never goes back or jumps, access by that of the world."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from nexo.access.guard import Failures
from nexo.engine.clock import SystemClock
from nexo.server.service import tell_clock
from nexo.vocabulary.limits import ACCESS_FAILURES_MAX, ACCESS_FAILURES_MS, CLOCK_STEP_MS

if TYPE_CHECKING:
    import pytest

DAY_S = 86_400.0


class Sources:
    """The two clocks of a machine, in seconds."""

    def __init__(self) -> None:
        self.wall_s = 1_700_000_000.0
        self.monotonic_s = 5_000.0
        self.clock = SystemClock(lambda: self.wall_s, lambda: self.monotonic_s)

    def pass_time(self, seconds: float) -> None:
        self.wall_s += seconds
        self.monotonic_s += seconds


def test_a_step_of_the_wall_clock_moves_no_deadline() -> None:
    for step_s in (DAY_S, -DAY_S):
        machine = Sources()
        before_ms = machine.clock.now_ms()
        machine.wall_s += step_s
        assert machine.clock.now_ms() == before_ms
        machine.pass_time(30)
        assert machine.clock.now_ms() == before_ms + 30_000
        assert machine.clock.wall_ms() == int(machine.wall_s * 1000)


def test_behind_the_journal_time_goes_on_at_its_usual_speed() -> None:
    machine = Sources()
    ahead_ms = int((machine.wall_s + DAY_S) * 1000)
    machine.clock.not_before(ahead_ms)
    assert machine.clock.now_ms() == ahead_ms
    for _ in range(3):
        machine.pass_time(10)
    assert machine.clock.now_ms() == ahead_ms + 30_000
    machine.clock.not_before(ahead_ms)  # as after each reload: what has passed is no step
    assert machine.clock.now_ms() == ahead_ms + 30_000
    assert machine.clock.wall_ms() == int(machine.wall_s * 1000)


def test_failures_are_forgotten_though_the_clock_was_set_back() -> None:
    now_ms = [10 * ACCESS_FAILURES_MS]
    failures = Failures(lambda: now_ms[0])
    for _ in range(ACCESS_FAILURES_MAX):
        failures.count("here")
    now_ms[0] = ACCESS_FAILURES_MS
    assert failures.count("here") == 1


def test_a_step_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "nexo.server")
    told_ms = 0
    for ahead_ms in (0, 3, -400, CLOCK_STEP_MS - 1):
        told_ms = tell_clock(ahead_ms, told_ms)
    assert not caplog.records
    for ahead_ms in (86_400_000, 86_400_007, 86_399_000):
        told_ms = tell_clock(ahead_ms, told_ms)
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert "ahead of the system clock" in record.getMessage()
    assert vars(record)["by_s"] == 86_400
    caplog.clear()
    told_ms = tell_clock(-3_600_000, told_ms)
    assert "behind the system clock" in caplog.text
    caplog.clear()
    told_ms = tell_clock(12, told_ms)
    assert "agrees" in caplog.text
    assert told_ms == 0
