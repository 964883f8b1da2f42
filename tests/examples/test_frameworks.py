"""The examples with frameworks do what they say, on a broker in this process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

import nexo
from nexo.testing import broker as broker_in_process

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nexo.testing import Broker

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    with broker_in_process() as running:
        monkeypatch.setenv("NEXO_URL", running.url)
        yield running


def start(*command: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", *command],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )


def end(running: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):  # it has ended
        os.killpg(running.pid, signal.SIGKILL)
    running.communicate()


def test_fastapi(broker: Broker) -> None:
    from fastapi.testclient import TestClient

    from examples.fastapi_app.app import app

    with TestClient(app) as web:
        assert web.get("/health").json() == {"broker": True}
        assert web.post("/orders", json={"item": "", "count": 0}).status_code == 422
        taken = web.post("/orders", json={"item": "tea", "count": 2, "express": True})
        assert taken.status_code == 202
    with broker.client() as client:
        (order,) = client.queue("orders").peek()
        assert order.id == taken.json()["id"]
        assert order.priority == 9
        worker = start("examples.fastapi_app.worker")
        try:
            assert worker.stdout is not None
            assert worker.stdout.readline() == "packed 2 x tea\n"
            client.queue("orders").push("hello")  # and what is no order does not stop it
            client.queue("orders").push({"item": "milk", "count": 1})
            assert worker.stdout.readline() == "packed 1 x milk\n"
            worker.terminate()
            assert worker.wait(20) == 0
        finally:
            end(worker)


def test_celery(broker: Broker) -> None:
    options = ["--pool", "solo", "--without-gossip", "--without-mingle", "--loglevel", "ERROR"]
    worker = start("celery", "-A", "examples.celery_project.tasks", "worker", *options)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "examples.celery_project"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=50,
            check=False,
        )
        assert done.stdout == "order 1: charged 19.99\n", done.stderr
        with broker.client() as client:
            assert client.queue("celery").info().scheduled == 1
    finally:
        end(worker)


def test_django(broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_DATABASE", str(tmp_path / "shop.sqlite3"))
    monkeypatch.setenv("DJANGO_SETTINGS_MODULE", "examples.django_shop.settings")
    import django

    django.setup()
    from django.db import connections
    from django.test import Client

    from examples.django_shop.views import orders

    orders.cache_clear()
    web: Any = Client(raise_request_exception=False)
    assert web.post("/orders", {"item": "tea"}).json() == {"id": 1, "item": "tea"}
    assert web.post("/orders", {"item": "nothing"}).status_code == 500
    with broker.client() as client:
        assert [each.json() for each in client.queue("orders").peek()] == [{"id": 1, "item": "tea"}]
    orders()._connection.close()
    orders.cache_clear()
    connections.close_all()


def test_cron_with_taskiq(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    from taskiq.receiver import Receiver

    now = time.time()  # and it stays so: a minute later they are due again
    monkeypatch.setattr("nexo.integrations.taskiq.time", SimpleNamespace(time=lambda: now))

    async def scenario() -> None:
        from examples.taskiq_cron.tasks import add_schedules, scheduler, schedules
        from examples.taskiq_cron.tasks import broker as tasks

        await add_schedules()
        await scheduler.startup()
        again = type(schedules)(broker.url)
        found = await again.get_schedules()
        assert {each.cron for each in found} == {"0 3 * * *", None}
        for _ in range(2):  # as two schedulers would
            for each in found:
                await scheduler.on_ready(again, each)
        async with nexo.connect_async(broker.url) as client:
            assert (await client.queue("reports").info()).ready == 2
        ending = asyncio.Event()
        worker = Receiver(tasks, run_startup=False)
        working = asyncio.create_task(worker.listen(ending))
        task = await tasks.find_task("report").kiq("extra")  # type: ignore[union-attr]
        assert (await task.wait_result(timeout=20)).return_value.startswith(
            "the extra report of 20"
        )
        ending.set()
        await working
        await again.shutdown()
        await scheduler.shutdown()

    asyncio.run(scenario())
