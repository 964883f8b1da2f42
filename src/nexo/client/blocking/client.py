"""`nexo.connect`: the blocking client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from nexo.client import asking, figures
from nexo.client.address import address_of, token_of
from nexo.client.blocking.connection import Connection
from nexo.client.blocking.queue import Queue
from nexo.client.blocking.topic import Topic
from nexo.client.identity import client_name
from nexo.client.settings import queue_params, topic_params

if TYPE_CHECKING:
    from typing import Unpack

    from nexo.client.figures import QueueInfo, TopicInfo
    from nexo.client.settings import QueueOptions, TopicOptions


class Client:
    """A client of one broker, on one connection that any number of threads share.

    Calls are retried while the broker is away, for `timeout` seconds; a retried push is never
    doubled. After a fork the child has a connection of its own: messages that it inherited can be
    finished there, subscriptions stay the parent's."""

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

    def queue(self, name: str, create: bool = False) -> Queue:
        """A queue by name, without asking the broker: a name that does not exist fails at first
        use, or with `create` is created then."""
        return Queue(self._connection, name, create)

    def create_queue(self, name: str, **settings: Unpack[QueueOptions]) -> Queue:
        """Create a queue. The same name with the same settings is the same queue; with others it
        is refused (`queue_exists`)."""
        params = queue_params(settings)
        self._connection.run(asking.call("create_queue", None, name=name, settings=params))
        return Queue(self._connection, name)

    def queues(self) -> list[QueueInfo]:
        """All queues with their figures, by name."""
        found: list[QueueInfo] = self._connection.run(
            asking.call("list_queues", figures.read_queues)
        )
        return found

    def topic(self, name: str) -> Topic:
        """A topic by name, without asking the broker."""
        return Topic(self._connection, name)

    def create_topic(self, name: str, **settings: Unpack[TopicOptions]) -> Topic:
        """Create a topic; the same name with the same settings is the same topic."""
        params = topic_params(settings)
        self._connection.run(asking.call("create_topic", None, name=name, settings=params))
        return Topic(self._connection, name)

    def topics(self) -> list[TopicInfo]:
        """All topics with their figures, by name."""
        found: list[TopicInfo] = self._connection.run(
            asking.call("list_topics", figures.read_topics)
        )
        return found

    def close(self) -> None:
        """Close subscriptions and the connection; calls under way fail."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()


def connect(
    url: str | None = None,
    token: str | None = None,
    timeout: float = 30.0,
    *,
    heartbeat: float = 5.0,
    name: str | None = None,
) -> Client:
    """Connect to a broker: `nexo://host:port`, by default `$NEXO_URL`, else this machine. While it
    is away this waits for it, up to `timeout` seconds."""
    client = Client(url, token, timeout, heartbeat=heartbeat, name=name)
    client._connection.open()
    return client
