"""Which commit tells of what: events wait for each other, and for nothing that failed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from nexo.vocabulary.errors import ReadOnly
from nexo.vocabulary.settings import QueueSettings
from tests.engine.rig import Rig, ack, bodies, numbered
from tests.engine.told import check_totals, sums, told
from tests.engine.virtual_time import settle

if TYPE_CHECKING:
    from nexo.engine.engine import Engine
    from nexo.engine.queue_actor import QueueActor
    from nexo.journal.port import Commit


async def quiet(telling: Rig) -> tuple[Engine, QueueActor]:
    """A broker with a queue in which nothing happens: the next event need not wait for others."""
    engine = await telling.start()
    queue = await engine.create_queue("q")
    await asyncio.sleep(1)
    return engine, queue


async def test_events_are_part_of_the_commit_that_they_tell_of(telling: Rig) -> None:
    engine = await telling.start()
    queues = [await engine.create_queue(name) for name in ("a", "b")]
    await asyncio.sleep(1)
    before = len(telling.journal.commits)
    await asyncio.gather(*[queue.push(bodies("x")) for queue in queues])
    (commit,) = telling.journal.commits[before:]
    assert len(commit.rows) == 3, "a row for each queue, and one for what both of them tell"
    telling.runner.is_held = True
    queues[0].push(bodies("never confirmed"))
    await asyncio.sleep(0.1)
    engine = await telling.crash()
    assert sums(await told(engine), "a") == {"pushed": 1}


async def test_a_full_disk_lets_acks_go_on_and_events_wait(telling: Rig) -> None:
    engine = await telling.start()
    queue = await engine.create_queue("q")
    await queue.push(numbered(50))
    await asyncio.sleep(1)
    is_full = [True]

    def refuse(commit: Commit) -> Exception | None:
        return ReadOnly("the disk is full") if commit.rows and is_full[0] else None

    telling.journal.refuse_commit = refuse
    with pytest.raises(ReadOnly):
        await queue.push(bodies("refused"))
    await asyncio.sleep(0.5)
    for _ in range(3):
        await ack(queue, await queue.pop(10, one_ack=True))
    assert sums(await told(engine), "q") == {"pushed": 50}
    is_full[0] = False
    await asyncio.sleep(3)
    assert sums(await told(engine), "q") == {"pushed": 50, "delivered": 30, "acked": 30}
    await check_totals(engine)


async def test_a_commit_that_failed_is_not_told_of(telling: Rig) -> None:
    engine = await telling.start()
    queue = await engine.create_queue("q")
    failing = [ReadOnly("once")]
    telling.journal.refuse_commit = lambda _: failing.pop() if failing else None
    with pytest.raises(ReadOnly):
        await queue.push(numbered(40))
    await asyncio.sleep(5)
    await queue.push(bodies("a"))
    assert sums(await told(engine), "q") == {"pushed": 1}
    await check_totals(engine)


async def test_what_is_owed_is_told_though_the_commit_that_told_it_failed(telling: Rig) -> None:
    engine, queue = await quiet(telling)
    await queue.push(bodies("told with its commit"))
    await queue.push(bodies("so soon behind it that its event waits"))
    assert engine.events_waiting == 1
    failing = [ReadOnly("once")]
    telling.journal.refuse_commit = lambda _: failing.pop() if failing else None
    await asyncio.sleep(5)
    assert not failing
    assert sums(await told(engine), "q") == {"pushed": 2}
    await check_totals(engine)


async def test_the_first_commit_may_fail(telling: Rig) -> None:
    """The topic itself is created by a commit."""
    engine = await telling.start()
    failing = [ReadOnly("once")]
    telling.journal.refuse_commit = lambda _: failing.pop() if failing else None
    await asyncio.sleep(5)
    queue = await engine.create_queue("q")
    await queue.push(bodies("a"))
    assert sums(await told(engine), "q") == {"pushed": 1}


async def test_a_busy_broker_tells_of_several_commits_at_once(telling: Rig) -> None:
    engine, queue = await quiet(telling)
    before = len(telling.journal.commits)
    for _ in range(100):
        await queue.push(bodies("x"))
    rows = [len(commit.rows) for commit in telling.journal.commits[before:]]
    assert rows == [2] + [1] * 99, "one row for the messages, now and then one for the events"
    await asyncio.sleep(0.2)
    assert len(telling.journal.commits) == before + 101, "the rest is told soon"
    assert sums(await told(engine), "q") == {"pushed": 100}
    await queue.push(bodies("x"))
    assert len(telling.journal.commits[-1].rows) == 2, "after a pause at once"


async def test_events_call_for_no_commit_of_their_own_while_there_are_others(telling: Rig) -> None:
    _, queue = await quiet(telling)
    before = len(telling.journal.commits)
    for _ in range(100):
        await queue.push(bodies("x"))
        await asyncio.sleep(0.007)
    assert len(telling.journal.commits) == before + 100


@pytest.mark.parametrize("failing", ["the running one", "the next one"])
async def test_what_is_told_outside_of_a_commit_is_of_the_next(telling: Rig, failing: str) -> None:
    """Events are switched off while a commit runs, and it or the next one fails."""
    engine, queue = await quiet(telling)
    telling.runner.is_held = True
    first = queue.push(bodies("a"))
    await settle()
    lost = queue.push(bodies("b"))
    queue.flush()
    editing = asyncio.create_task(engine.edit_queue("q", QueueSettings(events=False)))
    await settle()
    if failing == "the next one":
        telling.runner.step()
        await first
    errors = [ReadOnly("once")]
    telling.journal.refuse_commit = lambda _: errors.pop() if errors else None
    await settle()
    telling.runner.release()
    await asyncio.gather(first, lost, editing, return_exceptions=True)
    assert isinstance(lost.exception(), ReadOnly)
    await asyncio.sleep(5)
    assert sums(await told(engine), "q") == ({"pushed": 1} if failing == "the next one" else {})
