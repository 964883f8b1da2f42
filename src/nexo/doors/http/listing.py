"""Lists of names: a page at a time, in order, however many there are. A broker may have a hundred
thousand queues, and whoever lists them must not keep the others waiting."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from nexo.vocabulary.limits import HTTP_LIST_STEP

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable

    Each = TypeVar("Each")


async def in_steps(things: Iterable[Each]) -> AsyncIterator[list[Each]]:
    """All of them as they are now, some at a time; in between others get their turn, so what was
    there may be gone when it comes."""
    every = list(things)
    for start in range(0, len(every), HTTP_LIST_STEP):
        if start:
            await asyncio.sleep(0)
        yield every[start : start + HTTP_LIST_STEP]


async def page_of(
    names: Iterable[str], after: str, limit: int, is_shown: Callable[[str], bool]
) -> tuple[list[str], bool]:
    """The first names behind `after` that are shown, and whether there are more."""
    first: list[str] = []
    async for step in in_steps(names):
        last = first[limit] if len(first) > limit else None
        # Only those that could be on the page are looked at more closely.
        near = [name for name in step if name > after and (last is None or name < last)]
        first = sorted(first + [name for name in near if is_shown(name)])[: limit + 1]
    return first[:limit], len(first) > limit
