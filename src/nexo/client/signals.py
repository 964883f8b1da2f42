"""SIGTERM and Ctrl-C as a request to end, for the loops of `consume`.

A program that handles these signals itself keeps them. Of one that does not, all loops hear of the
first signal; the second does what it would have done without us.
"""

from __future__ import annotations

import functools
import signal
import threading
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Signals:
    """For the length of a `with` block `stop` is called at the first signal, in the main thread and
    whatever that is doing: it may only do what is safe there."""

    _loops: ClassVar[dict[Signals, Callable[[], None]]] = {}
    _former: ClassVar[dict[int, Any]] = {}

    def __init__(self, stop: Callable[[], None], wanted: bool = True) -> None:
        self._stop = stop
        self._wanted = wanted and threading.current_thread() is threading.main_thread()

    def __enter__(self) -> None:
        if self._wanted:
            if not self._loops:
                _take(self._former)
            self._loops[self] = self._stop

    def __exit__(self, *failure: object) -> None:
        if self._loops.pop(self, None) is not None and not self._loops:
            _restore()


def _take(former: dict[int, Any]) -> None:
    for number in SIGNALS:
        if _is_default(signal.getsignal(number)):
            former[number] = signal.signal(number, _heard)


def _restore() -> None:
    former = Signals._former
    for number in list(former):
        signal.signal(number, former.pop(number))


def _heard(number: int, frame: FrameType | None) -> None:
    _restore()
    for stop in list(Signals._loops.values()):
        stop()


def _is_default(handler: Any) -> bool:
    """Whether nobody has asked for a signal. asyncio's own handler cancels the main task."""
    if isinstance(handler, functools.partial):
        handler = handler.func
    name = getattr(handler, "__qualname__", "")
    return handler in (signal.SIG_DFL, signal.default_int_handler) or name == "Runner._on_sigint"
