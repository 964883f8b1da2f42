"""Workers of each framework, in processes of their own and killed with all of their pool, as by a
machine that goes down: the task that one was at is done by the next."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import dramatiq
import pytest
from celery import Celery

from nexo.integrations.dramatiq import NexoBroker as DramatiqBroker
from nexo.integrations.taskiq import NexoBroker as TaskiqBroker
from tests.client.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import nexo
    from nexo.testing import Broker

TASK = """
def slow(path: str, go: str) -> None:
    with open(path, "a") as file:
        file.write("begun\\n")
    while not os.path.exists(go):
        time.sleep(0.01)
    with open(path, "a") as file:
        file.write("done\\n")
"""
CELERY = """
import os, time
from celery import Celery
app = Celery("app", broker=os.environ["NEXO_URL"])
app.conf.update(
    task_default_queue=os.environ["NAME"], task_acks_late=True, worker_prefetch_multiplier=1,
    broker_connection_retry_on_startup=True,
)

@app.task(name="slow")"""
DRAMATIQ = """
import os, time
import dramatiq
from nexo.integrations.dramatiq import NexoBroker
dramatiq.set_broker(NexoBroker(os.environ["NEXO_URL"], namespace=os.environ["NAME"]))

@dramatiq.actor"""
TASKIQ = """
import os, time
from nexo.integrations.taskiq import NexoBroker
broker = NexoBroker(os.environ["NEXO_URL"], os.environ["NAME"])

@broker.task(task_name="slow")"""


def send_by_celery(url: str, name: str, *arguments: Any) -> None:
    Celery("sender", broker=url).send_task("slow", arguments, queue=name)


def send_by_dramatiq(url: str, name: str, *arguments: Any) -> None:
    broker = DramatiqBroker(url, namespace=name)
    dramatiq.actor(broker=broker, actor_name="slow")(lambda *_: None).send(*arguments)
    broker.close()


def send_by_taskiq(url: str, name: str, *arguments: Any) -> None:
    async def send() -> None:
        broker = TaskiqBroker(url, name)
        task: Any = broker.register_task(lambda *_: None, "slow")
        await broker.startup()
        await task.kiq(*arguments)
        await broker.shutdown()

    asyncio.run(send())


class Framework(NamedTuple):
    program: str
    worker: str
    send: Callable[..., None]
    queue: str = "{name}"


FRAMEWORKS = {
    "celery": Framework(
        CELERY,
        "celery -A app worker --concurrency 1 --without-gossip --without-mingle --loglevel ERROR",
        send_by_celery,
    ),
    "dramatiq": Framework(
        DRAMATIQ, "dramatiq app --processes 1 --threads 1", send_by_dramatiq, "{name}.default"
    ),
    "taskiq": Framework(TASKIQ, "taskiq worker app:broker --workers 1", send_by_taskiq),
}


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_killed_worker_loses_nothing(
    framework: str, broker: Broker, client: nexo.Client, name: str, tmp_path: Path
) -> None:
    program, command, send, queue_name = FRAMEWORKS[framework]
    (tmp_path / "app.py").write_text(program + TASK)
    noted = tmp_path / "noted"
    environment = {**os.environ, "NEXO_URL": broker.url, "NAME": name, "PYTHONPATH": "."}

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", *command.split()],
            cwd=tmp_path,
            env=environment,
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    queue = client.queue(queue_name.format(name=name))
    go = tmp_path / "go"  # until it is there, a worker is at its task
    send(broker.url, name, str(noted), str(go))
    running = start()
    try:
        eventually(lambda: noted.exists() and noted.read_text() == "begun\n", 30)
        os.killpg(running.pid, signal.SIGKILL)
        running.wait()
        eventually(lambda: queue.info().ready == 1)
        go.touch()
        running = start()
        eventually(lambda: noted.read_text().split() == ["begun", "begun", "done"], 30)
        eventually(lambda: queue.info().acked == 1)
        running.terminate()  # and in order
        assert running.wait(20) == 0
    finally:
        if running.poll() is None:
            os.killpg(running.pid, signal.SIGKILL)
            running.wait()
