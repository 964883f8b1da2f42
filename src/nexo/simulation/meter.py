"""The meter: how much work one step of the event loop is.

Work is counted in lines of the rules and the engine that ran, because that is the same on every
machine and each time. What a step may cost follows from what it did for somebody: the messages it
moved, the changes it wrote and the rows it read. It never follows from what lies in the queue, from
what happened before, or from how large a lease is.

Counting makes everything several times slower, so only the worlds that are about size do it.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nexo
from nexo.simulation.history import Violation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import CodeType, FrameType

# A commit of one message with its events and timers takes about 500 lines.
STEP_LINES_MAX = 1_500  # of a step that does nothing for anybody
UNIT_LINES_MAX = 140  # more for each unit of what it does; a message that is moved is two
STEP_UNITS_MAX = 2 * 10_000  # a pop's limit: a step that does more is too long, whatever it does
TIMER_UNITS_MAX = 2 * 1_500  # of what time brings: nobody asked for it in one piece

_ROOMS = ("machine", "engine", "vocabulary", "telemetry")
_SHOWN = 4
_TIMER = "Timer._fired"
# Work that is done now and then, and the less often the larger it is: copying forward, sweeping out
# what is outdated, counting what was told, making room in memory. All of it together is bounded at
# the end of a world.
_FILES = ("/compact.py", "/meters.py", "/histogram.py")
_NOW_AND_THEN = {"watch", "sweep", "_copy_forward", "_make_room", "_sweep", "evictable"}
NOW_AND_THEN_SHARE_MAX = 0.5  # of all work


class _Kind(enum.Enum):
    FOREIGN = "not the broker's"
    COUNTED = "counted"
    NOW_AND_THEN = "done now and then"


class Meter:
    """`handled` tells how much was done for somebody so far; only its growth counts."""

    def __init__(self) -> None:
        root = Path(nexo.__file__).parent
        self._prefixes = tuple(f"{root / room}/" for room in _ROOMS)
        self._lines: Counter[CodeType] = Counter()
        self._aside: Counter[CodeType] = Counter()
        self._kinds: dict[CodeType, _Kind] = {}
        self.handled: Callable[[], int] = int
        self.total = 0
        self.now_and_then = 0
        self.steps = 0
        self.dearest = (0.0, "")  # the step that came nearest to its bound: its share, and its name

    # -- Counting -----------------------------------------------------------------------------

    @contextlib.contextmanager
    def counting(self) -> Iterator[None]:
        lines, aside = self._lines, self._aside
        kinds, kind_of = self._kinds, self._kind_of
        depth = 0  # of calls that are done now and then: what they call belongs to them

        def line(frame: FrameType, event: str, _: object) -> Any:
            if depth:
                aside[frame.f_code] += 1
            else:
                lines[frame.f_code] += 1
            return line

        def line_aside(frame: FrameType, event: str, _: object) -> Any:
            nonlocal depth
            aside[frame.f_code] += 1
            if event == "return":
                depth -= 1
            return line_aside

        def call(frame: FrameType, event: str, _: object) -> Any:
            nonlocal depth
            code = frame.f_code
            kind = kinds.get(code)
            if kind is None:
                kind = kinds[code] = kind_of(code)
            if kind is _Kind.FOREIGN:
                return None
            if kind is _Kind.NOW_AND_THEN:
                depth += 1
                return line_aside(frame, event, None)
            return line(frame, event, None)

        before = sys.gettrace()
        sys.settrace(call)
        try:
            yield
        finally:
            sys.settrace(before)

    def taken(self) -> int:
        """All work since the last time this was asked, or since the step began."""
        lines = sum(self._lines.values()) + sum(self._aside.values())
        self.total += lines
        self._lines.clear()
        self._aside.clear()
        return lines

    # -- Judging ------------------------------------------------------------------------------

    def count(self, handle: asyncio.Handle) -> None:
        """Run one step that is part of something longer; `taken` tells what all of it took."""
        with self.counting():
            handle._run()

    def run(self, handle: asyncio.Handle) -> None:
        """Run one step, and hold it to its bound."""
        self._lines.clear()
        self._aside.clear()
        before, name = self.handled(), name_of(handle)
        with self.counting():
            handle._run()
        self.steps += 1
        moved = max(0, self.handled() - before)  # a state that is loaded anew counts anew
        lines = self._split()
        most = TIMER_UNITS_MAX if name == _TIMER else STEP_UNITS_MAX
        allowed = STEP_LINES_MAX + UNIT_LINES_MAX * min(moved, most)
        if lines / allowed > self.dearest[0]:
            self.dearest = (lines / allowed, f"{name}: {lines} lines for {moved}")
        if lines > allowed:
            dearest = ", ".join(
                f"{code.co_qualname} {count}" for code, count in self._lines.most_common(_SHOWN)
            )
            raise Violation(
                "a step costs what it moves, not what lies there",
                f"{name} took {lines} lines to do {moved} (allowed are {allowed}): {dearest}",
            )

    def check(self) -> None:
        """At the end of a world."""
        if self.now_and_then > NOW_AND_THEN_SHARE_MAX * (self.total + STEP_LINES_MAX):
            raise Violation(
                "snapshots are a fixed share of the work",
                f"{self.now_and_then} of {self.total} lines took and swept states",
            )

    def _split(self) -> int:
        """The lines of this step, without those of what is done now and then."""
        lines, aside = sum(self._lines.values()), sum(self._aside.values())
        self._aside.clear()
        self.now_and_then += aside
        self.total += lines + aside
        return lines

    def _kind_of(self, code: CodeType) -> _Kind:
        if not code.co_filename.startswith(self._prefixes):
            return _Kind.FOREIGN
        is_rare = code.co_name in _NOW_AND_THEN or code.co_filename.endswith(_FILES)
        return _Kind.NOW_AND_THEN if is_rare else _Kind.COUNTED


def name_of(handle: asyncio.Handle) -> str:
    """What a step is called: the coroutine that goes on, or the function that is called."""
    callback: Any = handle._callback  # type: ignore[attr-defined]
    owner = getattr(callback, "__self__", None)
    coroutine = owner.get_coro() if isinstance(owner, asyncio.Task) else None
    return getattr(coroutine or callback, "__qualname__", None) or repr(callback)
