"""Cron with taskiq: schedules survive restarts and fire once, even with several schedulers.

python -m examples.taskiq_cron.tasks                          # adds the schedules, once
taskiq worker examples.taskiq_cron.tasks:broker
taskiq scheduler examples.taskiq_cron.tasks:scheduler         # start two: each fires once
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

from taskiq import ScheduledTask, TaskiqScheduler

from nexo.integrations.taskiq import NexoBroker, NexoResultBackend, NexoScheduleSource

broker = NexoBroker(queue="reports").with_result_backend(NexoResultBackend())
schedules = NexoScheduleSource()
scheduler = TaskiqScheduler(broker, [schedules])


@broker.task(task_name="report")
async def report(kind: str) -> str:
    return f"the {kind} report of {datetime.now(UTC):%Y-%m-%d}"


async def add_schedules() -> None:
    await schedules.startup()
    nightly = ScheduledTask(
        schedule_id="nightly",  # adding it again changes it
        task_name="report",
        labels={"priority": 5},
        args=["nightly"],
        kwargs={},
        cron="0 3 * * *",
        cron_offset="Europe/Rome",
    )
    soon = ScheduledTask(
        task_name="report",
        labels={},
        args=["first"],
        kwargs={},
        time=datetime.now(UTC) + timedelta(seconds=5),
    )
    for each in (nightly, soon):
        await schedules.add_schedule(each)
    await schedules.shutdown()


if __name__ == "__main__":
    asyncio.run(add_schedules())
