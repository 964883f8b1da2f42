"""Nothing is confirmed or delivered before its commit returned, and commits are shared."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from nexo.engine.committer import call_back
from nexo.vocabulary.errors import ReadOnly
from tests.engine.rig import Rig, ack, bodies, nack, numbered, texts
from tests.engine.virtual_time import settle

if TYPE_CHECKING:
    from nexo.machine.push import Accepted
    from nexo.vocabulary.batch import Batch


async def test_a_push_is_neither_confirmed_nor_delivered_before_its_commit(rig: Rig) -> None:
    queue = await (await rig.start()).create_queue("q")
    rig.runner.is_held = True
    push = queue.push(bodies("a"))
    one = queue.push_one(b"b")
    waiting = asyncio.create_task(queue.pop(10, wait_ms=60_000))
    await asyncio.sleep(30)
    assert not push.done()
    assert not one.done()
    assert not waiting.done()
    assert texts(await queue.pop(10)) == []
    assert await queue.peek() == []
    rig.runner.release()
    assert (await push).ranges == [0, 1]
    assert await one == 1
    assert texts(await waiting) == ["a", "b"]


@pytest.mark.parametrize("verdict", ["ack", "nack"])
async def test_a_verdict_is_not_confirmed_before_its_commit(rig: Rig, verdict: str) -> None:
    queue = await (await rig.start()).create_queue("q")
    await queue.push(bodies("a", "b"))
    delivery = await queue.pop(2, one_ack=True)
    await settle()
    rig.runner.is_held = True
    said = asyncio.create_task((ack if verdict == "ack" else nack)(queue, delivery))
    await asyncio.sleep(10)
    assert not said.done()
    assert rig.disk.rows, "the row is dropped before the commit that says why"
    rig.runner.release()
    await said
    assert queue.info().depth == (0 if verdict == "ack" else 2)


async def test_a_publication_is_neither_confirmed_nor_read_before_its_commit(rig: Rig) -> None:
    engine = await rig.start()
    topic, queue = await engine.create_topic("t"), await engine.create_queue("q")
    await engine.bind("t", "q")
    rig.runner.is_held = True
    published = topic.publish(bodies("a"))
    await asyncio.sleep(10)
    assert not published.done()
    assert texts(await topic.read(0)) == []
    assert texts(await queue.pop(1)) == []
    rig.runner.release()
    assert await published == (0, 1)
    assert texts(await topic.read(0)) == ["a"]
    assert texts(await queue.pop(1)) == ["a"]


async def test_a_queue_is_not_confirmed_before_its_commit(rig: Rig) -> None:
    engine = await rig.start()
    rig.runner.is_held = True
    created = asyncio.create_task(engine.create_queue("q"))
    await asyncio.sleep(10)
    assert not created.done()
    rig.runner.release()
    assert (await created).name == "q"


async def test_what_waited_while_one_commit_ran_is_the_next_commit(rig: Rig) -> None:
    engine = await rig.start()
    queues = [await engine.create_queue(name) for name in ("a", "b", "c")]
    await settle()
    before = len(rig.journal.commits)
    rig.runner.is_held = True
    first = queues[0].push(bodies("first"))
    await settle()
    assert len(rig.runner.held) == 1
    rest = [queue.push(bodies("1", "2")) for queue in queues for _ in range(10)]
    await asyncio.sleep(5)
    assert len(rig.runner.held) == 1, "a second commit began while the first one ran"
    rig.runner.step()
    await first
    await settle()
    assert not any(push.done() for push in rest)
    rig.runner.step()
    await asyncio.gather(*rest)
    assert len(rig.journal.commits) == before + 2
    second = rig.journal.commits[-1]
    assert len(second.rows) == 3, "small pushes to one queue are one row"
    assert [batch.count for _, batch in second.rows] == [20, 20, 20]


async def test_whoever_is_called_back_is_as_the_commit_ends(rig: Rig) -> None:
    """Not a turn of the loop later, and what one of them does wrong is not the others' fault."""
    queue = await (await rig.start()).create_queue("q")
    wrong: list[BaseException] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: wrong.append(context["exception"]))
    rig.runner.is_held = True
    answers: list[Accepted] = []

    def fails(_: Accepted, __: BaseException | None) -> None:
        raise ValueError("this one")

    call_back(queue.push(bodies("a")), fails)
    call_back(queue.push(bodies("b")), lambda accepted, _: answers.append(accepted))
    awaited = queue.push(bodies("c"))
    await settle()
    rig.runner.step()
    assert [accepted.ranges for accepted in answers] == [[1, 2]]
    assert [str(error) for error in wrong] == ["this one"]
    assert (await awaited).ranges == [2, 3]


async def test_whoever_is_called_back_hears_of_a_failed_commit(rig: Rig) -> None:
    queue = await (await rig.start()).create_queue("q")
    heard: list[BaseException | None] = []
    failing = [ReadOnly("once")]
    rig.journal.refuse_commit = lambda _: failing.pop() if failing else None
    call_back(queue.push(bodies("a")), lambda _, error: heard.append(error))
    await asyncio.sleep(1)
    assert [type(error) for error in heard] == [ReadOnly]


async def test_a_delivery_to_one_who_waits_calls_for_no_commit_of_its_own(rig: Rig) -> None:
    queue = await (await rig.start()).create_queue("q")
    await asyncio.sleep(1)
    before = len(rig.journal.commits)
    waiting = asyncio.create_task(queue.pop(1, wait_ms=1_000))
    await settle()
    await queue.push(bodies("a"))
    assert texts(await waiting) == ["a"]
    await settle()
    assert len(rig.journal.commits) == before + 1
    await asyncio.sleep(1)
    assert len(rig.journal.commits) > before + 1, "it is written after all"


async def test_order_is_kept_across_commits_and_push_sizes(rig: Rig) -> None:
    queue = await (await rig.start()).create_queue("q")
    sent, pushes = 0, []
    for size in (1, 3, 40, 1, 100, 31, 32, 1, 1, 2):
        rig.runner.is_held = size % 2 == 0
        pushes.append(queue.push(numbered(size, sent)))
        sent += size
        await settle()
        rig.runner.release()
    accepted = [(await push).ranges for push in pushes]
    assert [ranges[0] for ranges in accepted] == [0, 1, 4, 44, 45, 145, 176, 208, 209, 210]
    assert texts(await queue.pop(1000)) == [str(number) for number in range(sent)]


async def test_a_waiter_that_gave_up_does_not_disturb_the_others(rig: Rig) -> None:
    queue = await (await rig.start()).create_queue("q")
    rig.runner.is_held = True

    async def push(batch: Batch) -> list[int]:
        return (await queue.push(batch)).ranges

    tasks = [asyncio.create_task(push(bodies(str(number)))) for number in range(5)]
    await settle()
    tasks[1].cancel()
    late = asyncio.create_task(push(bodies("late")))
    await settle()
    late.cancel()
    tasks[3].cancel()
    await settle()
    rig.runner.release()
    done = await asyncio.gather(*tasks, late, return_exceptions=True)
    kept = [each for each in done if not isinstance(each, BaseException)]
    assert kept == [[0, 1], [2, 3], [4, 5]]
    # They had been handed over already: who gives up waiting does not take back.
    assert texts(await queue.pop(10)) == ["0", "1", "2", "3", "4", "late"]


async def test_deliveries_wait_for_nothing_and_are_written_soon(rig: Rig) -> None:
    engine = await rig.start()
    queue = await engine.create_queue("q")
    await queue.push(bodies("a"))
    await asyncio.sleep(1)
    before = len(rig.journal.commits)
    rig.runner.is_held = True
    assert texts(await queue.pop(1)) == ["a"]
    rig.runner.release()
    assert len(rig.journal.commits) == before
    await asyncio.sleep(0.06)
    assert len(rig.journal.commits) == before + 1


async def test_closing_writes_what_waits(rig: Rig) -> None:
    queue = await (await rig.start()).create_queue("q")
    await queue.push(bodies("a"))
    await queue.pop(1, one_ack=True)
    push = queue.push(bodies("b"))
    engine = await rig.restart()
    assert push.done()
    (first, second) = await engine.queue("q").peek()
    assert (first.body, first.attempts) == (b"a", 1)
    assert (second.body, second.attempts) == (b"b", 0)


async def test_a_crash_forgets_an_attempt_but_no_message(rig: Rig) -> None:
    queue = await (await rig.start()).create_queue("q")
    await queue.push(bodies("a"))
    assert texts(await queue.pop(1)) == ["a"]
    engine = await rig.crash()
    (message,) = engine.queue("q").messages(await engine.queue("q").pop(1))
    assert (message.body, message.attempts) == (b"a", 1)
