"""docs/ARCHITECTURE.md lists the files that a message passes. Here messages pass, and what runs is
what the page says."""

from __future__ import annotations

import asyncio
import re
import sys
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import nexo
from nexo.engine.engine import Engine
from nexo.journal.memory import MemoryDisk, MemoryJournal
from nexo.vocabulary.batch import batch_of
from nexo.vocabulary.settings import QueueSettings

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from types import FrameType

    from nexo.engine.queue_actor import QueueActor

SOURCE = Path(nexo.__file__).parent
PAGE = Path(__file__).resolve().parents[2] / "docs" / "ARCHITECTURE.md"
ROW = re.compile(r"^\| (\w[\w ]*) \| (.*) \|$", re.MULTILINE)
FILE = re.compile(r"\(\.\./src/nexo/([\w/]+\.py)\)")
# The words, and the figures that are kept of what happens.
PASSED_BY = ("vocabulary/", "telemetry/")
# What the page says once for all of them.
SHARED = ("every commit", "the state")


def listed() -> dict[str, set[str]]:
    """The files of each way, as the page has them. The broker has SQLite where this has memory."""
    section = PAGE.read_text().partition("## Follow a message")[2].partition("\n## ")[0]
    rows = {way: set(FILE.findall(files)) for way, files in ROW.findall(section)}
    ways = {way: files for way, files in rows.items() if files}  # without the heads of tables
    for files in ways.values():
        if "journal/sqlite.py" in files:
            files ^= {"journal/sqlite.py", "journal/memory.py"}
    return ways


class Clock:
    """Time is what the test says: no timer fires by itself."""

    def __init__(self) -> None:
        self.ms = 1_000_000

    def now_ms(self) -> int:
        return self.ms

    def wall_ms(self) -> int:
        return self.ms

    def not_before(self, now_ms: int) -> None:
        self.ms = max(self.ms, now_ms)


class Stage:
    """A broker with a queue that forgives one failure, one that forgives none, and a topic."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.ran: set[str] = set()

    async def __aenter__(self) -> Stage:
        self.engine = await Engine(
            MemoryJournal(MemoryDisk()),
            clock=self.clock,
            events=None,
            new_incarnation=count(1).__next__,
        ).open()
        self.patient = await self.engine.create_queue("patient", QueueSettings(max_attempts=2))
        self.strict = await self.engine.create_queue("strict", QueueSettings(max_attempts=1))
        await self.engine.create_queue("strict_dlq")
        self.topic = await self.engine.create_topic("topic")
        await self.engine.bind("topic", "patient")
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.engine.close()

    async def watch(self, step: Callable[[], Awaitable[Any] | None]) -> Any:
        """Do a step, and all that it brings until it is on disk."""
        await self.engine.drain()
        sys.setprofile(self._seen)
        try:
            pending = step()
            result = None if pending is None else await pending
            await self.engine.committer.drain()
        finally:
            sys.setprofile(None)
        return result

    def _seen(self, frame: FrameType, event: str, _: object) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(SOURCE):
            self.ran.add(path.relative_to(SOURCE).as_posix())

    # -- The ways -----------------------------------------------------------------------------

    async def push(self) -> None:
        await self.watch(lambda: self.patient.push(batch_of([b"a", b"b"])))

    async def pop(self) -> None:
        await self.patient.push(batch_of([b"a", b"b"]))
        await self.watch(lambda: self.patient.pop(1))

    async def ack(self) -> None:
        await self.patient.push(batch_of([b"a", b"b"]))
        lease = (await self.patient.pop(1, one_ack=True)).lease
        assert await self.watch(lambda: self.patient.ack(lease, 0, 1)) == [0, 1]

    async def timeout(self) -> None:
        await self._time_out(self.patient)
        assert self.patient.info().depth == 1

    async def dead_letter(self) -> None:
        await self._time_out(self.strict)
        assert self.engine.queue("strict_dlq").info().depth == 1

    async def publish(self) -> None:
        await self.watch(lambda: self.topic.publish(batch_of([b"a"])))
        assert self.patient.info().depth == 1

    async def _time_out(self, queue: QueueActor) -> None:
        await queue.push(batch_of([b"a"]))
        await queue.pop(1, one_ack=True)
        self.clock.ms += queue.settings.visibility_timeout_ms + 1
        await self.watch(queue.tick)


WAYS = {
    "push": Stage.push,
    "pop": Stage.pop,
    "ack": Stage.ack,
    "timeout": Stage.timeout,
    "dead letter": Stage.dead_letter,
    "publish": Stage.publish,
}


def files_of(way: str) -> set[str]:
    async def walk() -> set[str]:
        async with Stage() as stage:
            await WAYS[way](stage)
            return {file for file in stage.ran if not file.startswith(PASSED_BY)}

    return asyncio.run(walk())


@pytest.fixture(autouse=True)
def profiler() -> Iterator[None]:
    """Whoever else profiles gets its turn back."""
    before = sys.getprofile()
    yield
    sys.setprofile(before)


@pytest.mark.parametrize("way", WAYS)
def test_a_message_passes_the_files_that_the_page_lists(way: str) -> None:
    page = listed()
    ran, shared = files_of(way), set[str]().union(*(page[each] for each in SHARED))
    unlisted, idle = sorted(ran - page[way] - shared), sorted(page[way] - ran)
    assert not unlisted, f"{way}: these ran and {PAGE.name} does not list them: {unlisted}"
    assert not idle, f"{way}: {PAGE.name} lists these and they did not run: {idle}"


def test_the_page_lists_these_ways_and_what_they_share() -> None:
    page = listed()
    assert page.keys() == {*WAYS, *SHARED}
    ran = set[str]().union(*map(files_of, WAYS))
    for each in SHARED:
        idle = sorted(page[each] - ran)
        assert not idle, f"{each}: {PAGE.name} lists these and no way passes them: {idle}"
