"""A topic, as a blocking client sees it."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Any, Literal, Self, overload

from nexo.client import asking, figures
from nexo.client.blocking.message import Message
from nexo.client.blocking.queue import Queue
from nexo.client.group import GroupContent, check_bind_start, check_start, group_queue
from nexo.client.values import milliseconds
from nexo.vocabulary.errors import NotReady, Timeout, Unreachable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from nexo.client.blocking.connection import Connection
    from nexo.client.blocking.subscription import Subscription
    from nexo.client.event import Event
    from nexo.client.figures import TopicInfo
    from nexo.client.operation import Request

Start = Literal["latest", "earliest"] | int


class GroupMessage(GroupContent, Message):
    """An event that a consumer group works on: finish it as a message of a queue."""

    __slots__ = ()


class Topic:
    """A handle; making one does no I/O. Any number of threads may share it."""

    def __init__(self, connection: Connection, name: str) -> None:
        self._connection = connection
        self._name = name

    @property
    def name(self) -> str:
        return self._name

    def publish(self, body: Any, *, attributes: dict[str, str] | None = None) -> int:
        """Publish one event (bytes, text, or anything JSON); returns its offset once on disk."""
        offset: int = self._connection.run(asking.publish(self._name, body, attributes))
        return offset

    def publish_batch(
        self, bodies: Iterable[Any], *, attributes: dict[str, str] | None = None
    ) -> list[int]:
        """Publish many events as one; returns their offsets."""
        asked = asking.publish_batch(self._name, bodies, attributes)
        return self._connection.run(asked) if asked is not None else []

    def read(
        self, offset: int = 0, limit: int = 100, *, strict: bool = False, wait: float = 0.0
    ) -> list[Event]:
        """Events from `offset` on; nothing is removed. Below what is kept it goes on at the
        oldest, or with `strict` is refused. Waits up to `wait` seconds if there is none yet."""
        wait_ms = milliseconds(wait, "wait")
        events, _ = self._connection.run(asking.read(self._name, offset, limit, strict, wait_ms))
        found: list[Event] = events
        return found

    def bind(
        self,
        queue: str | Queue,
        start: Literal["latest"] = "latest",
        where: dict[str, str] | None = None,
    ) -> None:
        """From now on what is published also goes to a queue, which is created if it is not there;
        with `where` only what has these attributes."""
        check_bind_start(start)
        name = queue.name if isinstance(queue, Queue) else queue
        self._connection.run(asking.call("create_queue", None, name=name, exist_ok=True))
        asked = asking.call("bind", None, topic=self._name, queue=name, where=where)
        self._connection.run(asked)

    def unbind(self, queue: str | Queue) -> None:
        name = queue.name if isinstance(queue, Queue) else queue
        self._connection.run(asking.call("unbind", None, topic=self._name, queue=name))

    @overload
    def subscribe(self, group: None = None, start: Start = "latest") -> TopicSubscription: ...

    @overload
    def subscribe(self, group: str, start: Start = "latest") -> Subscription[GroupMessage]: ...

    def subscribe(
        self, group: str | None = None, start: Start = "latest"
    ) -> TopicSubscription | Subscription[GroupMessage]:
        """Events for ever, through reconnects: from now on, from the earliest that is kept, or from
        an offset. With a group they are shared among all who name it, and each is to be acked:
        the group is the queue `<topic>.<group>`, which begins when it is first named."""
        if group is None:
            check_start(start)
            return TopicSubscription(self._connection, self._name, start)
        if start != "latest":
            check_bind_start(str(start))
        name = group_queue(self._name, group)
        self.bind(name)
        return GroupQueue(self._connection, name).subscribe()

    def info(self) -> TopicInfo:
        asked = asking.call("topic_info", figures.read_topic, name=self._name)
        info: TopicInfo = self._connection.run(asked)
        return info

    def delete(self) -> None:
        """Remove the topic with all that it keeps."""
        self._connection.run(asking.delete("delete_topic", self._name))

    def __repr__(self) -> str:
        return f"<Topic {self._name!r}>"


class GroupQueue(Queue):
    """The queue of a consumer group."""

    message_type = GroupMessage

    def subscribe(self, *arguments: Any, **options: Any) -> Subscription[Any]:
        return super().subscribe(*arguments, **options)


class TopicSubscription:
    """Iterate over it; it reads on from where it is, also after a broken connection."""

    def __init__(self, connection: Connection, topic: str, start: Start) -> None:
        self._connection = connection
        self._topic = topic
        self._events: deque[Event] = deque()
        self._reading: Request | None = None
        self._closed = False
        self._next = start if isinstance(start, int) else 0
        if start == "latest":
            self._next = Topic(connection, topic).info().end

    def get(self, timeout: float | None = None) -> Event | None:
        """The next event; None if none came for `timeout` seconds, or it was closed."""
        ends = None if timeout is None else time.monotonic() + timeout
        while not self._events and not self._closed:
            wait_ms = asking.POLL_MS
            if ends is not None:
                wait_ms = min(wait_ms, round((ends - time.monotonic()) * 1000))
                if wait_ms <= 0:
                    return None
            self._read(wait_ms)
        return self._events.popleft() if self._events and not self._closed else None

    def close(self) -> None:
        self._closed = True
        with self._connection.lock:
            if self._reading is not None:
                self._reading.finish(([], self._next))

    def __iter__(self) -> Iterator[Event]:
        while (event := self.get()) is not None:
            yield event

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def _read(self, wait_ms: int) -> None:
        reading = self._reading = asking.read(self._topic, self._next, 1_000, False, wait_ms)
        try:
            events, self._next = self._connection.run(reading)
        except (Unreachable, Timeout, NotReady):
            return  # a subscription waits for its broker as long as it takes
        finally:
            self._reading = None
        self._events.extend(events)
