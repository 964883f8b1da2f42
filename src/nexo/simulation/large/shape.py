"""What every shape has: a size, lives, and what it asks of the broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from nexo.simulation.history import Violation

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from random import Random

    from nexo.simulation.large.site import Site
    from nexo.simulation.plan import End

    Life = Callable[[Site], Awaitable[None]]


class Shape:
    """Something large. Between two of its lives the broker is killed or closed."""

    messages = 1_000  # at scale 1: enough that what grows with them is far beyond its bound
    end: ClassVar[End | None] = None  # of all lives but the last; None: drawn
    memory_limit_bytes = 1 << 30
    needs_disk = False  # else the journal may be in memory
    options: ClassVar[dict[str, Any]] = {}  # of the engine
    limits: ClassVar[dict[str, int]] = {}  # that are other than usual

    def __init__(self, random: Random, scale: float) -> None:
        self.random = random
        self.size = int(self.messages * scale)

    def lives(self) -> list[Life]:
        return [self.fill, self.work]

    async def fill(self, site: Site) -> None:
        raise NotImplementedError

    async def work(self, site: Site) -> None:
        raise NotImplementedError


def expect(is_so: bool, promise: str, found: str) -> None:
    if not is_so:
        raise Violation(promise, found)
