"""The process that a broker runs in: its event loop, garbage collector and allocator."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import sys
from typing import TYPE_CHECKING, TypeVar

from nexo.vocabulary.limits import COLLECTED_OBJECTS_MAX, MMAP_THRESHOLD_BYTES

if TYPE_CHECKING:
    from collections.abc import Coroutine

Result = TypeVar("Result")

_M_MMAP_THRESHOLD = -3

# A collection of the youngest is due after so many objects, of the next after more than three of
# those, and of the oldest after more than one of these: some 9,000 objects have come since.
_THRESHOLDS = (1_000, 3, 1)
_OLDEST = 2  # the generation


def tune_process() -> None:
    """Keep the memory of buffers that come and go, and collect no garbage until `Collector` does:
    a start makes little of it.

    A buffer above glibc's threshold is mapped anew each time, and the system clears its pages: at
    batches of 100 KB that was nearly half of the time of the broker."""
    gc.disable()
    with contextlib.suppress(OSError, AttributeError):  # not glibc: it has habits of its own
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, MMAP_THRESHOLD_BYTES)


class Collector:
    """Keeps collections of garbage short: none looks at everything, not even when nobody waits.

    A full one takes 20 ms for what a start has loaded alone, and 2 s with tens of thousands of
    queues. What the rules keep has no cycles, and what is deleted is free without a search; cycles
    come from exceptions and tasks, and are nearly always young when they end. So what a start has
    made is put aside for ever, and what has lived through three collections is too, once it is
    more than one collection should look at. Until then cycles are found however old they are."""

    def begin(self) -> None:
        """Put aside what a start has made, and collect from now on."""
        gc.freeze()
        gc.callbacks.append(self._collecting)
        gc.set_threshold(*_THRESHOLDS)
        gc.enable()

    def end(self) -> None:
        if self._collecting in gc.callbacks:
            gc.callbacks.remove(self._collecting)

    def _collecting(self, phase: str, info: dict[str, int]) -> None:
        if phase == "stop" and info["generation"] == _OLDEST:
            survived = len(gc.get_objects(generation=_OLDEST))
            if survived > COLLECTED_OBJECTS_MAX:
                gc.freeze()


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
