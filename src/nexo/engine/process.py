"""The process that a broker runs in: its event loop, garbage collector and allocator."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import sys
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine

Result = TypeVar("Result")

_M_MMAP_THRESHOLD = -3
_MMAP_THRESHOLD_BYTES = 512 * 1024  # above what one read from a socket brings


def tune_process() -> None:
    """Collect garbage in larger steps, and keep the memory of buffers that come and go.

    What the rules keep is acyclic, so frequent collections find nothing and only look at the
    backlog again. A buffer above glibc's threshold is mapped anew each time, and the system
    clears its pages: at batches of 100 KB that was nearly half of the time of the broker."""
    gc.set_threshold(50_000, 20, 100)
    with contextlib.suppress(OSError, AttributeError):  # not glibc: it has habits of its own
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _MMAP_THRESHOLD_BYTES)


def give_memory_back() -> None:
    """Return what was freed inside the heap to the system, as after a backlog was drained. It
    takes about 10 ms for 100 MB: once in a while, not for every message."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def run(main: Coroutine[None, None, Result]) -> Result:
    """`asyncio.run` on the event loop that the broker uses."""
    if sys.platform == "win32":  # uvloop does not exist there
        return asyncio.run(main)
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)
