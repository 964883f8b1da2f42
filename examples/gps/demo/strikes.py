"""What is killed with -9 on the way, and when."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from examples.gps.demo.happenings import Happenings
    from examples.gps.demo.look import Look
    from examples.gps.demo.process import Process
    from examples.gps.demo.stage import Stage

CYCLE_S = 90.0  # without an end, they are repeated so often
LATEST = 0.92  # of the cycle: then it happens even if it cannot be seen well


class Strike(NamedTuple):
    """Kills a process at a share of the cycle, or later, once there is something to lose."""

    process: Process
    share: float
    is_worth_it: Callable[[Look], bool]
    must_be_worth_it: bool = False


class Strikes:
    def __init__(self, stage: Stage, happenings: Happenings, seconds: float, chaos: bool) -> None:
        self._happenings = happenings
        self._cycle_s = seconds or CYCLE_S
        self._repeats = not seconds
        self._plan = plan(stage, chaos)
        self._cycle = 0
        self._left = list(self._plan)
        self.count = 0

    @property
    def is_over(self) -> bool:
        return not self._left

    def strike(self, at_s: float, look: Look) -> None:
        """Whatever is due now; one at a time, so that each can be seen."""
        if self._repeats and at_s >= (self._cycle + 1) * self._cycle_s:
            self._cycle += 1
            self._left = list(self._plan)
        share = at_s / self._cycle_s - self._cycle
        for each in self._left:
            is_late = share >= LATEST and not each.must_be_worth_it
            if is_late or (share >= each.share and each.is_worth_it(look)):
                self._kill(each)
                return

    def cancel(self) -> None:
        self._left = []

    def _kill(self, strike: Strike) -> None:
        self._left.remove(strike)
        if strike.process.is_running:
            strike.process.kill()
            self.count += 1
            self._happenings.tell(f"{strike.process.title} was killed with -9", is_bad=True)


def plan(stage: Stage, chaos: bool) -> list[Strike]:
    """A worker always; the broker and the driver of Spark if asked for. The driver is waited for:
    killed before its first batches it would have nothing to lose, and only begin again."""
    strikes = [Strike(stage.workers[0], 0.55, lambda look: look.handled_total > 3)]
    if chaos:
        strikes += [
            Strike(stage.broker, 0.35, lambda look: look.batches > 1),
            Strike(stage.spark, 0.5, lambda look: look.is_up and look.has_windows, True),
        ]
    return strikes
