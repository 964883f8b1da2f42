"""Celery on `nexo://`: its own worker, remote control and events."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from celery import Celery
from celery.contrib.testing.worker import start_worker

if TYPE_CHECKING:
    from collections.abc import Iterator

    import nexo
    from nexo.testing import Broker

QUEUE = "celery-tests"


@pytest.fixture(scope="module")
def app(broker: Broker) -> Any:
    made = Celery("tests", broker=broker.url, backend="rpc://")
    made.conf.update(
        task_default_queue=QUEUE,
        task_send_sent_event=True,
        worker_send_task_events=True,
        broker_connection_retry_on_startup=True,
    )

    @made.task(name="add")
    def add(a: int, b: int) -> int:
        return a + b

    @made.task(name="fail", bind=True, max_retries=2, default_retry_delay=0.05)
    def fail(self: Any, until: int) -> int:
        if self.request.retries < until:
            raise self.retry()
        return int(self.request.retries)

    return made


@pytest.fixture(scope="module")
def worker(app: Any) -> Iterator[str]:
    with start_worker(
        app, pool="threads", concurrency=4, perform_ping_check=False, shutdown_timeout=30
    ) as running:
        yield running.hostname


@pytest.mark.usefixtures("worker")
class TestWorker:
    def test_results(self, app: Any) -> None:
        add = app.tasks["add"]
        results = [add.delay(n, n) for n in range(50)]
        assert [each.get(timeout=20) for each in results] == [2 * n for n in range(50)]

    def test_retries(self, app: Any) -> None:
        assert app.tasks["fail"].delay(2).get(timeout=20) == 2

    def test_a_countdown_is_held_by_the_broker(
        self, app: Any, worker: str, client: nexo.Client
    ) -> None:
        before = client.queue(QUEUE).info().scheduled
        app.tasks["add"].apply_async((1, 2), countdown=3600)
        assert client.queue(QUEUE).info().scheduled == before + 1
        asked = app.control.inspect([worker], timeout=10)
        assert asked.scheduled() == {worker: []}  # the worker has nothing to remember
        began = time.monotonic()
        assert app.tasks["add"].apply_async((1, 2), countdown=0.5).get(timeout=20) == 3
        assert time.monotonic() - began >= 0.5

    def test_remote_control(self, app: Any, worker: str) -> None:
        assert app.control.ping([worker], timeout=10) == [{worker: {"ok": "pong"}}]
        asked = app.control.inspect([worker], timeout=10)
        assert [each["name"] for each in asked.active_queues()[worker]] == [QUEUE]
        assert asked.stats()[worker]["broker"]["transport"] == "nexo"

    def test_events(self, app: Any) -> None:
        seen: list[str] = []
        done = threading.Event()

        def note(event: dict[str, Any]) -> None:
            seen.append(event["type"])
            if event["type"] == "task-succeeded":
                done.set()

        with app.connection() as connection:
            receiver = app.events.Receiver(connection, handlers={"*": note})

            def capture() -> None:
                for _ in receiver.itercapture(limit=None, timeout=20, wakeup=False):
                    if done.is_set():
                        return

            thread = threading.Thread(target=capture, daemon=True)
            thread.start()
            ends = time.monotonic() + 20
            while not done.wait(0.3) and time.monotonic() < ends:
                app.tasks["add"].delay(1, 1)
            assert done.is_set(), seen
            thread.join(20)
        assert {"task-received", "task-started", "task-succeeded"} <= set(seen)
