"""A Celery application whose workers share SQS queues, and hear broadcasts through SNS.

The environment names the broker, what its queues begin with, and the file that tasks write to.
"""

import os
from pathlib import Path

from celery import Celery
from kombu.common import Broadcast
from kombu.entity import Exchange

PREFIX = os.environ["CELERY_PREFIX"]
BROADCAST = f"{PREFIX}-broadcast"
# Celery does not declare the exchange of a broadcast when it sends: whoever sends names it.
EXCHANGE = Exchange(BROADCAST, type="fanout")

app = Celery("sns", broker=os.environ["CELERY_BROKER"])
app.conf.update(
    task_default_queue=f"{PREFIX}-work",
    task_queues=(Broadcast(BROADCAST),),
    task_create_missing_queues=True,
    task_routes={"everywhere": {"queue": BROADCAST, "exchange": BROADCAST}},
    broker_transport_options={
        "is_secure": False,
        "region": "us-east-1",
        "supports_fanout": True,
        "wait_time_seconds": 1,
        "polling_interval": 0.1,
    },
    broker_connection_retry_on_startup=True,
    worker_enable_remote_control=False,  # it takes only transports that always have fanout
)


@app.task(name="everywhere")
def everywhere(number: int) -> None:
    with Path(os.environ["CELERY_RESULTS"]).open("a") as results:
        results.write(f"{os.environ['CELERY_WORKER']} {number}\n")
