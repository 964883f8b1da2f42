"""Lists of queues and topics: their names in order, a page at a time.

There may be a hundred thousand of them. So names are kept in order instead of being sorted for
each list, and whoever walks through many lets others have their turn in between.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, TypeVar, cast

from nexo.vocabulary.limits import LIST_STEP_NAMES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

Actor = TypeVar("Actor")
_ABSENT = object()


class Named(dict[str, Actor]):
    """Actors by name. As a dict they stand in the order of their creation; `behind` gives the
    names in their own order. Set and delete them one by one: the other ways are not told of."""

    def __init__(self) -> None:
        super().__init__()
        self._ordered: list[str] = []
        self._fresh: dict[str, None] = {}  # not in order yet: they are sorted in together

    def __setitem__(self, name: str, actor: Actor) -> None:
        if name not in self:
            self._fresh[name] = None
        super().__setitem__(name, actor)

    def __delitem__(self, name: str) -> None:
        super().__delitem__(name)
        if name in self._fresh:
            del self._fresh[name]
        else:
            del self._ordered[bisect_left(self._ordered, name)]

    def pop(self, name: str, default: object = _ABSENT) -> Actor:
        if name not in self and default is not _ABSENT:
            return cast("Actor", default)
        actor = self[name]
        del self[name]
        return actor

    def sort(self) -> None:
        """Bring the names in order. Cheap unless very many came since the last time."""
        if self._fresh:
            self._ordered += sorted(self._fresh)
            self._ordered.sort()  # of two runs that are in order: it merges them
            self._fresh.clear()

    def behind(self, after: str = "") -> Iterator[list[str]]:
        """The names behind `after` in order, some at a time. Between two of these lists, names
        may come and go."""
        while True:
            self.sort()
            start = bisect_right(self._ordered, after)
            names = self._ordered[start : start + LIST_STEP_NAMES]
            if not names:
                return
            yield names
            after = names[-1]


async def steps(named: Named[Actor], after: str = "") -> AsyncIterator[list[Actor]]:
    """The actors behind a name in the order of their names, some at a time; in between, others
    have their turn. Those that are deleted meanwhile are left out."""
    for names in named.behind(after):
        found = [named.get(name) for name in names]
        yield [actor for actor in found if actor is not None]
        await asyncio.sleep(0)


async def page(
    named: Named[Actor], after: str, limit: int, knows: Callable[[str], bool]
) -> tuple[list[str], str | None]:
    """The first names behind `after` that one knows of, and the name to go on behind; None:
    there are no more."""
    found: list[str] = []
    for names in named.behind(after):
        for name in names:
            if knows(name):
                if len(found) == limit:
                    return found, found[-1]
                found.append(name)
        await asyncio.sleep(0)
    return found, None
