"""`nexo.testing`: a broker for users' tests, in real time with real threads."""

from __future__ import annotations

import asyncio
import doctest
import os
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest

import nexo.testing
from nexo.testing import broker
from nexo.vocabulary.batch import batch_of
from nexo.vocabulary.errors import NotReady, QueueNotFound

if TYPE_CHECKING:
    from pathlib import Path

    from nexo.engine.engine import Engine


def test_the_example_in_the_documentation_is_true() -> None:
    failed, tried = doctest.testmod(nexo.testing)
    assert tried > 0
    assert failed == 0


def test_functions_of_every_kind_can_be_called() -> None:
    async def fill(engine: Engine) -> int:
        queue = await engine.create_queue("q")
        await queue.push(batch_of([b"a", b"b"]))
        return queue.info().depth

    with broker() as running:
        assert running.call(fill) == 2
        assert running.call(lambda engine: engine.queue("q").push_one(b"c")) == 2
        assert running.call(lambda engine: list(engine.queues)) == ["q"]
        assert running.engine.queue("q").name == "q"


def test_errors_are_raised_where_the_call_was_made() -> None:
    with broker() as running:
        with pytest.raises(QueueNotFound):
            running.call(lambda engine: engine.queue("nowhere"))
        with pytest.raises(QueueNotFound):
            running.call(lambda engine: engine.delete_queue("nowhere"))
        with pytest.raises(ZeroDivisionError):
            running.call(lambda _: 1 // 0)


def test_it_keeps_nothing_unless_it_is_given_a_directory(tmp_path: Path) -> None:
    for _ in range(2):
        with broker() as running:
            assert running.call(lambda engine: list(engine.queues)) == []
            running.call(lambda engine: engine.create_queue("q"))
    for known in ([], ["q"]):
        with broker(tmp_path / "data") as running:
            assert running.call(lambda engine: list(engine.queues)) == known
            running.call(lambda engine: engine.create_queue("q"))


def test_two_brokers_side_by_side_but_not_on_one_directory(tmp_path: Path) -> None:
    with broker(tmp_path) as one, broker() as two:
        one.call(lambda engine: engine.create_queue("q"))
        assert two.call(lambda engine: list(engine.queues)) == []
        with pytest.raises(NotReady, match="in use"), broker(tmp_path):
            pytest.fail("it was opened twice")
        assert one.call(lambda engine: list(engine.queues)) == ["q"]


def test_a_failing_test_closes_it_all_the_same(tmp_path: Path) -> None:
    before = set(threading.enumerate())  # those of other tests may end meanwhile
    running = broker(tmp_path)

    def fail() -> None:
        with running:
            running.call(lambda engine: engine.create_queue("q"))
            raise RuntimeError("the test failed")

    with pytest.raises(RuntimeError, match="the test failed"):
        fail()
    assert set(threading.enumerate()) <= before
    with pytest.raises(NotReady, match="closed"):
        running.call(lambda engine: engine.queues)
    with broker(tmp_path) as again:
        assert again.call(lambda engine: list(engine.queues)) == ["q"]


def test_a_pop_left_waiting_does_not_keep_it_from_closing() -> None:
    async def wait(engine: Engine) -> None:
        queue = await engine.create_queue("q")
        engine.waiting = asyncio.create_task(queue.pop(wait_ms=600_000))  # type: ignore[attr-defined]
        await asyncio.sleep(0)

    with broker() as running:
        running.call(wait)
    with pytest.raises(NotReady):
        running.engine.waiting.result()  # type: ignore[attr-defined]


def test_calls_from_many_threads() -> None:
    with broker() as running:
        queue = running.call(lambda engine: engine.create_queue("q"))

        def push() -> None:
            for _ in range(50):
                running.call(lambda _: queue.push_one(b"x"))

        threads = [threading.Thread(target=push) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert running.call(lambda _: queue.info().depth) == 200


def test_the_fixture(tmp_path: Path) -> None:
    test = tmp_path / "test_orders.py"
    test.write_text(
        "def test_orders(nexo_broker):\n"
        "    nexo_broker.call(lambda engine: engine.create_queue('orders'))\n"
        "    assert nexo_broker.call(lambda engine: list(engine.queues)) == ['orders']\n"
    )
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "nexo.testing_plugin", str(test)],
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "1 passed" in run.stdout, run.stdout + run.stderr
