"""The no-op task of `bench.frameworks`, in the framework and on the broker that the environment
names. A worker process loads it, and so does who sends."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

FRAMEWORK, URL = os.environ["BENCH_FRAMEWORK"], os.environ["BENCH_URL"]
_done = os.open(os.environ["BENCH_DONE"], os.O_WRONLY | os.O_NONBLOCK)
app: Any = None
broker: Any = None


def note() -> None:
    """One byte for each task that was done."""
    os.write(_done, b".")


if FRAMEWORK == "celery":
    app = import_module("celery").Celery("bench", broker=URL)
    app.conf.update(broker_connection_retry_on_startup=True, task_ignore_result=True)
    task = app.task(name="note")(note)
elif FRAMEWORK == "dramatiq":
    dramatiq: Any = import_module("dramatiq")
    if URL.startswith("redis"):
        broker = import_module("dramatiq.brokers.redis").RedisBroker(url=URL)
    else:
        broker = import_module("nexo.integrations.dramatiq").NexoBroker(URL)
    dramatiq.set_broker(broker)
    task = dramatiq.actor(actor_name="note")(note)
else:
    if URL.startswith("redis"):
        broker = import_module("taskiq_redis").RedisStreamBroker(URL)
    else:
        broker = import_module("nexo.integrations.taskiq").NexoBroker(URL, prefetch=1_000)

    @broker.task(task_name="note")
    async def task() -> None:
        note()
