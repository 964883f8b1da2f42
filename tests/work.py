"""Work counted instead of timed: a test that counts says the same on every machine."""

from __future__ import annotations

import gc
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType


def steps_of(work: Callable[[], object]) -> int:
    """How many instructions of the interpreter a call takes, all that it calls included. What a
    built-in does inside (copying or sorting a list) is one."""
    steps = 0

    def traced(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal steps
        frame.f_trace_opcodes = True
        if event == "opcode":
            steps += 1
        return traced

    before, is_collecting = sys.gettrace(), gc.isenabled()
    gc.disable()  # else a search that happens to fall into it counts what other tests have left
    sys.settrace(traced)
    try:
        work()
    finally:
        sys.settrace(before)
        if is_collecting:
            gc.enable()
    return steps
