"""An event loop whose time jumps to the next timer instead of waiting for it.

Hours pass in milliseconds, a timer fires at its exact time, and the order of everything is the same
in every run.
"""

from __future__ import annotations

import asyncio
import math
import selectors
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping

START_MS = 1_700_000_000_000  # some wall time; tests speak of times as distances from it
LIMIT_S = 30 * 24 * 3600.0  # what has not happened after a month never happens


class VirtualClock:
    """The broker's clock on the loop's time, in Unix milliseconds."""

    def __init__(self) -> None:
        self._ahead_ms = 0

    def now_ms(self) -> int:
        seconds = asyncio.get_running_loop().time()
        return START_MS + self._ahead_ms + math.floor(seconds * 1000 + 1e-6)

    def wall_ms(self) -> int:
        return self.now_ms() - self._ahead_ms

    def not_before(self, now_ms: int) -> None:
        self._ahead_ms += max(0, now_ms - self.now_ms())


class _JumpingSelector(selectors.BaseSelector):
    """Never waits: when nothing else is to be done, time jumps."""

    def __init__(self) -> None:
        self._inner = selectors.DefaultSelector()
        self.now_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("everybody waits, and nothing is left that could happen")
        self.now_s += max(0.0, timeout)
        return self._inner.select(0)

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._inner.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._inner.unregister(fileobj)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._inner.get_map()

    def close(self) -> None:
        self._inner.close()


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)
        self._clock_resolution = 1e-7

    def time(self) -> float:
        return self._jumping.now_s


def run(main: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine in virtual time. What fails in a callback fails here too."""
    failures: list[dict[str, Any]] = []

    async def limited() -> Any:
        asyncio.get_running_loop().set_exception_handler(lambda _, what: failures.append(what))
        async with asyncio.timeout(LIMIT_S):
            return await main

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        result = runner.run(limited())
    assert not failures, f"failed in the event loop: {failures}"
    return result


async def settle() -> None:
    """Let everything happen that needs no time."""
    for _ in range(50):
        await asyncio.sleep(0)
