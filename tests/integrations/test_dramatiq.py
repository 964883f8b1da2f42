"""dramatiq: its own worker on a real broker."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import dramatiq
import pytest
from dramatiq import errors
from dramatiq.results import ResultFailure, ResultMissing, Results, ResultTimeout

from nexo.integrations.dramatiq import NexoBroker, NexoResults
from tests.client.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import nexo
    from nexo.testing import Broker


@pytest.fixture
def made(broker: Broker, name: str) -> Iterator[Callable[..., NexoBroker]]:
    """Brokers of dramatiq's on queues of their own, with workers that are stopped."""
    brokers: list[NexoBroker] = []

    def make(**options: Any) -> NexoBroker:
        brokers.append(NexoBroker(broker.url, namespace=name, **options))
        return brokers[-1]

    yield make
    for each in brokers:
        each.close()


@pytest.fixture
def work() -> Iterator[Callable[..., dramatiq.Worker]]:
    workers: list[dramatiq.Worker] = []

    def start(broker: NexoBroker, threads: int = 4) -> dramatiq.Worker:
        workers.append(dramatiq.Worker(broker, worker_timeout=100, worker_threads=threads))
        workers[-1].start()
        return workers[-1]

    yield start
    for each in workers:
        each.stop()


def test_actors(made: Any, work: Any, client: nexo.Client, name: str) -> None:
    tasks, seen = made(), []

    @dramatiq.actor(broker=tasks)
    def note(number: int) -> None:
        seen.append(number)

    for number in range(100):
        note.send(number)
    work(tasks)
    tasks.join("default", timeout=20_000)
    assert sorted(seen) == [*range(100)]
    info = client.queue(f"{name}.default").info()
    assert (info.acked, info.depth) == (100, 0)


def test_delays_are_the_brokers(made: Any, work: Any, client: nexo.Client, name: str) -> None:
    tasks, seen = made(), []

    @dramatiq.actor(broker=tasks)
    def note(what: str) -> None:
        seen.append((what, time.monotonic()))

    began = time.monotonic()
    note.send_with_options(args=("in ten days",), delay=10 * 86_400_000)
    note.send_with_options(args=("later",), delay=4_000)
    note.send_with_options(args=("soon",), delay=2_000)
    assert client.queue(f"{name}.default").info().scheduled == 3
    assert tasks.get_declared_delay_queues() == set()
    work(tasks)
    eventually(lambda: len(seen) == 2)
    came = {what: at - began for what, at in seen}
    assert came.keys() == {"soon", "later"}  # past what was sent before them
    assert came["soon"] >= 2.0
    assert came["later"] >= 4.0


def test_priorities(made: Any, client: nexo.Client, name: str) -> None:
    tasks = made()

    @dramatiq.actor(broker=tasks, broker_priority=5)
    def note() -> None: ...

    note.send()
    note.send_with_options(broker_priority=9)
    assert [each.priority for each in client.queue(f"{name}.default").peek()] == [9, 5]


def test_retries_of_dramatiq(made: Any, work: Any, client: nexo.Client, name: str) -> None:
    tasks, calls = made(), []

    @dramatiq.actor(broker=tasks, max_retries=2, min_backoff=10, max_backoff=20)
    def fail() -> None:
        calls.append(1)
        raise LookupError("no such order")

    fail.send()
    work(tasks)
    tasks.join("default", timeout=20_000)
    assert len(calls) == 3
    (dead,) = client.queue(f"{name}.default_dlq").peek()
    assert dead.attributes["reason"] == "LookupError: no such order"
    assert dead.attributes["actor"] == "fail"


def test_retries_of_nexo(made: Any, work: Any, client: nexo.Client, name: str) -> None:
    tasks, calls = made(retries="nexo", settings={"max_attempts": 3}), []

    @dramatiq.actor(broker=tasks)
    def fail() -> None:
        calls.append(1)
        raise LookupError("no such order")

    fail.send()
    work(tasks)
    tasks.join("default", timeout=20_000)
    assert len(calls) == 3
    (dead,) = client.queue(f"{name}.default_dlq").peek()
    assert dead.dead_letter
    assert dead.dead_letter.reason == "LookupError: no such order"
    assert dead.dead_letter.attempts == 3


@pytest.mark.parametrize("retries", ["dramatiq", "nexo"])
def test_what_no_worker_knows(
    made: Any, work: Any, client: nexo.Client, name: str, retries: str
) -> None:
    tasks = made(retries=retries)

    @dramatiq.actor(broker=tasks)
    def gone() -> None: ...

    gone.send()
    tasks.queue("default").push("hello")
    del tasks.actors["gone"]
    work(tasks)
    tasks.join("default", timeout=20_000)
    reasons = sorted(
        each.attributes["reason"] for each in client.queue(f"{name}.default_dlq").peek()
    )
    assert reasons == ["ActorNotFound: gone", "invalid_body: no message of dramatiq"]
    assert tasks.get_queue_message_counts("default") == (0, 0, 2)


def test_a_worker_that_stops_gives_back_what_it_has_not_begun(
    made: Any, client: nexo.Client, name: str
) -> None:
    tasks, begun = made(), threading.Event()

    @dramatiq.actor(broker=tasks)
    def slow() -> None:
        begun.set()
        time.sleep(0.3)

    for _ in range(10):
        slow.send()
    worker = dramatiq.Worker(tasks, worker_timeout=100, worker_threads=1)
    worker.start()
    assert begun.wait(20)
    worker.stop()
    info = client.queue(f"{name}.default").info()
    assert info.acked >= 1
    assert info.acked + info.ready == 10
    assert info.nacked == 0


def test_undeclared_queues_and_joins(made: Any) -> None:
    tasks = made()
    for refused in (tasks.consume, tasks.flush, tasks.join):
        with pytest.raises(errors.QueueNotFound):
            refused("nowhere")

    @dramatiq.actor(broker=tasks)
    def note() -> None: ...

    note.send()
    note.send_with_options(delay=60_000)
    assert tasks.get_queue_message_counts("default") == (1, 1, 0)
    with pytest.raises(errors.QueueJoinTimeout):
        tasks.join("default", timeout=100, min_successes=3)
    tasks.flush_all()
    tasks.join("default", timeout=100)


def test_a_queue_that_was_deleted_is_created_anew(
    made: Any, work: Any, client: nexo.Client, name: str
) -> None:
    tasks, seen = made(), []

    @dramatiq.actor(broker=tasks)
    def note(number: int) -> None:
        seen.append(number)

    work(tasks)
    note.send(1)
    eventually(lambda: seen == [1])
    tasks.join("default", timeout=20_000)
    client.queue(f"{name}.default").delete()
    note.send(2)
    eventually(lambda: seen == [1, 2], 30)


def test_a_broker_that_is_away() -> None:
    tasks = NexoBroker("nexo://127.0.0.1:1", timeout=0.2)  # connects when it is used

    @dramatiq.actor(broker=tasks)
    def note() -> None: ...

    with pytest.raises(errors.ConnectionClosed):
        note.send()


def test_results(made: Any, work: Any, broker: Broker, name: str) -> None:
    tasks = made()
    backend = NexoResults(broker.url, f"{name}.results")
    tasks.add_middleware(Results(backend=backend))

    @dramatiq.actor(broker=tasks, store_results=True)
    def add(a: int, b: int) -> int:
        return a + b

    @dramatiq.actor(broker=tasks, store_results=True, max_retries=0)
    def fail() -> None:
        raise LookupError("no such order")

    early = add.send(1, 2)
    with pytest.raises(ResultMissing):
        early.get_result(backend=backend)
    with pytest.raises(ResultTimeout):
        early.get_result(backend=backend, block=True, timeout=100)
    work(tasks)
    assert early.get_result(backend=backend, block=True, timeout=20_000) == 3
    many = dramatiq.group([add.message(n, n) for n in range(20)], broker=tasks).run()
    assert list(many.get_results(block=True, timeout=20_000)) == [2 * n for n in range(20)]
    with pytest.raises(ResultFailure, match="no such order"):
        fail.send().get_result(backend=backend, block=True, timeout=20_000)


def test_results_have_their_time(broker: Broker, name: str) -> None:
    backend = NexoResults(broker.url, name)
    message: Any = dramatiq.Message("default", "actor", (), {}, {})
    backend.store_result(message, "kept", 60_000)
    assert backend.get_result(message) == "kept"
    backend.store_result(message, "over", -1)
    with pytest.raises(ResultMissing):
        backend.get_result(message)
