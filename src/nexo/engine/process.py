"""The process that a broker runs in: its event loop, garbage collector and allocator."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import sys
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine

Result = TypeVar("Result")

_M_MMAP_THRESHOLD = -3
_MMAP_THRESHOLD_BYTES = 64 * 1024


def tune_process() -> None:
    """Collect garbage in larger steps, and give large buffers back to the system when freed.

    What the rules keep is acyclic, so frequent collections find nothing and only look at the
    backlog again. Payload buffers above the threshold are mapped one by one: freeing them makes
    the process smaller, where glibc's arenas would keep the memory of a drained backlog."""
    gc.set_threshold(50_000, 20, 100)
    try:
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _MMAP_THRESHOLD_BYTES)
    except (OSError, AttributeError):
        return  # not glibc: only a drained backlog's memory is at stake


def run(main: Coroutine[None, None, Result]) -> Result:
    """`asyncio.run` on the event loop that the broker uses."""
    if sys.platform == "win32":  # uvloop does not exist there
        return asyncio.run(main)
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)
