# Generated from src/nexo/client/aio/topic.py: edit that file and run scripts/twins.py.
"""A topic, as a blocking client sees it."""

from __future__ import annotations

import contextlib
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Self, overload

from nexo.client import requests, topics
from nexo.client.blocking.message import Message
from nexo.client.blocking.queue import Queue
from nexo.client.info import read_topic
from nexo.client.topics import GroupContent, TopicReader, group_queue, start_of, time_ms_of
from nexo.vocabulary.errors import Forbidden, NotReady, Timeout, Unreachable
from nexo.vocabulary.limits import CLIENT_POLL_MS, WAIT_MS_MAX
from nexo.vocabulary.units import milliseconds
from nexo.wire import calls

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from nexo.client.blocking.connection import Connection
    from nexo.client.blocking.subscription import Subscription
    from nexo.client.info import TopicInfo
    from nexo.client.operation import Request
    from nexo.client.topics import Event, StartAt


class GroupMessage(GroupContent, Message):
    """An event for a consumer group. Finish it like a message of a queue."""

    __slots__ = ()


class Topic:
    """A topic. Creating this object does no I/O, and any number of threads can share it."""

    def __init__(self, connection: Connection, name: str) -> None:
        self._connection = connection
        self._name = name

    @property
    def name(self) -> str:
        return self._name

    def publish(self, body: Any, *, attributes: dict[str, str] | None = None) -> int:
        """Publish one event (bytes, text, or anything JSON). Returns its offset once it is on
        disk."""
        offset: int = self._connection.run(topics.publish(self._name, body, attributes))
        return offset

    def publish_batch(
        self, bodies: Iterable[Any], *, attributes: dict[str, str] | None = None
    ) -> list[int]:
        """Publish many events at once. Returns their offsets."""
        asked = topics.publish_batch(self._name, bodies, attributes)
        return self._connection.run(asked) if asked is not None else []

    def read(
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
        events, _ = self._connection.run(asked)
        found: list[Event] = events
        return found

    def bind(
        self,
        queue: str | Queue,
        start: StartAt = "latest",
        where: dict[str, str] | None = None,
    ) -> None:
        """Bind a queue, so that it also receives every event published from now on. The queue is
        created if it does not exist. With `where`, it receives only events with these attributes.
        With a start in the past ("earliest", an offset, a datetime) it also receives the events
        that the topic has kept since then. Binding a queue again only replaces its filter."""
        name = queue.name if isinstance(queue, Queue) else queue
        self._connection.run(topics.bind(self._name, name, start_of(start), where))

    def unbind(self, queue: str | Queue) -> None:
        name = queue.name if isinstance(queue, Queue) else queue
        self._connection.run(requests.call(calls.Unbind(self._name, name)))

    @overload
    def subscribe(self, group: None = None, start: StartAt = "latest") -> TopicSubscription: ...

    @overload
    def subscribe(
        self, group: str, start: StartAt = "latest", *, prefetch: int = 100
    ) -> Subscription[GroupMessage]: ...

    def subscribe(
        self, group: str | None = None, start: StartAt = "latest", *, prefetch: int = 100
    ) -> TopicSubscription | Subscription[GroupMessage]:
        """An endless stream of events that reconnects by itself. It starts now, at the earliest
        event, at an offset or at a time. A topic name with a pattern matches many topics (`*` is
        one word between dots, `>` the rest), also those created later. With a group, its members
        share the events and ack each of them: the group is the queue `<topic>.<group>`, which
        starts at `start` when it is first used."""
        if group is None:
            return TopicSubscription(self._connection, TopicReader(self._name, start))
        start_of(start)  # a wrong one is refused before anything is done
        queue = GroupQueue(self._connection, group_queue(self._name, group))
        queue._prepare_with(partial(self._join, queue.name, start))
        return queue.subscribe(prefetch)

    def info(self) -> TopicInfo:
        asked = requests.call(calls.DescribeTopic(self._name), read_topic)
        info: TopicInfo = self._connection.run(asked)
        return info

    def delete(self) -> None:
        """Delete the topic and all its events."""
        self._connection.run(requests.delete(calls.DeleteTopic(self._name)))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._name!r}>"

    def _join(self, queue: str, start: StartAt) -> None:
        """Bind the queue of a group, if it is not bound yet."""
        with contextlib.suppress(Forbidden):  # who may not bind may join a group that is there
            self.bind(queue, start)


class GroupQueue(Queue):
    """The queue of a consumer group."""

    message_type: type[Message] = GroupMessage

    def subscribe(self, *arguments: Any, **options: Any) -> Subscription[Any]:
        return super().subscribe(*arguments, **options)


class TopicSubscription:
    """Iterate over it. After a lost connection it continues where it was."""

    def __init__(self, connection: Connection, reader: TopicReader) -> None:
        self._connection = connection
        self._reader = reader
        self._reading: Request | None = None
        self._closed = False
        connection.if_blocking(self._open)

    def get(self, timeout: float | None = None) -> Event | None:
        """The next event. Returns None if none arrives for `timeout` seconds, or if the
        subscription was closed."""
        events = self._reader.events
        if not events:
            self._wait(timeout)
        return events.popleft() if events and not self._closed else None

    def close(self) -> None:
        self._closed = True
        reading = self._reading
        if reading is not None:
            self._connection.finish(reading)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Event:
        events = self._reader.events
        if events and not self._closed:
            return events.popleft()
        event = self.get()
        if event is None:
            raise StopIteration
        return event

    def __enter__(self) -> Self:
        self._open()
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def _open(self) -> None:
        opening = self._reader.opening()
        if opening is not None:
            self._reader.opened(self._connection.run(opening))

    def _wait(self, timeout: float | None) -> None:
        """Until there is an event, or it is over."""
        ends = None if timeout is None else time.monotonic() + timeout
        self._open()
        while not self._reader.events and not self._closed:
            wait_ms = CLIENT_POLL_MS
            if ends is not None:
                wait_ms = min(wait_ms, round((ends - time.monotonic()) * 1000))
                if wait_ms <= 0:
                    return
            self._read(wait_ms)

    def _read(self, wait_ms: int) -> None:
        reading = self._reading = self._reader.read(wait_ms)
        if self._closed:  # by another thread, which saw nothing yet that it could finish
            self._reading = None
            return
        try:
            found = self._connection.run(reading)
        except (Unreachable, Timeout, NotReady):
            return  # a subscription waits for its broker as long as it takes
        finally:
            self._reading = None
        if found is not None:  # else it was closed
            self._reader.take(found)
