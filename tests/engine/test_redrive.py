"""Redrive: dead letters go back to work, at a rate if wanted, and nothing is lost on the way."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from nexo.vocabulary.errors import InvalidArgument, QueueNotFound, ReadOnly
from nexo.vocabulary.limits import MOVE_MESSAGES
from nexo.vocabulary.settings import QueueSettings
from tests.engine.rig import Rig, bodies, nack, number_of, numbered, peeked, texts
from tests.engine.virtual_time import settle

if TYPE_CHECKING:
    from nexo.engine.engine import Engine
    from nexo.vocabulary.batch import Batch


async def bury(engine: Engine, name: str, batch: Batch) -> None:
    """Let a batch die in a queue whose dead letters are in `graves`."""
    settings = QueueSettings(max_attempts=1, dead_letter="graves")
    queue = await engine.create_queue(name, settings)
    await queue.push(batch)
    while (delivery := await queue.pop(10_000, one_ack=True)).parts:
        await nack(queue, delivery, "broken")


async def test_each_message_goes_back_to_its_source_with_a_clean_history(rig: Rig) -> None:
    engine = await rig.start()
    await bury(engine, "a", bodies("a1", "a2"))
    await bury(engine, "b", bodies("b1"))
    await bury(engine, "a", bodies("a3"))
    ids = [message.id for message in await engine.queue("graves").peek()]
    task = await engine.redrive("graves")
    assert await task.finished == 4
    progress = task.progress()
    assert (progress.moved, progress.total, progress.finished) == (4, 4, True)
    engine = await rig.restart()
    assert engine.queue("graves").info().depth == 0
    back = await engine.queue("a").peek() + await engine.queue("b").peek()
    assert [m.body for m in back] == [b"a1", b"a2", b"a3", b"b1"]
    assert sorted(m.id for m in back) == sorted(ids)
    assert all(m.dead_letter is None for m in back)
    delivered = engine.queue("a").messages(await engine.queue("a").pop(10))
    assert [m.attempts for m in delivered] == [1, 1, 1]


async def test_to_another_queue(rig: Rig) -> None:
    engine = await rig.start()
    await bury(engine, "a", bodies("a1"))
    await engine.queue("graves").push(bodies("pushed by hand"))
    await engine.create_queue("repair")
    assert await (await engine.redrive("graves", to="repair")).finished == 2
    assert await peeked(engine.queue("repair")) == ["a1", "pushed by hand"]
    assert engine.queue("a").info().depth == 0


async def test_waiting_consumers_of_the_target_are_served(rig: Rig) -> None:
    engine = await rig.start()
    await bury(engine, "a", bodies("a1"))
    pop = asyncio.create_task(engine.queue("a").pop(wait_ms=60_000))
    await settle()
    await engine.redrive("graves")
    assert texts(await pop) == ["a1"]


async def test_what_has_no_source_stays_in_its_place(rig: Rig) -> None:
    engine = await rig.start()
    await bury(engine, "a", bodies("a1"))
    await engine.queue("graves").push(bodies("no source"))
    await bury(engine, "gone", bodies("source deleted"))
    await bury(engine, "a", bodies("a2"))
    await engine.delete_queue("gone")
    task = await engine.redrive("graves")
    assert await task.finished == 2
    assert task.progress().skipped == 2
    assert await peeked(engine.queue("a")) == ["a1", "a2"]
    graves = engine.queue("graves")
    assert (graves.info().ready, graves.info().in_flight) == (2, 0)
    assert texts(await graves.pop(10)) == ["no source", "source deleted"]


async def test_many_go_in_order_and_in_several_commits(rig: Rig) -> None:
    engine = await rig.start()
    count = 2 * MOVE_MESSAGES + 500
    await bury(engine, "a", numbered(count))
    before = len(rig.journal.commits)
    assert await (await engine.redrive("graves")).finished == count
    moves = [commit for commit in rig.journal.commits[before:] if commit.rows]
    assert [commit.rows[0][1].count for commit in moves] == [MOVE_MESSAGES, MOVE_MESSAGES, 500]
    delivery = await engine.queue("a").pop(10_000)
    assert [number_of(text.encode()) for text in texts(delivery)] == list(range(count))


async def test_only_what_was_there_at_the_beginning_moves(rig: Rig) -> None:
    engine = await rig.start()
    await bury(engine, "a", numbered(100))
    task = await engine.redrive("graves", rate=100.0)
    await asyncio.sleep(0.35)
    await bury(engine, "b", bodies("later"))
    assert await task.finished == 100
    assert await peeked(engine.queue("graves")) == ["later"]


async def test_a_rate_is_kept(rig: Rig) -> None:
    engine = await rig.start()
    await bury(engine, "a", numbered(100))
    loop = asyncio.get_running_loop()
    began, task = loop.time(), await engine.redrive("graves", rate=50.0)
    for second in (0.5, 1.0, 1.5):
        await asyncio.sleep(began + second - loop.time())
        moved = task.progress().moved
        assert abs(moved - 50 * second) <= 10, f"{moved} moved after {second} s"
    assert await task.finished == 100
    assert loop.time() - began == pytest.approx(2, abs=0.15)


async def test_cancelling_keeps_what_was_moved_and_leaves_the_rest(rig: Rig) -> None:
    engine = await rig.start()
    await bury(engine, "a", numbered(100))
    task = await engine.redrive("graves", rate=50.0)
    await asyncio.sleep(1)
    task.cancel()
    moved = await task.finished
    assert 0 < moved < 100
    assert task.progress().finished
    graves = engine.queue("graves").info()
    assert (engine.queue("a").info().ready, graves.ready, graves.in_flight) == (
        moved,
        100 - moved,
        0,
    )


@pytest.mark.parametrize("way", ["between two steps", "while it is read", "while it is written"])
async def test_it_ends_with_the_broker(rig: Rig, way: str) -> None:
    """Nothing of it is left to be destroyed, and what was on its way is still there."""
    await bury(await rig.start(), "a", numbered(100))
    engine = await rig.restart()
    rig.runner.is_held = way != "between two steps"
    task = await engine.redrive("graves", rate=100)
    await asyncio.sleep(0.15)
    if way == "while it is written":
        rig.runner.step()
        await settle()
    before = task.progress().moved
    await rig.stop()
    assert task.finished.cancelled()
    assert task.status == "CANCELLED"
    engine = await rig.start()
    counts = [engine.queue(name).info().depth for name in ("a", "graves")]
    assert counts[0] >= before
    assert sum(counts) == 100
    assert engine.queue("graves").info().ready == counts[1]


async def test_a_purge_on_the_way_ends_it(rig: Rig) -> None:
    engine = await rig.start()
    await bury(engine, "a", numbered(100))
    task = await engine.redrive("graves", rate=50.0)
    await asyncio.sleep(1)
    purged = await engine.queue("graves").purge()
    assert await task.finished + purged == 100
    assert engine.queue("a").info().depth == 100 - purged


@pytest.mark.parametrize("deleted", [False, True])
async def test_losing_the_messages_while_they_are_read_back(rig: Rig, deleted: bool) -> None:
    await bury(await rig.start(), "a", numbered(100, size=100))
    engine = await rig.restart()
    rig.runner.is_held = True
    task = await engine.redrive("graves")
    await settle()
    assert rig.runner.held, "the contents are on disk, so they are being read"
    ending: asyncio.Future[Any] = (
        asyncio.create_task(engine.delete_queue("graves"))
        if deleted
        else engine.queue("graves").purge()
    )
    await settle()
    rig.runner.release()
    await ending
    assert await task.finished == 0
    assert engine.queue("a").info().depth == 0
    assert engine.refusal is None


async def test_the_source_deleted_on_the_way(rig: Rig) -> None:
    engine = await rig.start()
    await bury(engine, "a", numbered(100))
    task = await engine.redrive("graves", rate=50.0)
    await asyncio.sleep(1)
    await engine.delete_queue("graves")
    moved = await task.finished
    assert engine.queue("a").info().ready == moved < 100


async def test_the_target_deleted_on_the_way(rig: Rig) -> None:
    engine = await rig.start()
    await bury(engine, "a", numbered(100))
    task = await engine.redrive("graves", rate=50.0)
    await asyncio.sleep(1)
    await engine.delete_queue("a")
    moved = await task.finished
    graves = engine.queue("graves").info()
    assert (graves.ready, graves.in_flight) == (100 - moved, 0)
    assert moved < 100


async def test_a_failing_disk_loses_nothing(rig: Rig) -> None:
    engine = await rig.start()
    await bury(engine, "a", numbered(100))
    task = await engine.redrive("graves", rate=50.0)
    await asyncio.sleep(1)
    failures = [ReadOnly("no more")]
    rig.journal.refuse_commit = lambda _: failures.pop() if failures else None
    with pytest.raises(ReadOnly):
        await task.finished
    await asyncio.sleep(5)
    moved, graves = engine.queue("a").info().ready, engine.queue("graves").info()
    assert (graves.ready, graves.in_flight) == (100 - moved, 0)
    assert await (await engine.redrive("graves")).finished == 100 - moved


async def test_a_crash_on_the_way_loses_and_doubles_nothing(rig: Rig) -> None:
    engine = await rig.start()
    await bury(engine, "a", numbered(100))
    await engine.redrive("graves", rate=50.0)
    await asyncio.sleep(1)
    engine = await rig.crash()
    left, back = await peeked(engine.queue("graves")), await peeked(engine.queue("a"))
    assert back
    assert left
    assert back + left == [str(number) for number in range(100)]


async def test_senseless_redrives_are_refused(rig: Rig) -> None:
    engine = await rig.start()
    await bury(engine, "a", bodies("a1"))
    with pytest.raises(QueueNotFound):
        await engine.redrive("nowhere")
    with pytest.raises(QueueNotFound):
        await engine.redrive("graves", to="nowhere")
    with pytest.raises(InvalidArgument, match="itself"):
        await engine.redrive("graves", to="graves")
    for rate in (0.0, -1.0, float("nan")):
        with pytest.raises(InvalidArgument, match="rate"):
            await engine.redrive("graves", rate=rate)
    assert await peeked(engine.queue("graves")) == ["a1"]


async def test_redrives_can_be_asked_about_by_number(rig: Rig) -> None:
    engine = await rig.start()
    await bury(engine, "a", numbered(100))
    number = await engine.tasks.begin("graves", None, 50.0)
    progress = await engine.tasks.progress(number, wait_ms=1_000)
    assert not progress.finished
    assert 0 < progress.moved < 100
    assert not engine.tasks.cancel(number).finished
    ended = await engine.tasks.progress(number, wait_ms=60_000)
    assert ended.finished
    assert ended.moved == engine.queue("a").info().ready
    with pytest.raises(InvalidArgument, match="no redrive"):
        await engine.tasks.progress(number + 1)


async def test_who_asks_about_a_failed_redrive_is_told_why(rig: Rig) -> None:
    engine = await rig.start()
    await bury(engine, "a", numbered(100))
    number = await engine.tasks.begin("graves", None, 10.0)
    moved = engine.queue("a").info().ready
    failures = [ReadOnly("no more")]
    rig.journal.refuse_commit = lambda _: failures.pop() if failures else None
    with pytest.raises(ReadOnly, match="no more"):
        await engine.tasks.progress(number, wait_ms=60_000)
    await asyncio.sleep(5)
    assert engine.queue("graves").info().ready == 100 - moved


async def test_a_redrive_that_is_not_on_disk_is_none(rig: Rig) -> None:
    engine = await rig.start()
    await bury(engine, "a", numbered(100))
    failures = [ReadOnly("no more")]
    rig.journal.refuse_commit = lambda _: failures.pop() if failures else None
    with pytest.raises(ReadOnly, match="no more"):
        await engine.tasks.begin("graves", None, None)
    await asyncio.sleep(5)
    assert engine.tasks.of(engine.queue("graves")) == []
    engine = await rig.restart()
    assert engine.queue("graves").info().ready == 100


async def test_a_redrive_goes_on_after_a_restart(rig: Rig) -> None:
    """Where it was, with its number and id; and nothing moves twice."""
    engine = await rig.start()
    await bury(engine, "a", numbered(100))
    number = await engine.tasks.begin("graves", None, 20.0)
    await asyncio.sleep(2)
    before, task_id = (await engine.tasks.progress(number)).moved, engine.tasks.id_of(number)
    assert 0 < before < 100
    engine = await rig.restart()
    ((found, task),) = engine.tasks.of(engine.queue("graves"))
    assert (found, engine.tasks.id_of(found), task.status) == (number, task_id, "RUNNING")
    assert before <= task.progress().moved < 100
    assert task.progress().total == 100
    ended = await engine.tasks.progress(number, wait_ms=60_000)
    assert (ended.moved, ended.finished) == (100, True)
    assert await peeked(engine.queue("a"), 200) == [str(each) for each in range(100)]
    engine = await rig.restart()
    ((found, task),) = engine.tasks.of(engine.queue("graves"))
    assert (found, task.status, task.progress()) == (number, "COMPLETED", ended)


async def test_how_redrives_ended_is_known_after_a_restart(rig: Rig) -> None:
    engine = await rig.start()
    await bury(engine, "a", numbered(100))
    await engine.create_queue("repair")
    stopped = await engine.tasks.begin("graves", None, 10.0)
    await asyncio.sleep(1)
    engine.tasks.cancel(stopped)
    cancelled = await engine.tasks.progress(stopped, wait_ms=60_000)
    failed = await engine.tasks.begin("graves", "repair", 10.0)
    await asyncio.sleep(1)
    await engine.delete_queue("repair")
    with pytest.raises(QueueNotFound):
        await engine.tasks.progress(failed, wait_ms=60_000)
    engine = await rig.restart()
    ((last, second), (first, old)) = engine.tasks.of(engine.queue("graves"))
    assert (first, old.status, old.progress()) == (stopped, "CANCELLED", cancelled)
    assert (last, second.status) == (failed, "FAILED")
    with pytest.raises(QueueNotFound, match="repair"):
        await engine.tasks.progress(failed)
    another = await engine.tasks.begin("graves", None, None)
    assert another > failed, "a number stands for one redrive, ever"
    ids = {engine.tasks.id_of(each) for each in (stopped, failed, another)}
    assert len(ids) == 3
    await engine.delete_queue("graves")
    await engine.create_queue("graves")
    engine = await rig.restart()
    assert engine.tasks.of(engine.queue("graves")) == [], "they went with their queue"


async def test_a_disk_failure_between_two_steps_leaves_nothing_aside(rig: Rig) -> None:
    """Messages without a source were set aside before the state was loaded anew, and after."""
    engine = await rig.start()
    await bury(engine, "gone", numbered(30))
    await engine.delete_queue("gone")
    await bury(engine, "a", numbered(10))
    task = await engine.redrive("graves", rate=10.0)
    await asyncio.sleep(0.5)
    failures = [ReadOnly("no more")]
    rig.journal.refuse_commit = lambda _: failures.pop() if failures else None
    with pytest.raises(ReadOnly):
        await (await engine.create_queue("other")).push(bodies("x"))
    await asyncio.sleep(0.01)
    await asyncio.wait([task.finished], timeout=60)
    assert task.finished.done()
    if task.finished.exception() is None:
        task.finished.result()
    info = engine.queue("graves").info()
    assert info.in_flight == 0, "messages that nobody gives back"
    assert info.ready + engine.queue("a").info().ready == 40


async def test_what_the_commit_under_way_brings_is_moved_too(rig: Rig) -> None:
    engine = await rig.start()
    await engine.create_queue("repair")
    graves = await engine.create_queue("graves")
    rig.runner.is_held = True
    pushed = graves.push(bodies("one", "two"))
    await settle()
    task = await engine.redrive("graves", to="repair")
    await settle()
    rig.runner.release()
    await pushed
    assert await task.finished == 2
    assert await peeked(engine.queue("repair")) == ["one", "two"]
