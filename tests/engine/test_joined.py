"""Commits that a runner writes together with those of others: the same promises as of one that is
written alone, and the journal still takes one call at a time."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from nexo.engine import committer
from nexo.engine.desk import Desk
from nexo.engine.engine import Engine
from nexo.journal.memory import MemoryDisk, MemoryJournal
from nexo.telemetry.meters import Meters
from nexo.vocabulary.errors import NotReady
from nexo.vocabulary.limits import LONG_COMMIT_ROWS
from tests.engine.rig import HeldRunner, bodies, numbered, texts
from tests.engine.virtual_time import VirtualClock, settle

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from nexo.engine.queue_actor import QueueActor
    from nexo.journal.port import Commit, Committing


class Joining(HeldRunner):
    """Asks for commits, and tells their end, when a test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.coming: list[Committing] = []
        self.joined: list[tuple[Committing, Commit]] = []

    def soon(self, committing: Committing) -> None:
        self.coming.append(committing)

    def ask(self) -> None:
        coming, self.coming = self.coming, []
        for each in coming:
            commit = each.begin_joined()
            if commit is not None:
                self.joined.append((each, commit))

    def tell(self, error: BaseException | None = None) -> None:
        joined, self.joined = self.joined, []
        for each, commit in joined:
            if error is None:
                each.journal.commit(commit)
            each.end_joined(None if error else 0.25, error)

    async def go_on(self, done: asyncio.Future[Any]) -> Any:
        while not done.done():
            await settle()
            self.ask()
            self.tell()
        return done.result()


@asynccontextmanager
async def started() -> AsyncIterator[tuple[Engine, Joining, QueueActor]]:
    runner = Joining()
    engine = Engine(
        MemoryJournal(MemoryDisk()),
        clock=VirtualClock(),
        runner=runner,
        events=None,
        new_incarnation=lambda: 1,
    )
    await engine.open()
    queue = await runner.go_on(asyncio.ensure_future(engine.create_queue("q")))
    yield engine, runner, queue
    await runner.go_on(asyncio.ensure_future(engine.close()))


async def test_a_push_is_confirmed_when_its_commit_has_ended() -> None:
    async with started() as (_, runner, queue):
        push = queue.push(bodies("a"))
        await settle()
        assert not runner.joined
        one = queue.push_one(b"b")  # comes along
        runner.ask()
        late = queue.push_one(b"c")  # does not
        await asyncio.sleep(10)
        assert not push.done()
        assert texts(await queue.pop(10)) == []
        runner.tell()
        assert (await push).ranges == [0, 1]
        assert await one == 1
        await settle()
        assert not late.done()
        assert texts(await queue.pop(10)) == ["a", "b"]
        assert await runner.go_on(late) == 2


async def test_nothing_to_write_is_told_so() -> None:
    async with started() as (engine, runner, queue):
        before = engine.committer.commits
        runner.coming.append(engine.committer)  # it was called off, as by a reload
        runner.ask()
        assert not runner.joined
        assert engine.committer.commits == before
        assert await runner.go_on(queue.push_one(b"a")) == 0


async def test_a_commit_that_failed_is_taken_back() -> None:
    async with started() as (engine, runner, queue):
        push = queue.push(bodies("a"))
        await settle()
        runner.ask()
        runner.tell(NotReady("the connection is lost"))
        with pytest.raises(NotReady, match="the connection is lost"):
            await push
        await asyncio.sleep(5)  # everything is loaded anew
        assert engine.refusal is None
        assert (await runner.go_on(queue.push(bodies("b")))).ranges == [0, 1]
        assert texts(await queue.pop(10)) == ["b"]


async def test_a_bug_at_the_end_of_one_is_not_for_those_who_were_joined_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with started() as (engine, runner, queue):
        told: list[str] = []
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: told.append(context["message"])
        )

        def broken(*_: float) -> None:
            raise ZeroDivisionError("a bug")

        monkeypatch.setattr(engine.meters, "joined", broken)
        push = queue.push(bodies("a"))
        await settle()
        runner.ask()
        runner.tell()  # raises nothing
        await push
        assert told == ["the end of a call to the journal failed"]
        assert await runner.go_on(queue.push_one(b"b")) == 1


async def test_a_read_waits_for_a_commit_that_is_under_way() -> None:
    async with started() as (engine, runner, queue):
        push = queue.push(bodies("a"))
        await settle()
        runner.ask()
        read = engine._context.desk.call(lambda: "read")
        await settle()
        assert not read.done()
        runner.tell()
        assert await read == "read"
        await push


async def test_a_commit_waits_for_a_read_that_is_under_way() -> None:
    async with started() as (engine, runner, queue):
        runner.is_held = True
        order: list[str] = []
        read = engine._context.desk.call(lambda: order.append("read"))
        push = queue.push(bodies("a"))
        push.add_done_callback(lambda _: order.append("push"))
        await settle()
        runner.ask()
        assert not runner.joined, "the journal is in use"
        runner.release()
        await read
        assert (await push).ranges == [0, 1]
        await settle()
        assert order == ["read", "push"]


async def test_what_is_long_is_never_joined() -> None:
    async with started() as (_, runner, queue):
        pushes = [queue.push(numbered(32)) for _ in range(LONG_COMMIT_ROWS + 1)]
        for _ in range(20):
            await settle()
            runner.ask()
            runner.tell()
        await asyncio.gather(*pushes)
        runner.is_held = True
        purged = queue.purge()
        await settle()
        runner.ask()
        assert runner.held, "the rows of a purge are many"
        assert not runner.joined
        runner.release()
        assert await purged == 32 * (LONG_COMMIT_ROWS + 1)


async def test_a_large_snapshot_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    async with started() as (_, runner, queue):
        await runner.go_on(queue.push(bodies("a")))
        monkeypatch.setattr(committer, "INLINE_COMMIT_BYTES", 0)
        paused = queue.set_paused(True)
        await settle()
        runner.ask()
        assert runner.joined
        runner.tell()
        await paused
        queue._recorder.is_due = runner.is_held = True
        paused = queue.set_paused(False)
        await settle()
        runner.ask()
        assert not runner.joined
        assert len(runner.held) == 1
        runner.release()
        await paused


def test_a_desk_that_is_taken_is_nobody_elses() -> None:
    async def main() -> None:
        desk, order = Desk(HeldRunner()), []
        assert desk.take()
        assert not desk.take()
        assert desk.is_busy
        first = desk.call(lambda: order.append("first"))
        second = desk.call(lambda: order.append("second"))
        await asyncio.sleep(0)
        assert order == []
        desk.give_back(lambda *told: order.append(f"told {told}"), 1, None)
        await first
        await second
        assert order == ["told (1, None)", "first", "second"]
        assert not desk.is_busy
        assert desk.take()

    asyncio.run(main())


def test_commits_that_were_written_together_are_counted_each() -> None:
    meters = Meters()
    meters.committed(0.003, 0.002)
    together = float("0.004")
    for _ in range(3):
        meters.joined(0.0, together)
    later = float("0.004")  # the same number, of another transaction
    meters.joined(0.0, later)
    assert meters.commit_s.count == 5
    assert meters.sync_s.count == 5
    assert meters.sync_s.sum == pytest.approx(0.002 + 4 * 0.004)
    meters.joined(0.0, later)
    assert meters.sync_s.count == 6
