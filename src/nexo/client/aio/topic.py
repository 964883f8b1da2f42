"""A topic, as an asyncio client sees it."""

from __future__ import annotations

import contextlib
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Self, overload

from nexo.client import requests, topics
from nexo.client.aio.message import AsyncMessage
from nexo.client.aio.queue import AsyncQueue
from nexo.client.info import read_topic
from nexo.client.topics import GroupContent, TopicReader, group_queue, start_of, time_ms_of
from nexo.vocabulary.errors import Forbidden, NotReady, Timeout, Unreachable
from nexo.vocabulary.limits import CLIENT_POLL_MS, WAIT_MS_MAX
from nexo.vocabulary.units import milliseconds
from nexo.wire import calls

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from nexo.client.aio.connection import Connection
    from nexo.client.aio.subscription import AsyncSubscription
    from nexo.client.info import TopicInfo
    from nexo.client.operation import Request
    from nexo.client.topics import Event, StartAt


class AsyncGroupMessage(GroupContent, AsyncMessage):
    """An event for a consumer group. Finish it like a message of a queue."""

    __slots__ = ()


class AsyncTopic:
    """A topic. Creating this object does no I/O, and any number of tasks can share it."""

    def __init__(self, connection: Connection, name: str) -> None:
        self._connection = connection
        self._name = name

    @property
    def name(self) -> str:
        return self._name

    async def publish(self, body: Any, *, attributes: dict[str, str] | None = None) -> int:
        """Publish one event (bytes, text, or anything JSON). Returns its offset once it is on
        disk."""
        offset: int = await self._connection.run(topics.publish(self._name, body, attributes))
        return offset

    async def publish_batch(
        self, bodies: Iterable[Any], *, attributes: dict[str, str] | None = None
    ) -> list[int]:
        """Publish many events at once. Returns their offsets."""
        asked = topics.publish_batch(self._name, bodies, attributes)
        return await self._connection.run(asked) if asked is not None else []

    async def read(
        self,
        offset: int = 0,
        limit: int = 100,
        *,
        time: datetime | None = None,
        strict: bool = False,
        wait: float = 0.0,
    ) -> list[Event]:
        """Events from `offset`, or from a time. Reading does not remove them. If the offset was
        deleted, the read starts at the oldest event, or fails with `strict`. Waits up to `wait`
        seconds if there is none yet."""
        time_ms = None if time is None else time_ms_of(time)
        wait_ms = milliseconds(wait, "wait", WAIT_MS_MAX)
        asked = topics.read(self._name, offset, limit, strict, wait_ms, time_ms)
        events, _ = await self._connection.run(asked)
        found: list[Event] = events
        return found

    async def bind(
        self,
        queue: str | AsyncQueue,
        start: StartAt = "latest",
        where: dict[str, str] | None = None,
    ) -> None:
        """Bind a queue, so that it also receives every event published from now on. The queue is
        created if it does not exist. With `where`, it receives only events with these attributes.
        With a start in the past ("earliest", an offset, a datetime) it also receives the events
        that the topic has kept since then. Binding a queue again only replaces its filter."""
        name = queue.name if isinstance(queue, AsyncQueue) else queue
        await self._connection.run(topics.bind(self._name, name, start_of(start), where))

    async def unbind(self, queue: str | AsyncQueue) -> None:
        name = queue.name if isinstance(queue, AsyncQueue) else queue
        await self._connection.run(requests.call(calls.Unbind(self._name, name)))

    @overload
    def subscribe(
        self, group: None = None, start: StartAt = "latest"
    ) -> AsyncTopicSubscription: ...

    @overload
    def subscribe(
        self, group: str, start: StartAt = "latest", *, prefetch: int = 100
    ) -> AsyncSubscription[AsyncGroupMessage]: ...

    def subscribe(
        self, group: str | None = None, start: StartAt = "latest", *, prefetch: int = 100
    ) -> AsyncTopicSubscription | AsyncSubscription[AsyncGroupMessage]:
        """An endless stream of events that reconnects by itself. It starts now, at the earliest
        event, at an offset or at a time. A topic name with a pattern matches many topics (`*` is
        one word between dots, `>` the rest), also those created later. With a group, its members
        share the events and ack each of them: the group is the queue `<topic>.<group>`, which
        starts at `start` when it is first used."""
        if group is None:
            return AsyncTopicSubscription(self._connection, TopicReader(self._name, start))
        start_of(start)  # a wrong one is refused before anything is done
        queue = GroupQueue(self._connection, group_queue(self._name, group))
        queue._prepare_with(partial(self._join, queue.name, start))
        return queue.subscribe(prefetch)

    async def info(self) -> TopicInfo:
        asked = requests.call(calls.DescribeTopic(self._name), read_topic)
        info: TopicInfo = await self._connection.run(asked)
        return info

    async def delete(self) -> None:
        """Delete the topic and all its events."""
        await self._connection.run(requests.delete(calls.DeleteTopic(self._name)))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._name!r}>"

    async def _join(self, queue: str, start: StartAt) -> None:
        """Bind the queue of a group, if it is not bound yet."""
        with contextlib.suppress(Forbidden):  # who may not bind may join a group that is there
            await self.bind(queue, start)


class GroupQueue(AsyncQueue):
    """The queue of a consumer group."""

    message_type: type[AsyncMessage] = AsyncGroupMessage

    def subscribe(self, *arguments: Any, **options: Any) -> AsyncSubscription[Any]:
        return super().subscribe(*arguments, **options)


class AsyncTopicSubscription:
    """Iterate over it. After a lost connection it continues where it was."""

    def __init__(self, connection: Connection, reader: TopicReader) -> None:
        self._connection = connection
        self._reader = reader
        self._reading: Request | None = None
        self._closed = False
        connection.if_blocking(self._open)

    async def get(self, timeout: float | None = None) -> Event | None:  # noqa: ASYNC109
        """The next event. Returns None if none arrives for `timeout` seconds, or if the
        subscription was closed."""
        events = self._reader.events
        if not events:
            await self._wait(timeout)
        return events.popleft() if events and not self._closed else None

    async def close(self) -> None:
        self._closed = True
        reading = self._reading
        if reading is not None:
            self._connection.finish(reading)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        events = self._reader.events
        if events and not self._closed:
            return events.popleft()
        event = await self.get()
        if event is None:
            raise StopAsyncIteration
        return event

    async def __aenter__(self) -> Self:
        await self._open()
        return self

    async def __aexit__(self, *failure: object) -> None:
        await self.close()

    async def _open(self) -> None:
        opening = self._reader.opening()
        if opening is not None:
            self._reader.opened(await self._connection.run(opening))

    async def _wait(self, timeout: float | None) -> None:  # noqa: ASYNC109
        """Until there is an event, or it is over."""
        ends = None if timeout is None else time.monotonic() + timeout
        await self._open()
        while not self._reader.events and not self._closed:
            wait_ms = CLIENT_POLL_MS
            if ends is not None:
                wait_ms = min(wait_ms, round((ends - time.monotonic()) * 1000))
                if wait_ms <= 0:
                    return
            await self._read(wait_ms)

    async def _read(self, wait_ms: int) -> None:
        reading = self._reading = self._reader.read(wait_ms)
        if self._closed:  # by another thread, which saw nothing yet that it could finish
            self._reading = None
            return
        try:
            found = await self._connection.run(reading)
        except (Unreachable, Timeout, NotReady):
            return  # a subscription waits for its broker as long as it takes
        finally:
            self._reading = None
        if found is not None:  # else it was closed
            self._reader.take(found)
