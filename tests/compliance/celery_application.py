"""A Celery application on the SQS door: imported by its worker, and run to send its tasks.

Arguments when run: how many tasks. The environment names the broker, the queue and the file that
tasks write to.
"""

import os
import sys
from pathlib import Path
from typing import Any

from celery import Celery

app = Celery("compliance", broker=os.environ["CELERY_BROKER"])
app.conf.update(
    task_default_queue=os.environ["CELERY_QUEUE"],
    broker_transport_options={
        "is_secure": False,
        "region": "us-east-1",
        "wait_time_seconds": 5,
        "visibility_timeout": 30,
        "polling_interval": 0.1,
    },
    worker_enable_remote_control=False,  # it needs a broadcast, which SQS does not have
    task_acks_late=True,
    broker_connection_retry_on_startup=True,
)


# The names are given, since this module has two: that of the worker, and `__main__`.


def write(line: str) -> None:
    with Path(os.environ["CELERY_RESULTS"]).open("a") as results:
        results.write(f"{line}\n")


@app.task(name="add")
def add(one: int, two: int) -> None:
    write(f"{one} + {two} = {one + two}")


@app.task(name="stumble", bind=True, max_retries=2, default_retry_delay=0)
def stumble(self: Any) -> None:
    """Fails once; the retry is a message of its own."""
    if self.request.retries == 0:
        raise self.retry(countdown=0)
    write(f"came through on try {self.request.retries + 1}")


if __name__ == "__main__":
    for number in range(int(sys.argv[1])):
        add.delay(number, 1)
    stumble.delay()
