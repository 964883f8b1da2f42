"""Following topics by a pattern: who follows says how far they are, and nothing is kept here.

Topics that are created later join by themselves, from their beginning. What is found is shared
out among all topics that have news, so that a busy one does not keep the others waiting.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from nexo.vocabulary.batch import size_of
from nexo.vocabulary.errors import InvalidArgument, TopicNotFound
from nexo.vocabulary.limits import FOLLOWED_TOPICS_MAX
from nexo.vocabulary.patterns import compiled, matches_pattern

if TYPE_CHECKING:
    from collections.abc import Callable

    from nexo.engine.topic_actor import TopicActor
    from nexo.engine.topics import Topics
    from nexo.machine.pop import Part
    from nexo.machine.topic import Reading
    from nexo.vocabulary.start import Start

    MayRead = Callable[[str], bool] | None  # of who follows; None: everything


class Found(NamedTuple):
    topic: str
    reading: Reading


async def starts(topics: Topics, pattern: str, start: Start) -> dict[str, int]:
    """Where to begin in each topic that there is now."""
    matching = _matching(topics, pattern, None)
    return {name: await actor.offset_of(start) for name, actor in matching.items()}


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
    loop = asyncio.get_running_loop()
    ends = loop.time() + wait_ms / 1000
    while True:
        behind = _behind(_matching(topics, pattern, may_read), offsets)
        if behind:
            found = await _read(behind, count, bytes_max)
            if found:
                return found
        elif not await _news(topics, pattern, may_read, ends - loop.time()):
            return []


class _Behind(NamedTuple):
    name: str
    actor: TopicActor
    offset: int


def _behind(matching: dict[str, TopicActor], offsets: dict[str, int]) -> list[_Behind]:
    """The topics that have something to read."""
    behind = []
    for name, actor in matching.items():
        offset, settled = offsets.get(name, 0), actor.topic.log.settled
        if offset > settled:  # it was deleted, and one of the same name created
            offset = 0
        if max(offset, actor.topic.start) < settled:
            behind.append(_Behind(name, actor, offset))
    return behind


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
            bytes_max -= sum(_payload_bytes(part) for part in reading.parts)
        if count < 1 or bytes_max < 1:
            break
    return found


async def _news(topics: Topics, pattern: str, may_read: MayRead, wait_s: float) -> bool:
    """Wait until one of the topics has something new, or a new one comes."""
    if wait_s <= 0:
        return False
    news = asyncio.Event()
    matching = _matching(topics, pattern, may_read)
    stops = [actor.listen(news.set) for actor in matching.values()]
    stops.append(topics.listen(news.set))
    try:
        async with asyncio.timeout(wait_s):
            await news.wait()
    except TimeoutError:
        return False
    finally:
        for stop in stops:
            stop()
    return True


def _matching(topics: Topics, pattern: str, may_read: MayRead) -> dict[str, TopicActor]:
    matching = {
        name: actor
        for name, actor in topics.actors.items()
        if matches_pattern(pattern, name) and (may_read is None or may_read(name))
    }
    if len(matching) > FOLLOWED_TOPICS_MAX:
        raise InvalidArgument(
            f"{pattern!r} stands for {len(matching)} topics, allowed are {FOLLOWED_TOPICS_MAX}",
            "follow fewer at once, by narrower patterns",
        )
    return matching


def _payload_bytes(part: Part) -> int:
    return size_of(part.content, part.index, part.index + part.count)
