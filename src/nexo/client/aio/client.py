"""`nexo.connect_async`: the asyncio client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from nexo.client import asking, figures
from nexo.client.address import address_of, token_of
from nexo.client.aio.connection import Connection
from nexo.client.aio.queue import AsyncQueue
from nexo.client.aio.topic import AsyncTopic
from nexo.client.identity import client_name
from nexo.client.settings import queue_params, topic_params

if TYPE_CHECKING:
    from typing import Unpack

    from nexo.client.figures import QueueInfo, TopicInfo
    from nexo.client.settings import QueueOptions, TopicOptions


class AsyncClient:
    """A client of one broker, on one connection that any number of tasks of one event loop share.

    Calls are retried while the broker is away, for `timeout` seconds; a retried push is never
    doubled. It belongs to the event loop that first uses it, and is not for other threads or the
    children of a fork."""

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        timeout: float = 30.0,
        *,
        heartbeat: float = 5.0,
        name: str | None = None,
    ) -> None:
        self._connection = Connection(
            address_of(url), token_of(token), timeout, heartbeat, name or client_name()
        )

    def queue(self, name: str, create: bool = False) -> AsyncQueue:
        """A queue by name, without asking the broker: a name that does not exist fails at first
        use, or with `create` is created then."""
        return AsyncQueue(self._connection, name, create)

    async def create_queue(self, name: str, **settings: Unpack[QueueOptions]) -> AsyncQueue:
        """Create a queue. The same name with the same settings is the same queue; with others it
        is refused (`queue_exists`)."""
        params = queue_params(settings)
        await self._connection.run(asking.call("create_queue", None, name=name, settings=params))
        return AsyncQueue(self._connection, name)

    async def queues(self) -> list[QueueInfo]:
        """All queues with their figures, by name."""
        found: list[QueueInfo] = await self._connection.run(
            asking.call("list_queues", figures.read_queues)
        )
        return found

    def topic(self, name: str) -> AsyncTopic:
        """A topic by name, without asking the broker."""
        return AsyncTopic(self._connection, name)

    async def create_topic(self, name: str, **settings: Unpack[TopicOptions]) -> AsyncTopic:
        """Create a topic; the same name with the same settings is the same topic."""
        params = topic_params(settings)
        await self._connection.run(asking.call("create_topic", None, name=name, settings=params))
        return AsyncTopic(self._connection, name)

    async def topics(self) -> list[TopicInfo]:
        """All topics with their figures, by name."""
        found: list[TopicInfo] = await self._connection.run(
            asking.call("list_topics", figures.read_topics)
        )
        return found

    async def close(self) -> None:
        """Close subscriptions and the connection; calls under way fail."""
        await self._connection.close()

    async def __aenter__(self) -> Self:
        await self._connection.open()
        return self

    async def __aexit__(self, *failure: object) -> None:
        await self.close()


def connect_async(
    url: str | None = None,
    token: str | None = None,
    timeout: float = 30.0,
    *,
    heartbeat: float = 5.0,
    name: str | None = None,
) -> AsyncClient:
    """A client of the broker at `nexo://host:port`, by default `$NEXO_URL`, else this machine. It
    connects with `async with`, or at its first call; while the broker is away that waits for it,
    up to `timeout` seconds."""
    return AsyncClient(url, token, timeout, heartbeat=heartbeat, name=name)
