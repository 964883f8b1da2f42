"""The engine with its own runner, in real time: inline while the disk is quick, else a thread."""

from __future__ import annotations

import asyncio
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

from nexo.engine.desk import AdaptiveRunner, Desk
from nexo.engine.engine import Engine
from nexo.journal.connection import Tuning
from nexo.journal.sqlite import SqliteJournal
from nexo.vocabulary.limits import INLINE_COMMIT_BYTES, INLINE_COMMIT_MS, LONG_COMMIT_ROWS
from tests.engine.rig import WatchedJournal, ack, bodies_of, number_of, numbered

if TYPE_CHECKING:
    from pathlib import Path

    from nexo.journal.port import Commit


class GatedJournal(WatchedJournal):
    """Commits wait in their thread until the gate is open."""

    def __init__(self, path: Path) -> None:
        super().__init__(SqliteJournal(path, reserve_bytes=0))
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Semaphore(0)
        self.threads: set[str] = set()

    def commit(self, commit: Commit) -> float:
        self.threads.add(threading.current_thread().name)
        self.entered.release()
        assert self.gate.wait(20)
        return super().commit(commit)


def test_a_slow_disk_does_not_stop_the_loop(tmp_path: Path) -> None:
    async def main() -> None:
        journal = GatedJournal(tmp_path)
        runner = AdaptiveRunner()
        # Without events, whose commits come when their time has come.
        engine = await Engine(journal, runner=runner, events=None, new_incarnation=lambda: 1).open()
        queue = await engine.create_queue("q")
        runner._average_ms = 2 * INLINE_COMMIT_MS  # the disk has become slow
        journal.gate.clear()
        while journal.entered.acquire(blocking=False):
            pass
        pushes: list[asyncio.Future[Any]] = [queue.push(numbered(10))]
        await asyncio.to_thread(journal.entered.acquire)
        commits = engine.committer.commits
        pushes += [queue.push(numbered(10, 10 * number)) for number in range(1, 20)]
        assert (await queue.pop(10)).parts == [], "seen before it is on disk"
        assert not any(push.done() for push in pushes)
        journal.gate.set()
        await asyncio.gather(*pushes)
        assert engine.committer.commits == commits + 2, "what waited is one commit"
        assert any(name.startswith("nexo-journal") for name in journal.threads)
        delivery = await queue.pop(1_000)
        numbers = [number_of(text) for part in delivery.parts for text in bodies_of(part)]
        assert numbers == list(range(200))
        await engine.close()

    asyncio.run(asyncio.wait_for(main(), 30))


def test_commits_go_before_reads_that_wait_and_all_are_done_one_by_one() -> None:
    async def main() -> None:
        runner, order = AdaptiveRunner(), []
        runner._average_ms = 2 * INLINE_COMMIT_MS  # the disk is slow: calls go to the thread
        desk = Desk(runner)
        gate, active = threading.Event(), threading.Semaphore(1)

        def job(name: str) -> str:
            assert active.acquire(blocking=False), "two calls at once"
            assert gate.wait(20)
            order.append(name)
            active.release()
            return name

        ended = asyncio.Event()
        calls = [desk.call(partial(job, name)) for name in ("running", "read 1", "read 2")]
        desk.submit(lambda: job("commit"), lambda *_: ended.set(), first=True)
        gate.set()
        assert await asyncio.gather(*calls) == ["running", "read 1", "read 2"]
        await ended.wait()
        assert order == ["running", "commit", "read 1", "read 2"]
        desk.close()

    asyncio.run(asyncio.wait_for(main(), 30))


def test_a_long_commit_never_runs_in_the_loop(tmp_path: Path) -> None:
    async def main() -> None:
        journal = GatedJournal(tmp_path)
        engine = await Engine(journal, events=None, new_incarnation=lambda: 1).open()
        queue = await engine.create_queue("q")
        for _ in range(11):  # a row a push
            pushes = [queue.push(numbered(32)) for _ in range(LONG_COMMIT_ROWS // 10)]
            await asyncio.gather(*pushes)
        await asyncio.sleep(0)
        journal.threads.clear()
        await queue.purge()
        assert all(name.startswith("nexo-journal") for name in journal.threads), journal.threads
        assert journal.commits[-1].dropped_rows
        await engine.close()

    asyncio.run(asyncio.wait_for(main(), 30))


def test_what_folds_the_log_never_runs_in_the_loop(tmp_path: Path) -> None:
    """32 MB of it are written once more; neither a commit nor idle work may do that in the loop."""
    threads: list[str] = []
    folded = threading.Semaphore(0)

    class Folding(SqliteJournal):
        def _checkpoint(self) -> bool:
            threads.append(threading.current_thread().name)
            folded.release()
            return super()._checkpoint()

    async def main() -> None:
        tuning = Tuning(checkpoint_pages=16)
        journal = Folding(tmp_path, reserve_bytes=0, tuning=tuning)
        runner = AdaptiveRunner()
        engine = await Engine(journal, runner=runner, new_incarnation=lambda: 1).open()
        queue = await engine.create_queue("q")
        threads.clear()
        while len(threads) < 3:
            runner._average_ms = 0.0
            await queue.push(numbered(10))
        while folded.acquire(blocking=False):
            pass
        runner._average_ms = 0.0
        while journal._wal_pages < tuning.checkpoint_pages // 4:  # enough for idle work
            await queue.push(numbered(10))
        await asyncio.to_thread(folded.acquire)  # it comes by itself
        assert all(name.startswith("nexo-journal") for name in threads), threads
        await engine.close()

    asyncio.run(asyncio.wait_for(main(), 30))


def test_a_real_directory_under_load_and_across_restarts(tmp_path: Path) -> None:
    """Producers and consumers side by side, small memory, several restarts, real clock."""
    seen: list[int] = []

    async def produce(engine: Engine, start: int) -> None:
        queue = engine.queue("q")
        for number in range(start, start + 300, 30):
            await queue.push(numbered(30, number, 200))

    async def consume(engine: Engine, wanted: int) -> None:
        queue = engine.queue("q")
        while len(seen) < wanted:
            delivery = await queue.pop(17, wait_ms=50, one_ack=True)
            seen.extend(number_of(text) for part in delivery.parts for text in bodies_of(part))
            if delivery.parts:
                await ack(queue, delivery)

    async def life(turn: int) -> None:
        journal = SqliteJournal(tmp_path, reserve_bytes=0)
        engine = Engine(journal, memory_limit_bytes=20_000, new_incarnation=lambda: 1)
        await engine.open()
        await engine.create_queue("q")
        producers = [produce(engine, 3_000 * turn + 300 * number) for number in range(4)]
        wanted = 1_200 * turn + 600  # half of it stays for the next life
        await asyncio.gather(*producers, consume(engine, wanted), consume(engine, wanted))
        if turn == 2:
            await consume(engine, 3_600)
        await engine.close()

    for turn in range(3):
        asyncio.run(asyncio.wait_for(life(turn), 30))
    expected = [3_000 * turn + number for turn in range(3) for number in range(1_200)]
    assert sorted(seen) == expected


def test_a_large_commit_never_runs_in_the_loop(tmp_path: Path) -> None:
    """However quick the disk was so far; and nothing is concluded from it."""

    async def main() -> None:
        journal = GatedJournal(tmp_path)
        runner = AdaptiveRunner()
        engine = await Engine(journal, runner=runner, events=None, new_incarnation=lambda: 1).open()
        queue = await engine.create_queue("q")
        for size, is_inline in ((1_000, True), (INLINE_COMMIT_BYTES, False), (1_000, True)):
            runner._average_ms = 0.0
            journal.threads.clear()
            await queue.push(numbered(4, size=size // 2))
            in_thread = any(name.startswith("nexo-journal") for name in journal.threads)
            assert in_thread is not is_inline
            if not is_inline:
                assert runner._average_ms == 0.0
        await engine.close()

    asyncio.run(main())
