"""taskiq: its own receiver and scheduler on a real broker."""

from __future__ import annotations

import asyncio
import contextlib
import time
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import taskiq_fastapi
from fastapi import FastAPI, Request
from taskiq import Context, SimpleRetryMiddleware, TaskiqDepends, TaskiqScheduler
from taskiq.depends.progress_tracker import ProgressTracker, TaskState
from taskiq.exceptions import ResultGetError
from taskiq.receiver import Receiver
from taskiq.result import TaskiqResult
from taskiq.scheduler.scheduled_task import ScheduledTask
from taskiq.serializers import PickleSerializer

from nexo.integrations import taskiq as adapter
from nexo.integrations.taskiq import NexoBroker, NexoResultBackend, NexoScheduleSource

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    import nexo
    from nexo.testing import Broker

WAIT_S = 20.0


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def within() -> None:
        async with asyncio.timeout(WAIT_S):
            await scenario()

    asyncio.run(within())


@contextlib.asynccontextmanager
async def working(broker: NexoBroker, **options: Any) -> AsyncIterator[None]:
    """A worker of taskiq's, in this process."""
    broker.is_worker_process = True
    await broker.startup()
    receiver = Receiver(broker, max_async_tasks=8, run_startup=False, **options)
    ending = asyncio.Event()
    task = asyncio.create_task(receiver.listen(ending))
    try:
        yield
    finally:
        ending.set()
        await task
        await broker.shutdown()


def made(broker: Broker, name: str, **options: Any) -> NexoBroker:
    results: NexoResultBackend[Any] = NexoResultBackend(broker.url, f"{name}.results")
    return NexoBroker(broker.url, name, **options).with_result_backend(results)


async def until(is_so: Callable[[], bool]) -> None:
    while not is_so():  # noqa: ASYNC110
        await asyncio.sleep(0.01)


def test_a_task_and_its_result(broker: Broker, client: nexo.Client, name: str) -> None:
    async def scenario() -> None:
        tasks = made(broker, name)

        @tasks.task(task_name=f"{name}.add")
        async def add(a: int, b: int) -> int:
            return a + b

        async with working(tasks):
            task = await add.kiq(1, 2)
            assert (await task.wait_result(timeout=10)).return_value == 3
            many = await asyncio.gather(*[add.kiq(n, n) for n in range(50)])
            results = await asyncio.gather(*[each.wait_result(timeout=10) for each in many])
            assert [each.return_value for each in results] == [2 * n for n in range(50)]
        assert client.queue(name).info().acked == 51

    run(scenario)


def test_labels_are_heeded(broker: Broker, client: nexo.Client, name: str) -> None:
    async def scenario() -> None:
        tasks, seen = made(broker, name, also=[f"{name}-other"]), []

        @tasks.task(task_name=f"{name}.note")
        async def note(what: str) -> None:
            seen.append(what)

        await tasks.startup()
        await note.kicker().with_labels(priority=1).kiq("low")
        await note.kicker().with_labels(priority=9).kiq("high")
        await note.kicker().with_labels(queue_name=f"{name}-other").kiq("other")
        await note.kicker().with_labels(delay=60).kiq("in a minute")
        await note.kicker().with_labels(deduplication_id="once").kiq("once")
        await note.kicker().with_labels(deduplication_id="once").kiq("once")
        assert [each.priority for each in client.queue(name).peek()] == [9, 1, 0, 0]
        assert client.queue(name).info().scheduled == 1
        assert client.queue(f"{name}-other").info().ready == 1
        async with working(tasks):
            await until(lambda: len(seen) == 4)
        assert sorted(seen) == ["high", "low", "once", "other"]
        assert seen.index("high") < seen.index("low")

    run(scenario)


def test_retries_are_the_brokers(broker: Broker, client: nexo.Client, name: str) -> None:
    async def scenario() -> None:
        tasks, calls = made(broker, name, settings={"max_attempts": 3}), []

        @tasks.task(task_name=f"{name}.fail")
        async def fail(succeeds_at: int) -> str:
            calls.append(succeeds_at)
            if calls.count(succeeds_at) < succeeds_at:
                raise LookupError("no such order")
            return "done"

        async with working(tasks):
            second = await (await fail.kiq(2)).wait_result(timeout=10)
            assert second.return_value == "done"
            never = await (await fail.kiq(99)).wait_result(timeout=10)
            assert never.is_err
            assert calls.count(99) == 3
            dead = client.queue(f"{name}_dlq")
            await until(lambda: dead.info().depth == 1)
        (letter,) = dead.peek()
        assert letter.dead_letter
        assert letter.dead_letter.reason == "LookupError: no such order"
        assert letter.attributes["name"] == f"{name}.fail"

    run(scenario)


def test_retries_may_be_taskiqs(broker: Broker, client: nexo.Client, name: str) -> None:
    async def scenario() -> None:
        tasks, calls = made(broker, name).with_middlewares(SimpleRetryMiddleware()), []

        @tasks.task(task_name=f"{name}.fail", retry_on_error=True, max_retries=2)
        async def fail() -> None:
            calls.append(1)
            raise LookupError("no such order")

        async with working(tasks):
            assert (await (await fail.kiq()).wait_result(timeout=10)).is_err
        assert len(calls) == 2
        assert client.queue(name).info().acked == 2

    run(scenario)


def test_what_no_worker_knows_is_kept(broker: Broker, client: nexo.Client, name: str) -> None:
    """taskiq acks what it cannot read, or has no task for."""

    async def scenario() -> None:
        tasks = made(broker, name, settings={"max_attempts": 1})

        @tasks.task(task_name=f"{name}.gone")
        async def gone() -> None: ...

        await tasks.startup()
        await gone.kiq()
        await tasks.client.queue(name).push("hello")
        del tasks.local_task_registry[f"{name}.gone"]
        dead = client.queue(f"{name}_dlq", create=True)
        async with working(tasks):
            await until(lambda: dead.info().depth == 2)

    run(scenario)


def test_a_queue_that_was_deleted_is_created_anew(
    broker: Broker, client: nexo.Client, name: str
) -> None:
    async def scenario() -> None:
        tasks = made(broker, name)

        @tasks.task(task_name=f"{name}.note")
        async def note() -> None: ...

        await tasks.startup()
        client.queue(name).delete()
        await note.kiq()
        assert client.queue(name).info().ready == 1
        await tasks.shutdown()

    run(scenario)


def test_acks_when_received_and_by_hand(broker: Broker, client: nexo.Client, name: str) -> None:
    async def scenario() -> None:
        tasks, acked = made(broker, name), []

        @tasks.task(task_name=f"{name}.early", ack_type="when_received")
        async def early() -> None:
            acked.append(client.queue(name).info().acked)
            raise ValueError("too late to matter")

        @tasks.task(task_name=f"{name}.manual", ack_type="manual")
        async def manual(context: Context = TaskiqDepends()) -> None:  # noqa: B008
            await context.ack()
            acked.append(client.queue(name).info().acked)

        async with working(tasks):
            await (await early.kiq()).wait_result(timeout=10)
            await (await manual.kiq()).wait_result(timeout=10)
        assert acked == [1, 2]

    run(scenario)


def test_a_worker_that_stops_gives_back_what_it_has_not_begun(
    broker: Broker, client: nexo.Client, name: str
) -> None:
    async def scenario() -> None:
        tasks, begun = made(broker, name), asyncio.Event()

        @tasks.task(task_name=f"{name}.slow")
        async def slow() -> None:
            begun.set()
            await asyncio.sleep(0.3)

        await tasks.startup()
        await asyncio.gather(*[slow.kiq() for _ in range(40)])
        async with working(tasks, max_prefetch=2):
            await begun.wait()
        info = client.queue(name).info()
        assert info.in_flight == 0
        assert info.nacked == 0
        assert 1 <= info.acked < 40
        assert info.acked + info.ready == 40
        assert {each.attempts for each in client.queue(name).peek(40)} == {0}

    run(scenario)


@pytest.mark.parametrize("serializer", [None, PickleSerializer()], ids=["json", "pickle"])
def test_results(broker: Broker, name: str, serializer: Any) -> None:
    async def scenario() -> None:
        one: Any = NexoResultBackend(broker.url, name, ttl=60, serializer=serializer)
        other: Any = NexoResultBackend(broker.url, name, ttl=60, serializer=serializer)
        await one.startup()
        await other.startup()
        assert not await other.is_result_ready("a")
        with pytest.raises(ResultGetError):
            await other.get_result("a")
        result: Any = TaskiqResult(
            is_err=False, log="words", return_value={"n": 1}, execution_time=0.5
        )
        await one.set_result("a", result)
        assert await other.is_result_ready("a")
        assert (await other.get_result("a")).return_value == {"n": 1}
        assert (await other.get_result("a")).log is None
        assert (await other.get_result("a", with_logs=True)).log == "words"
        error: Any = TaskiqResult(
            is_err=True, return_value=None, execution_time=0.1, error=ValueError("no")
        )
        await one.set_result("b", error)
        with pytest.raises(ValueError, match="no"):
            (await other.get_result("b")).raise_for_error()
        assert await other.get_progress("a") is None
        await one.shutdown()
        await other.shutdown()

    run(scenario)


def test_results_beyond_what_is_remembered(
    broker: Broker, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nexo.integrations.results.KNOWN_MAX", 3)

    async def scenario() -> None:
        backend: Any = NexoResultBackend(broker.url, name)
        await backend.startup()
        for n in range(6):
            await backend.set_result(
                str(n), TaskiqResult(is_err=False, return_value=n, execution_time=0)
            )
        assert [(await backend.get_result(str(n))).return_value for n in range(6)] == [*range(6)]
        assert not await backend.is_result_ready("6")
        await backend.shutdown()

    run(scenario)


def test_progress(broker: Broker, name: str) -> None:
    async def scenario() -> None:
        tasks = made(broker, name)
        go = asyncio.Event()

        @tasks.task(task_name=f"{name}.long")
        async def long(progress: ProgressTracker[Any] = TaskiqDepends()) -> None:  # noqa: B008
            await progress.set_progress(TaskState.STARTED, {"done": 1})
            go.set()

        async with working(tasks):
            task = await long.kiq()
            await go.wait()
            found = await task.get_progress()
            assert found is not None
            assert (found.state, found.meta) == (TaskState.STARTED, {"done": 1})

    run(scenario)


def scheduled(name: str, **when: Any) -> ScheduledTask:
    return ScheduledTask(task_name=name, labels={}, args=[], kwargs={}, **when)


def test_schedules_survive_and_are_shared(broker: Broker, name: str) -> None:
    async def scenario() -> None:
        one, other = NexoScheduleSource(broker.url, name), NexoScheduleSource(broker.url, name)
        await one.startup()
        await other.startup()
        cron = scheduled("a", cron="*/5 * * * *", cron_offset="Europe/Rome")
        single = scheduled("b", time=datetime(2030, 1, 1, tzinfo=UTC))
        every = scheduled("c", interval=timedelta(seconds=30))
        for each in (cron, single, every):
            await one.add_schedule(each)
        assert await other.get_schedules() == [cron, single, every]
        await other.delete_schedule(cron.schedule_id)
        assert await one.get_schedules() == [single, every]
        await one.shutdown()
        await other.shutdown()
        later = NexoScheduleSource(broker.url, name)
        assert await later.get_schedules() == [single, every]
        await later.shutdown()

    run(scenario)


def test_each_time_is_sent_once_by_any_number_of_schedulers(
    broker: Broker, client: nexo.Client, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time()  # and it stays so: a minute later it is due again
    monkeypatch.setattr(adapter, "time", SimpleNamespace(time=lambda: now))

    async def scenario() -> None:
        brokers = [made(broker, name) for _ in range(3)]
        sources = [NexoScheduleSource(broker.url, f"{name}.schedules") for _ in range(3)]
        schedulers = [TaskiqScheduler(b, [s]) for b, s in zip(brokers, sources, strict=True)]
        for scheduler, source in zip(schedulers, sources, strict=True):
            await scheduler.startup()
            await source.startup()
        soon = datetime.now(UTC) + timedelta(seconds=1)
        for each in (scheduled("once", time=soon), scheduled("cron", cron="* * * * *")):
            await sources[0].add_schedule(each)
        for scheduler, source in zip(schedulers, sources, strict=True):
            for task in await source.get_schedules():
                await scheduler.on_ready(source, task)
        seen = [each.attributes["name"] for each in client.queue(name).peek()]
        assert sorted(seen) == ["cron", "once"]
        assert [each.task_name for each in await sources[2].get_schedules()] == ["cron"]
        for scheduler, source in zip(schedulers, sources, strict=True):
            await source.shutdown()
            await scheduler.shutdown()

    run(scenario)


def test_schedules_are_written_again_before_they_are_forgotten(
    broker: Broker, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapter, "SCHEDULES_MAX", 10)

    async def scenario() -> None:
        source, other = NexoScheduleSource(broker.url, name), NexoScheduleSource(broker.url, name)
        await source.startup()
        kept, removed = scheduled("kept", cron="1 1 1 1 1"), scheduled("removed", cron="* * * * *")
        await source.add_schedule(kept)
        await source.add_schedule(removed)
        for _ in range(4):
            for _ in range(3):
                passing = scheduled("passing", time=datetime(2030, 1, 1, tzinfo=UTC))
                await source.add_schedule(passing)
                await source.delete_schedule(passing.schedule_id)
            assert {each.task_name for each in await source.get_schedules()} == {"kept", "removed"}
        # One has written it again without having read that another removed it.
        seen = source._next
        await other.delete_schedule(removed.schedule_id)
        again = adapter._Change(removed.schedule_id, removed.model_dump(mode="json"), seen)
        await other._topic.publish(again)
        assert [each.task_name for each in await source.get_schedules()] == ["kept"]
        assert [each.task_name for each in await other.get_schedules()] == ["kept"]
        await source.shutdown()
        await other.shutdown()

    run(scenario)


def test_clocks_that_differ_agree_on_what_is_due() -> None:
    cron, every = scheduled("a", cron="* * * * *"), scheduled("b", interval=10)
    assert adapter._due(cron, 59.8) == adapter._due(cron, 60.9)
    assert adapter._due(cron, 60.0) != adapter._due(cron, 120.0)
    assert adapter._due(every, 99.9) == adapter._due(every, 100.4)
    assert adapter._due(every, 100.0) != adapter._due(every, 110.0)


def test_fastapi(broker: Broker, name: str) -> None:
    """By taskiq-fastapi: a task gets what a route would, of an app that was started."""
    tasks = NexoBroker(broker.url, name).with_result_backend(NexoResultBackend(broker.url, name))

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, Any]]:
        yield {"rate": 1.2}

    app = FastAPI(lifespan=lifespan)
    app.state.currency = "EUR"
    taskiq_fastapi.init(tasks, app)

    def rate_of(request: Request = TaskiqDepends()) -> float:  # noqa: B008
        return float(request.state.rate)

    @tasks.task(task_name="price")
    async def price(
        net: float,
        request: Request = TaskiqDepends(),  # noqa: B008
        rate: float = TaskiqDepends(rate_of),
    ) -> str:
        return f"{net * rate:.2f} {request.app.state.currency}"

    async def scenario() -> None:
        async with working(tasks):
            task = await price.kiq(10)
            assert (await task.wait_result(timeout=WAIT_S)).return_value == "12.00 EUR"

    run(scenario)
