"""A worker in this process: what is acked, what comes back, and when it ends."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import Counter
from typing import Any

import pytest

import nexo
from tests.client.eventually import eventually
from tests.client.worker.letters import reasons

Bodies = list[list[str]]


def bodies_of(event: dict[str, Any]) -> list[str]:
    return [record["body"] for record in event["Records"]]


def failures(*ids: str) -> dict[str, Any]:
    return {"batchItemFailures": [{"itemIdentifier": each} for each in ids]}


def test_returning_acks(client: nexo.Client, work: Any) -> None:
    queue = client.create_queue("q")
    queue.push_batch([str(number) for number in range(25)])
    calls: Bodies = []
    running = work("q", lambda event, context: calls.append(bodies_of(event)))
    eventually(lambda: queue.info().depth == 0)
    assert [body for call in calls for body in call] == [str(number) for number in range(25)]
    assert max(map(len, calls)) <= 10
    figures = running.stop()
    assert (figures.handled, figures.failed, figures.in_flight) == (25, 0, 0)
    assert figures.batches == len(calls)


def test_raising_gives_all_back(client: nexo.Client, work: Any) -> None:
    queue = client.create_queue("q", max_attempts=2)
    queue.push_batch(["a", "b"])

    def fail(event: Any, context: Any) -> None:
        raise ValueError("no such order")

    running = work("q", fail)
    assert reasons(client, 2) == {
        "a": "ValueError: no such order",
        "b": "ValueError: no such order",
    }
    assert running.stop().failed == 4


def test_leaving_python_is_a_failure_too(client: nexo.Client, work: Any) -> None:
    queue = client.create_queue("q", max_attempts=1)
    queue.push("a")

    def leave(event: Any, context: Any) -> None:
        raise SystemExit(3)

    work("q", leave)
    assert reasons(client, 1) == {"a": "SystemExit: 3"}


def test_some_fail(client: nexo.Client, work: Any) -> None:
    queue = client.create_queue("q", max_attempts=3)
    queue.push_batch(["good", "bad", "fine"])
    seen: list[str] = []

    def handle(event: Any, context: Any) -> Any:
        seen.extend(bodies_of(event))
        bad = [each["messageId"] for each in event["Records"] if each["body"] == "bad"]
        return failures(*bad)

    running = work("q", handle)
    eventually(lambda: queue.info().dead_lettered == 1)
    assert Counter(seen) == {"good": 1, "bad": 3, "fine": 1}
    figures = running.stop()
    assert (figures.handled, figures.failed) == (2, 3)


def test_an_answer_that_makes_no_sense_fails_all(client: nexo.Client, work: Any) -> None:
    client.create_queue("q", max_attempts=1).push_batch(["a", "b"])
    work("q", lambda event, context: failures("someone else's"))
    assert all("is not in the batch" in reason for reason in reasons(client, 2).values())


def test_backoff_is_kept(client: nexo.Client, work: Any) -> None:
    queue = client.create_queue("q", backoff=nexo.Backoff(initial=60.0))
    queue.push("a")
    work("q", lambda event, context: failures(event["Records"][0]["messageId"]))
    eventually(lambda: queue.info().scheduled == 1)


def test_threads(client: nexo.Client, work: Any) -> None:
    queue = client.create_queue("q")
    queue.push_batch([str(number) for number in range(4)])
    together = threading.Barrier(4, timeout=20)
    running = work("q", lambda event, context: together.wait(), concurrency=4, batch_size=1)
    eventually(lambda: queue.info().depth == 0)
    assert running.stop().handled == 4


def test_coroutines_share_a_loop(client: nexo.Client, work: Any) -> None:
    queue = client.create_queue("q")
    queue.push_batch([str(number) for number in range(4)])
    loops: set[int] = set()
    here: list[asyncio.Event] = []

    async def handle(event: Any, context: Any) -> None:
        loops.add(id(asyncio.get_running_loop()))
        here.append(asyncio.Event())
        if len(here) == 4:
            for each in here:
                each.set()
        await here[-1].wait()

    running = work("q", handle, concurrency=4, batch_size=1, timeout=20.0)
    eventually(lambda: queue.info().depth == 0)
    assert len(loops) == 1
    assert running.stop().handled == 4


def test_a_coroutine_that_raises_or_partly_fails(client: nexo.Client, work: Any) -> None:
    queue = client.create_queue("q", max_attempts=1)
    queue.push_batch(["raise", "list", "done"])

    async def handle(event: Any, context: Any) -> Any:
        (record,) = event["Records"]
        if record["body"] == "raise":
            raise TimeoutError("of its own")
        return failures(record["messageId"]) if record["body"] == "list" else None

    running = work("q", handle, batch_size=1)
    eventually(lambda: queue.info().depth == 0 and queue.info().dead_lettered == 2)
    figures = running.stop()
    assert (figures.handled, figures.failed) == (1, 2)
    assert reasons(client, 2)["raise"] == "TimeoutError: of its own"


@pytest.mark.parametrize("kind", ["thread", "coroutine"])
def test_a_timeout(client: nexo.Client, work: Any, kind: str) -> None:
    queue = client.create_queue("q", max_attempts=1)
    queue.push("slow")
    queue.push("quick")
    let_go, cancelled = threading.Event(), threading.Event()

    def hang(event: Any, context: Any) -> None:
        if bodies_of(event) == ["slow"]:
            let_go.wait(30)

    async def hang_async(event: Any, context: Any) -> None:
        if bodies_of(event) == ["slow"]:
            try:
                await asyncio.sleep(30)
            except asyncio.CancelledError:
                cancelled.set()
                raise

    handler = hang if kind == "thread" else hang_async
    running = work("q", handler, timeout=2.0, batch_size=1)
    eventually(lambda: queue.info().acked == 1)  # the slot works on
    assert reasons(client, 1) == {"slow": "timed out after 2 s"}
    assert kind == "thread" or cancelled.wait(10)
    let_go.set()
    figures = running.stop()
    assert (figures.handled, figures.failed, figures.lost) == (1, 1, 0)


def test_the_time_that_is_left(client: nexo.Client, work: Any) -> None:
    client.create_queue("q").push("x")
    left: list[int] = []
    running = work(
        "q",
        lambda event, context: left.append(context.get_remaining_time_in_millis()),
        timeout=30.0,
        function_name="billing",
    )
    eventually(lambda: bool(left))
    assert 20_000 < left[0] <= 30_000
    running.stop()


def test_a_lease_is_extended_while_the_handler_works(client: nexo.Client, work: Any) -> None:
    queue = client.create_queue("q", visibility_timeout=3.0)
    queue.push("long")
    calls: Bodies = []

    def handle(event: Any, context: Any) -> None:
        calls.append(bodies_of(event))
        time.sleep(4.0)

    running = work("q", handle)
    eventually(lambda: queue.info().acked == 1)
    figures = running.stop()
    assert calls == [["long"]]
    assert (figures.handled, figures.lost) == (1, 0)


def test_a_batch_window_waits_for_more(client: nexo.Client, work: Any) -> None:
    queue = client.create_queue("q")
    calls: Bodies = []
    work(
        "q",
        lambda event, context: calls.append(bodies_of(event)),
        batch_size=3,
        batch_window=20.0,
    )
    for number in range(3):
        queue.push(str(number))
    eventually(lambda: queue.info().acked == 3)
    assert calls == [["0", "1", "2"]]


def test_a_window_that_ends(client: nexo.Client, work: Any) -> None:
    queue = client.create_queue("q")
    queue.push("alone")
    work("q", lambda event, context: None, batch_size=100, batch_window=0.3)
    eventually(lambda: queue.info().acked == 1)


def test_stopping_finishes_what_runs_and_gives_back_the_rest(
    client: nexo.Client, work: Any
) -> None:
    queue = client.create_queue("q", max_attempts=1)
    queue.push_batch([str(number) for number in range(10)])
    begun, let_go = threading.Event(), threading.Event()

    def handle(event: Any, context: Any) -> None:
        begun.set()
        assert let_go.wait(20)

    running = work("q", handle, batch_size=2)
    assert begun.wait(20)
    eventually(lambda: queue.info().in_flight == 4)  # two at work, two prefetched
    running.worker.stop()
    eventually(lambda: queue.info().ready == 8)
    let_go.set()
    figures = running.wait()
    info = queue.info()
    assert (figures.handled, figures.failed) == (2, 0)
    assert (info.acked, info.ready, info.in_flight) == (2, 8, 0)
    assert [each.attempts for each in queue.pop_batch(10)] == [1] * 8


def test_leases_are_kept_while_a_stop_waits(client: nexo.Client, work: Any) -> None:
    queue = client.create_queue("q", visibility_timeout=3.0, max_attempts=1)
    queue.push("long")
    begun, let_go = threading.Event(), threading.Event()

    def handle(event: Any, context: Any) -> None:
        begun.set()
        assert let_go.wait(20)

    running = work("q", handle)
    assert begun.wait(20)
    running.worker.stop()
    assert queue.pop(wait=4.0) is None  # longer than the lease
    let_go.set()
    figures = running.wait()
    assert (figures.handled, figures.lost) == (1, 0)
    assert queue.info().acked == 1


def test_stopping_within_a_window(client: nexo.Client, work: Any) -> None:
    queue = client.create_queue("q")
    queue.push("x")
    running = work("q", lambda event, context: None, batch_window=60.0)
    eventually(lambda: queue.info().in_flight == 1)
    assert running.stop().handled == 0
    assert queue.info().ready == 1


@pytest.mark.parametrize("concurrency", [1, 4])
def test_stopping_while_idle(client: nexo.Client, work: Any, concurrency: int) -> None:
    client.create_queue("q")
    running = work("q", lambda event, context: None, concurrency=concurrency)
    eventually(lambda: client.queue("q").info().consumers == 1)
    began = time.monotonic()
    running.stop()
    assert time.monotonic() - began < 5


def test_idle_ends_it(client: nexo.Client) -> None:
    client.create_queue("q").push_batch(["a", "b"])
    worker = nexo.Worker(client, "q", lambda event, context: None)
    figures = worker.run(idle=2.0, signals=False)
    assert figures.handled == 2


def test_a_queue_that_goes_away_ends_it(client: nexo.Client, work: Any) -> None:
    queue = client.create_queue("q")
    running = work("q", lambda event, context: None, concurrency=3)
    eventually(lambda: queue.info().consumers == 1)
    queue.delete()
    running.wait()
    assert isinstance(running.failure, nexo.QueueNotFound)


def test_a_restart_of_the_broker_is_lived_through(
    client: nexo.Client, work: Any, broker: Any
) -> None:
    queue = client.create_queue("q")
    queue.push("before")
    calls: Bodies = []
    running = work("q", lambda event, context: calls.append(bodies_of(event)))
    eventually(lambda: queue.info().acked == 1)
    broker.restart()
    queue.push("after")
    eventually(lambda: ["after"] in calls)
    eventually(lambda: queue.info().depth == 0)
    running.stop()


def test_handlers_that_hang_do_not_fill_the_machine(
    client: nexo.Client, work: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nexo.client.worker.thread.WORKER_STUCK_MAX", 3)
    queue = client.create_queue("q", max_attempts=None)
    queue.push_batch(["a"])
    let_go = threading.Event()
    calls: list[float] = []

    def hang(event: Any, context: Any) -> None:
        calls.append(time.monotonic())
        let_go.wait(30)

    running = work("q", hang, timeout=0.05)
    eventually(lambda: running.worker.figures.failed == 3)
    time.sleep(0.5)  # time in which a fourth could begin, and must not
    assert len(calls) == 3
    let_go.set()
    eventually(lambda: queue.info().depth == 0)
    running.stop()


def test_wrong_values_are_refused(client: nexo.Client) -> None:
    def handle(event: Any, context: Any) -> None: ...

    for wrong in ({"batch_size": 0}, {"concurrency": 0}, {"timeout": 0}, {"batch_window": -1}):
        with pytest.raises(nexo.InvalidArgument):
            nexo.Worker(client, "q", handle, **wrong)  # type: ignore[arg-type]
    for handler in (lambda: None, "nowhere", "os:nothing", "no_such_module:handler", 7):
        with pytest.raises(nexo.InvalidArgument):
            nexo.Worker(client, "q", handler)  # type: ignore[arg-type]
    with pytest.raises(nexo.InvalidArgument, match="top of a module"):
        nexo.Worker(client, "q", lambda event, context: None, processes=True)
    assert nexo.Worker(client, "q", os.link).function_name == "posix.link"


def test_several_queues(client: nexo.Client, work: Any) -> None:
    """Each has its own slots, so one that is stuck does not keep the other waiting."""
    for name in ("slow", "quick"):
        client.create_queue(name)
    client.queue("slow").push_batch(["a", "b"])
    client.queue("quick").push_batch(["c", "d", "e"])
    go, seen = threading.Event(), []

    def handle(event: Any, context: Any) -> None:
        (record,) = event["Records"]
        seen.append((record["eventSourceARN"].rpartition(":")[2], record["body"]))
        if record["body"] == "a":
            assert go.wait(20)

    running = work(["slow", "quick", "slow"], handle, batch_size=1)
    eventually(lambda: len(seen) == 4)
    assert ("slow", "b") not in seen
    go.set()
    eventually(lambda: running.worker.figures.handled == 5)
    assert client.queue("slow").info().acked == 2
    assert client.queue("quick").info().acked == 3


def test_no_queue_is_refused(client: nexo.Client) -> None:
    with pytest.raises(nexo.InvalidArgument, match="needs at least one queue"):
        nexo.Worker(client, [], lambda event, context: None)
