"""taskiq on Nexo: `NexoBroker`, `NexoResultBackend` and `NexoScheduleSource`.

    broker = NexoBroker("nexo://127.0.0.1:9325").with_result_backend(NexoResultBackend())

Labels of a task that the broker reads: `queue_name`, `priority` (0 to 255, the higher goes first),
`delay` (seconds; the broker holds it), `deduplication_id`, `group_id`.

Retries are Nexo's: a task that raises is nacked, comes again as the queue's `backoff` says, and out
of attempts is a dead letter with its exception as the reason. Its result is that of the last
attempt. A task with taskiq's label `retry_on_error` is left to taskiq's own middleware.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from taskiq import AckableMessage, AsyncBroker, AsyncResultBackend, ScheduleSource, TaskiqMiddleware
from taskiq.depends.progress_tracker import TaskProgress
from taskiq.exceptions import NoResultError, ResultGetError, TaskRejectedError
from taskiq.result import TaskiqResult
from taskiq.scheduler.scheduled_task import ScheduledTask

import nexo
from nexo.client.message import reason_of
from nexo.integrations.results import KIND, READ_EVENTS, TASK, TTL_S, ResultIndex, find

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable

    from taskiq import BrokerMessage, TaskiqMessage
    from taskiq.abc.serializer import TaskiqSerializer

Value = TypeVar("Value")
DEDUPLICATION = "nexo_deduplication_id"  # the label that a scheduled task travels with
DEDUPLICATION_WINDOW_S = 300.0  # schedulers' clocks differ by less
KEPT_S = 20 * 365 * 86_400.0  # tasks are not to expire
SCHEDULES_MAX = 100_000  # events of a topic of schedules; those still valid are written again

_log = logging.getLogger("nexo.taskiq")


class NexoBroker(AsyncBroker):
    """Tasks go to `queue`, or to the one that their label `queue_name` says; a worker listens to
    `queue` and `also`. `settings` are those of queues that do not exist yet, as `create_queue`
    takes them. At most `prefetch` tasks of each queue are with a worker."""

    def __init__(
        self,
        url: str | None = None,
        queue: str = "taskiq",
        *,
        also: Iterable[str] = (),
        token: str | None = None,
        prefetch: int = 100,
        retries: bool = True,
        settings: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        self._options: dict[str, Any] = {"url": url, "token": token, **options}
        self._client: nexo.AsyncClient | None = None
        self._queue = queue
        self._queues = list(dict.fromkeys([queue, *also]))
        self._prefetch = prefetch
        self._retries = retries
        self._settings = {
            "retention": KEPT_S,
            "deduplication": "id",
            "deduplication_window": DEDUPLICATION_WINDOW_S,
            **(settings or {}),
        }
        self._declared: dict[str, int | None] = {}  # by queue, how many attempts there are
        self._deliveries: dict[str, _Delivery] = {}  # by task, those under way
        self.add_middlewares(_Watch(self))

    @property
    def client(self) -> nexo.AsyncClient:
        if self._client is None:
            self._client = nexo.connect_async(**self._options)
        return self._client

    async def startup(self) -> None:
        for name in self._queues:
            await self._declare(name)
        await super().startup()

    async def shutdown(self) -> None:
        await super().shutdown()
        if self._client is not None:
            await self._client.close()
            self._client = None

    async def kick(self, message: BrokerMessage) -> None:
        labels = message.labels
        name = str(labels.get("queue_name", self._queue))
        delay = labels.get("delay")
        options: dict[str, Any] = {
            "priority": int(labels.get("priority", 0)),
            "delay": None if delay is None else float(delay),
            "attributes": {TASK: message.task_id, "name": message.task_name},
            "deduplication_id": labels.get(DEDUPLICATION) or labels.get("deduplication_id"),
            "group_id": labels.get("group_id"),
        }
        await self._declare(name)
        try:
            await self.client.queue(name).push(message.message, **options)
        except nexo.QueueNotFound:  # somebody has deleted it
            del self._declared[name]
            await self._declare(name)
            await self.client.queue(name).push(message.message, **options)

    async def listen(self) -> AsyncGenerator[bytes | AckableMessage, None]:
        arrived: asyncio.Queue[nexo.AsyncMessage | nexo.NexoError] = asyncio.Queue()
        subscriptions = []
        for name in self._queues:
            await self._declare(name)
            queue = self.client.queue(name)
            subscriptions.append(queue.subscribe(self._prefetch, auto_extend=True))
        tasks = [asyncio.create_task(_pump(each, arrived)) for each in subscriptions]
        try:
            while True:
                message = await arrived.get()
                if isinstance(message, nexo.NexoError):
                    raise message
                delivery = _Delivery(message, self._deliveries)
                yield AckableMessage(data=message.body, ack=delivery.ack)
        finally:  # what nobody has begun goes back at once
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            with contextlib.suppress(nexo.NexoError):
                for subscription in subscriptions:
                    await subscription.close()
                while not arrived.empty():
                    waiting = arrived.get_nowait()
                    if isinstance(waiting, nexo.AsyncMessage):
                        await self.client.queue(waiting.queue).give_back([waiting])

    async def _declare(self, name: str) -> None:
        if name in self._declared:
            return
        settings: Any = self._settings
        # It is there with other settings, or this token may only use it.
        with contextlib.suppress(nexo.QueueExists, nexo.Forbidden):
            await self.client.create_queue(name, **settings)
        self._declared[name] = settings.get("max_attempts", 5)
        with contextlib.suppress(nexo.Forbidden):
            kept = (await self.client.queue(name).info()).settings
            self._declared[name] = kept.max_attempts
            if kept.deduplication == "off":
                _log.warning(
                    "queue %s has no deduplication: several schedulers may send a task twice", name
                )

    def failed(self, task: str, error: BaseException) -> bool:
        """A task has raised; returns whether it comes again."""
        delivery = self._deliveries.get(task)
        if delivery is None or not self._retries:
            return False
        delivery.reason = reason_of(error)
        most = self._declared.get(delivery.message.queue)
        return most is None or delivery.message.attempts < most


async def _pump(subscription: Any, arrived: asyncio.Queue[Any]) -> None:
    try:
        async for message in subscription:
            arrived.put_nowait(message)  # no more than the prefetch of the subscription
    except nexo.NexoError as error:
        arrived.put_nowait(error)


class _Delivery:
    """A message that a worker has. What taskiq calls ack is said in all cases: whether the task
    ran, raised, or could not even be read, the middleware has noted."""

    def __init__(self, message: nexo.AsyncMessage, under_way: dict[str, _Delivery]) -> None:
        self.message = message
        self.is_known = False
        self.reason: str | None = None
        self._task = message.attributes.get(TASK, "")
        self._under_way = under_way
        under_way[self._task] = self

    async def ack(self) -> None:
        if self._under_way.get(self._task) is self:
            del self._under_way[self._task]
        try:
            if not self.is_known:
                await self.message.nack(reason="invalid_body: no task of this worker")
            elif self.reason is not None:
                await self.message.nack(reason=self.reason)
            else:
                await self.message.ack()
        except nexo.NexoError as error:
            _log.warning(
                "the result of task %s was lost, it will be delivered again: %s", self._task, error
            )


class _Watch(TaskiqMiddleware):
    """Notes what becomes of tasks."""

    def __init__(self, broker: NexoBroker) -> None:
        super().__init__()
        self._nexo = broker

    def pre_execute(self, message: TaskiqMessage) -> TaskiqMessage:
        delivery = self._nexo._deliveries.get(message.task_id)
        if delivery is not None:
            delivery.is_known = True
        return message

    def on_error(
        self, message: TaskiqMessage, result: TaskiqResult[Any], exception: BaseException
    ) -> None:
        is_told = isinstance(exception, (NoResultError, TaskRejectedError))
        if is_told or str(message.labels.get("retry_on_error", "")).lower() == "true":
            return
        if self._nexo.failed(message.task_id, exception):
            result.error = NoResultError()  # the last attempt has the result


class NexoResultBackend(AsyncResultBackend[Value]):
    """Results in the topic `topic`, for `ttl` seconds. They are JSON, as pydantic writes it; with a
    `serializer` of taskiq's, such as its `PickleSerializer`, anything that this can write."""

    def __init__(
        self,
        url: str | None = None,
        topic: str = "taskiq.results",
        *,
        ttl: float = TTL_S,
        token: str | None = None,
        serializer: TaskiqSerializer | None = None,
        **options: Any,
    ) -> None:
        self._client = nexo.connect_async(url, token=token, **options)
        self._name = topic
        self._topic = self._client.topic(topic)
        self._ttl = ttl
        self._serializer = serializer
        self._index = ResultIndex()
        self._reading = asyncio.Lock()

    async def startup(self) -> None:
        with contextlib.suppress(nexo.TopicExists, nexo.Forbidden):
            await self._client.create_topic(self._name, retention_seconds=self._ttl)

    async def shutdown(self) -> None:
        await self._client.close()

    async def set_result(self, task_id: str, result: TaskiqResult[Value]) -> None:
        await self._publish("result", task_id, result)

    async def is_result_ready(self, task_id: str) -> bool:
        return await self._find("result", task_id) is not None

    async def get_result(self, task_id: str, with_logs: bool = False) -> TaskiqResult[Value]:
        event = await self._find("result", task_id)
        if event is None:
            raise ResultGetError from KeyError(task_id)
        result: TaskiqResult[Value] = self._read(TaskiqResult[Any], event)
        if not with_logs:
            result.log = None
        return result

    async def set_progress(self, task_id: str, progress: TaskProgress[Any]) -> None:
        await self._publish("progress", task_id, progress)

    async def get_progress(self, task_id: str) -> TaskProgress[Any] | None:
        event = await self._find("progress", task_id)
        return None if event is None else self._read(TaskProgress[Any], event)

    def _read(self, kind: Any, event: nexo.Event) -> Any:
        if self._serializer is None:
            return kind.model_validate_json(event.body)
        return kind.model_validate(self._serializer.loadb(event.body))

    async def _publish(self, kind: str, task: str, value: Any) -> None:
        if self._serializer is None:
            body = value.model_dump_json().encode()
        else:
            body = self._serializer.dumpb(value.model_dump())
        await self._topic.publish(body, attributes={TASK: task, KIND: kind})

    async def _find(self, kind: str, task: str) -> nexo.Event | None:
        """Read on to the end, and look where the result is."""
        index = self._index
        async with self._reading:
            while events := await self._topic.read(index.next_offset, READ_EVENTS):
                index.add(events)
        offset = index.offset_of(kind, task)
        if offset is not None:
            return find(await self._topic.read(offset, 1), kind, task)  # unless its time is over
        found, start = None, 0
        while not index.is_whole and (events := await self._topic.read(start, READ_EVENTS)):
            found = find(events, kind, task) or found
            start = events[-1].offset + 1
        return found


class _Change(msgspec.Struct, omit_defaults=True):
    """Of a topic of schedules. `seen` is the offset up to which one who writes a schedule again has
    read: a removal that it had not seen still counts."""

    id: str
    schedule: dict[str, Any] | None = None  # None: removed
    seen: int | None = None


class NexoScheduleSource(ScheduleSource):
    """Schedules in the topic `topic`: cron, intervals and single times, added and removed at run
    time by any process. Any number of schedulers may run: each time that a schedule is due has a
    deduplication id, so that its task is pushed once."""

    def __init__(
        self,
        url: str | None = None,
        topic: str = "taskiq.schedules",
        *,
        token: str | None = None,
        **options: Any,
    ) -> None:
        self._client = nexo.connect_async(url, token=token, **options)
        self._name = topic
        self._topic = self._client.topic(topic)
        self._next = 0
        self._schedules: dict[str, tuple[int, dict[str, Any]]] = {}  # with the offset of each
        self._removed: dict[str, int] = {}

    async def startup(self) -> None:
        with contextlib.suppress(nexo.TopicExists, nexo.Forbidden):
            await self._client.create_topic(self._name, retention_messages=SCHEDULES_MAX)

    async def shutdown(self) -> None:
        await self._client.close()

    async def add_schedule(self, schedule: ScheduledTask) -> None:
        dumped = schedule.model_dump(mode="json")
        await self._topic.publish(_Change(schedule.schedule_id, dumped))

    async def delete_schedule(self, schedule_id: str) -> None:
        await self._topic.publish(_Change(schedule_id))

    async def get_schedules(self) -> list[ScheduledTask]:
        while events := await self._topic.read(self._next, READ_EVENTS):
            for event in events:
                self._apply(event.offset, event.json(_Change))
                self._next = event.offset + 1
        for name, (offset, schedule) in list(self._schedules.items()):
            if self._next - offset > SCHEDULES_MAX // 2:  # before it is the oldest that is kept
                await self._topic.publish(_Change(name, schedule, self._next))
        return [ScheduledTask.model_validate(each) for _, each in self._schedules.values()]

    def pre_send(self, task: ScheduledTask) -> None:
        task.labels[DEDUPLICATION] = f"{task.schedule_id}@{_due(task, time.time())}"

    async def post_send(self, task: ScheduledTask) -> None:
        if task.time is not None and task.cron is None and task.interval is None:
            await self.delete_schedule(task.schedule_id)

    def _apply(self, offset: int, change: _Change) -> None:
        if change.schedule is None:
            self._schedules.pop(change.id, None)
            self._removed[change.id] = offset
        elif change.seen is None or self._removed.get(change.id, -1) < change.seen:
            self._schedules[change.id] = (offset, change.schedule)


def _due(task: ScheduledTask, now: float) -> str:
    """Which of its times a schedule is due for: the same for schedulers whose clocks differ."""
    if task.cron is not None:
        return datetime.fromtimestamp(round(now / 60) * 60, UTC).isoformat()
    if task.interval is not None:
        given = task.interval
        seconds = given.total_seconds() if isinstance(given, timedelta) else float(given)
        return str(round(now / seconds))
    assert task.time is not None, "a schedule has a cron, an interval or a time"
    return task.time.isoformat()
