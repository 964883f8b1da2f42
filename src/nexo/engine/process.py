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
# those, and of the oldest after more than one of these: it looks at some 25,000 objects.
_THRESHOLDS = (2_000, 3, 1)
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
    """Keeps collections of garbage short.

    A full one looks at every object: 0.2 to 0.7 s with 100,000 queues. What the rules keep has no
    cycles, so it would find nothing there; cycles come from exceptions and tasks, and are nearly
    always young when they end. So what has lived through three collections is put aside. All of it
    is looked at while it is little, and else when the broker is idle, once it has doubled: a cycle
    that grew old before it ended waits until then."""

    def __init__(self) -> None:
        self._known = 0  # objects there were when everything was looked at …
        self._aside = 0  # … and those that were put aside since, of which some are gone
        self._is_whole = False  # the next collection looks at everything

    def begin(self) -> None:
        """Put aside what a start has made, and collect from now on."""
        gc.freeze()
        self._known = gc.get_freeze_count()
        gc.collect()
        gc.callbacks.append(self._collecting)
        gc.set_threshold(*_THRESHOLDS)
        gc.enable()

    def end(self) -> None:
        if self._collecting in gc.callbacks:
            gc.callbacks.remove(self._collecting)

    def idle(self) -> None:
        """Nobody waits for the broker: look at everything, if there may be something in it."""
        if self._aside > max(self._known, COLLECTED_OBJECTS_MAX):
            self._is_whole = True
            gc.collect()
            # The next one is due when a quarter of what this one found has come. So there is one
            # more, which finds nothing.
            gc.collect()

    def _collecting(self, phase: str, info: dict[str, int]) -> None:
        if info["generation"] != _OLDEST:
            return
        if phase == "start":
            if self._aside and self._known + self._aside < COLLECTED_OBJECTS_MAX:
                self._is_whole = True
            if self._is_whole:
                gc.unfreeze()
            return
        survived = len(gc.get_objects(generation=_OLDEST))
        if self._is_whole:
            self._known, self._aside, self._is_whole = survived, 0, False
        else:
            self._aside += survived
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
