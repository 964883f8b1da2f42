"""A Celery project that was moved from Redis by one line: see `broker_url`.

    celery -A examples.celery_project.tasks worker --loglevel INFO
    python -m examples.celery_project

Nothing else was changed. What is better now: a task is on disk before `delay` returns, the broker
and not a worker holds a countdown of a week, and a killed worker loses no task, without a
`visibility_timeout` to choose.
"""

import os

from celery import Celery

app = Celery("shop")
# Before: app.conf.broker_url = "redis://127.0.0.1:6379/0"
app.conf.broker_url = os.environ.get("NEXO_URL", "nexo://127.0.0.1:9325")
app.conf.result_backend = "rpc://"
app.conf.task_acks_late = True
app.conf.broker_connection_retry_on_startup = True


@app.task(autoretry_for=(ConnectionError,), retry_backoff=True, max_retries=5)
def charge(order: int, cents: int) -> str:
    return f"order {order}: charged {cents / 100:.2f}"


@app.task
def remind(order: int) -> str:
    return f"order {order}: reminded"
