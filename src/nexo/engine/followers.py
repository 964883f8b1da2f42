"""Following topics by a pattern: who follows says how far they are, and nothing is kept here.

Topics that are created later join by themselves, from their beginning. What is found is shared
out among all topics that have news, so that a busy one does not keep the others waiting.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from nexo.vocabulary.batch import size_of
from nexo.vocabulary.errors import InvalidArgument, RateLimited, TopicNotFound
from nexo.vocabulary.limits import (
    FOLLOWED_MATCHES_KEPT,
    FOLLOWED_TOPICS_MAX,
    FOLLOWED_TOPICS_STEP,
    FOLLOWERS_MAX,
)
from nexo.vocabulary.names import RESERVED_PREFIX
from nexo.vocabulary.patterns import PatternTree, compiled, matches_pattern

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from nexo.engine.topic_actor import TopicActor
    from nexo.engine.topics import Topics
    from nexo.machine.pop import Part
    from nexo.machine.topic import Reading
    from nexo.vocabulary.start import Start

    MayRead = Callable[[str], bool] | None  # of who follows; None: everything


class Found(NamedTuple):
    topic: str
    reading: Reading


class Followers:
    """Who follows patterns, and waits. What a commit brought is told once, to those whom it
    concerns, so neither a wait nor a wake-up costs more with more topics."""

    def __init__(self) -> None:
        self._waiting: dict[str, set[Waiting]] = {}  # by pattern
        self._count = 0
        self._patterns = PatternTree()
        self._news: dict[str, int] = {}
        self._telling: asyncio.Handle | None = None
        self._matching: dict[str, dict[str, TopicActor]] = {}  # the longest unused pattern first
        self._matching_count = 0

    def news(self, topic: str, offset: int) -> None:
        """A topic has something new, from this offset on."""
        if self._count:
            self._news[topic] = min(offset, self._news.get(topic, offset))
            if self._telling is None:
                self._telling = asyncio.get_running_loop().call_soon(self._tell)

    @contextmanager
    def waiting(self, pattern: str, waiting: Waiting | None = None) -> Iterator[Waiting]:
        """Hear of everything that is new in the topics of a pattern meanwhile. Who follows several
        engines gives each of them the same `waiting`."""
        if self._count >= FOLLOWERS_MAX:
            raise RateLimited(
                f"the limit of {FOLLOWERS_MAX} waiting pattern subscriptions is reached",
                "use fewer connections",
            )
        waiting = waiting or Waiting()
        if pattern not in self._waiting:
            self._waiting[pattern] = set()
            self._patterns.add(pattern)
        self._waiting[pattern].add(waiting)
        self._count += 1
        try:
            yield waiting
        finally:
            self._count -= 1
            self._waiting[pattern].remove(waiting)
            if not self._waiting[pattern]:
                del self._waiting[pattern]
                self._patterns.discard(pattern)

    def matching(self, pattern: str, topics: dict[str, TopicActor]) -> dict[str, TopicActor]:
        """The topics that a pattern stands for now. It is kept for whoever asks next."""
        matching = self._matching.pop(pattern, None)
        if matching is None:
            meant = compiled(pattern).fullmatch
            is_own = pattern.startswith(RESERVED_PREFIX)
            matching = {
                name: actor
                for name, actor in topics.items()
                if meant(name) and (is_own or not name.startswith(RESERVED_PREFIX))
            }
            self._matching_count += 1 + len(matching)
        self._matching[pattern] = matching
        while self._matching_count > FOLLOWED_MATCHES_KEPT and len(self._matching) > 1:
            self._matching_count -= 1 + len(self._matching.pop(next(iter(self._matching))))
        return matching

    def added(self, name: str, actor: TopicActor) -> None:
        for pattern, matching in self._matching.items():
            if matches_pattern(pattern, name) and name not in matching:
                matching[name] = actor
                self._matching_count += 1

    def dropped(self, name: str) -> None:
        for matching in self._matching.values():
            if matching.pop(name, None) is not None:
                self._matching_count -= 1

    def loaded(self) -> None:
        """All topics may be others."""
        self._matching.clear()
        self._matching_count = 0

    def _tell(self) -> None:
        self._telling = None
        news, self._news = self._news, {}
        by_pattern: dict[str, dict[str, int]] = {}
        for name, offset in news.items():
            for pattern in self._patterns.matching(name):
                by_pattern.setdefault(pattern, {})[name] = offset
        for pattern, offsets in by_pattern.items():
            for waiting in self._waiting[pattern]:
                waiting.hear(offsets)


class Waiting:
    """One who follows a pattern. What it hears is shared with others: it is only looked at."""

    __slots__ = ("_heard", "_heard_any")

    def __init__(self) -> None:
        self._heard: list[dict[str, int]] = []
        self._heard_any = asyncio.Event()

    def hear(self, offsets: dict[str, int]) -> None:
        self._heard.append(offsets)
        self._heard_any.set()

    async def news(self) -> dict[str, int]:
        """The topics that have something new, and from which offset on."""
        await self._heard_any.wait()
        self._heard_any.clear()
        heard, self._heard = self._heard, []
        if len(heard) == 1:
            return heard[0]
        offsets: dict[str, int] = {}
        for each in heard:
            for name, offset in each.items():
                offsets[name] = min(offset, offsets.get(name, offset))
        return offsets


async def starts(topics: Topics, pattern: str, start: Start) -> dict[str, int]:
    """Where to begin in each topic that there is now."""
    matching = topics.followers.matching(pattern, topics.actors)
    _check_count(pattern, len(matching))
    found: dict[str, int] = {}
    for some in _steps(matching):
        for name, actor in some:
            found[name] = await actor.offset_of(start)
        await asyncio.sleep(0)
    return found


async def follow(
    topics: Topics,
    pattern: str,
    offsets: dict[str, int],
    count: int,
    bytes_max: int,
    wait_ms: int,
    may_read: MayRead = None,
) -> list[Found]:
    """Messages of all matching topics from these offsets on; a topic that is not named there has
    come since, and is read from its beginning. Waits up to `wait_ms` if there are none yet."""
    if count < 1 or bytes_max < 1:
        raise InvalidArgument("a read takes at least one message")
    compiled(pattern)  # a wrong one is refused, also where there is nothing to match
    ends = asyncio.get_running_loop().time() + wait_ms / 1000
    with topics.followers.waiting(pattern) as waiting:
        matching = topics.followers.matching(pattern, topics.actors)
        behind = await _behind(pattern, matching, offsets, may_read)
        # Who waits has read everything, so what it hears of is enough to go on. The offsets of
        # thousands of topics are not kept for it.
        del offsets, matching
        while True:
            found = await _read(behind, count, bytes_max) if behind else []
            if found or wait_ms <= 0:
                return found
            try:
                async with asyncio.timeout_at(ends):
                    news = await waiting.news()
            except TimeoutError:
                return []
            heard = {name: topics.actors[name] for name in news if name in topics.actors}
            behind = await _behind(pattern, heard, news, may_read)


class _Behind(NamedTuple):
    name: str
    actor: TopicActor
    offset: int


async def _behind(
    pattern: str, topics: dict[str, TopicActor], offsets: dict[str, int], may_read: MayRead
) -> list[_Behind]:
    """The topics that have something to read."""
    behind: list[_Behind] = []
    readable = 0
    for some in _steps(topics):
        if behind or readable:
            await asyncio.sleep(0)  # of many, others get their turn in between
        if may_read is not None:
            some = [each for each in some if may_read(each[0])]
        readable += len(some)
        _check_count(pattern, readable)
        for name, actor in some:
            offset, settled = offsets.get(name, 0), actor.topic.log.settled
            if offset != settled:
                if offset > settled:  # it was deleted, and one of the same name created
                    offset = 0
                if max(offset, actor.topic.start) < settled:
                    behind.append(_Behind(name, actor, offset))
    return behind


def _steps(topics: dict[str, TopicActor]) -> Iterator[list[tuple[str, TopicActor]]]:
    """All of them, as they are now, a step of work at a time."""
    named = list(topics.items())
    for at in range(0, len(named), FOLLOWED_TOPICS_STEP):
        yield named[at : at + FOLLOWED_TOPICS_STEP]


async def _read(behind: list[_Behind], count: int, bytes_max: int) -> list[Found]:
    found: list[Found] = []
    for at, (name, actor, offset) in enumerate(behind):
        share = len(behind) - at
        try:
            reading = await actor.read(
                offset, max(1, count // share), bytes_max=max(1, bytes_max // share)
            )
        except TopicNotFound:
            continue  # it was deleted while another was read
        if reading.parts:
            found.append(Found(name, reading))
            count -= sum(part.count for part in reading.parts)
            bytes_max -= sum(payload_bytes(part) for part in reading.parts)
        if count < 1 or bytes_max < 1:
            break
    return found


def _check_count(pattern: str, count: int) -> None:
    if count > FOLLOWED_TOPICS_MAX:
        raise InvalidArgument(
            f"{pattern!r} matches more than {FOLLOWED_TOPICS_MAX} topics",
            "use a narrower pattern",
        )


def payload_bytes(part: Part) -> int:
    return size_of(part.content, part.index, part.index + part.count)
