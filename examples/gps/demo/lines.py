"""The figures as lines, where there is no terminal: one every few seconds, and what happens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from examples.gps import names

if TYPE_CHECKING:
    from rich.console import Console

    from examples.gps.demo.happenings import Happenings
    from examples.gps.demo.look import Course

EVERY_S = 3.0


class Lines:
    def __init__(self, console: Console, happenings: Happenings) -> None:
        self._console = console
        self._happenings = happenings
        self._told = 0
        self._due_s = 0.0

    def tell(self, course: Course) -> None:
        for each in self._happenings.all[self._told :]:
            self._print(f"{each.at_s:6.1f} s  {each.what}")
        self._told = len(self._happenings.all)
        look = course.last
        if look.totals and look.at_s >= self._due_s:
            self._due_s = look.at_s + EVERY_S
            self._print(
                f"{look.at_s:6.1f} s  confirmed {look.confirmed:7,} ({course.total_rate():4.0f}/s)"
                f"  waiting {look.line(names.POSITIONS).depth:6,}"
                f"  lake {look.rows_kept:7,}  batches {look.batches:4,}"
                f"  alerts {look.handled_total:4,} handled, {look.line(names.ALERTS).depth:3,}"
                f" waiting, {look.line(names.DEAD_ALERTS).depth:3,} dead"
            )

    def _print(self, line: str) -> None:
        self._console.print(line, highlight=False, soft_wrap=True)
