# Generated from src/nexo/client/aio/client.py: edit that file and run scripts/twins.py.
"""A broker, as a blocking client sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from nexo.client import requests, tokens, tracing
from nexo.client.address import address_of, token_of
from nexo.client.blocking.connection import INTERRUPTION, Connection
from nexo.client.blocking.queue import Queue
from nexo.client.blocking.topic import Topic
from nexo.client.handshake import client_name
from nexo.client.info import read_connections
from nexo.vocabulary.errors import NexoError
from nexo.vocabulary.limits import LIST_PAGE_MAX
from nexo.vocabulary.settings import queue_params, topic_params
from nexo.wire import calls

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable
    from typing import Unpack

    from nexo.client.info import ConnectionInfo, QueueInfo, TopicInfo
    from nexo.client.tokens import NewToken, TokenInfo
    from nexo.vocabulary.definitions import Definitions, Imported
    from nexo.vocabulary.user_settings import QueueOptions, TopicOptions
    from nexo.wire.answers import AuditLine, ClusterFigures


class Client:
    """A client of one broker, on one connection that any number of threads share.

    Calls are retried while the broker is away, for `timeout` seconds; a retried push is never
    doubled. `connect` makes one."""

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        timeout: float = 30.0,
        *,
        heartbeat: float = 5.0,
        name: str | None = None,
        tls_ca: str | None = None,
        tls_verify: bool = True,
    ) -> None:
        tracing.look()
        self._connection = Connection(
            address_of(url, tls_ca, tls_verify),
            token_of(token),
            timeout,
            heartbeat,
            name or client_name(),
        )

    @property
    def connected(self) -> bool:
        """Whether there is a connection now. One that is lost comes back by itself while anybody
        waits or is subscribed, else with the next call; the log `nexo.client` tells of both."""
        return self._connection.session.connected

    def queue(self, name: str, create: bool = False) -> Queue:
        """A queue by name, without asking the broker: a name that does not exist fails at first
        use, or with `create` is created then."""
        return Queue(self._connection, name, create)

    def create_queue(self, name: str, **settings: Unpack[QueueOptions]) -> Queue:
        """Create a queue. The same name with the same settings is the same queue; with others it
        is refused (`queue_exists`)."""
        given: Any = queue_params(settings)  # the broker knows the defaults of the others
        self._connection.run(requests.call(calls.CreateQueue(name, given)))
        return Queue(self._connection, name)

    def queues(self) -> list[QueueInfo]:
        """All queues with their figures, by name."""
        found: list[QueueInfo] = []
        while True:
            page = self._connection.run(requests.queues_behind(found))
            found += page
            if len(page) < LIST_PAGE_MAX:
                return found

    def topic(self, name: str) -> Topic:
        """A topic by name, without asking the broker."""
        return Topic(self._connection, name)

    def create_topic(self, name: str, **settings: Unpack[TopicOptions]) -> Topic:
        """Create a topic; the same name with the same settings is the same topic."""
        given: Any = topic_params(settings)
        self._connection.run(requests.call(calls.CreateTopic(name, given)))
        return Topic(self._connection, name)

    def topics(self) -> list[TopicInfo]:
        """All topics with their figures, by name."""
        found: list[TopicInfo] = []
        while True:
            page = self._connection.run(requests.topics_behind(found))
            found += page
            if len(page) < LIST_PAGE_MAX:
                return found

    def backup(
        self,
        file: str | os.PathLike[str],
        *,
        replace: bool = False,
        progress: Callable[[str, int, int], None] | None = None,
    ) -> int:
        """Copy everything that the broker holds into a local file, while it goes on working;
        returns its size. `progress` is called with what is being done, the bytes so far and in
        all."""
        from nexo.client.backup import take_backup  # hashing has no place in every start

        steps = take_backup(file, progress, replace)
        try:
            asked = next(steps)
            while True:
                try:
                    answer = self._connection.run(asked)
                except (NexoError, INTERRUPTION) as error:  # the broker hears of it too
                    asked = steps.throw(error)
                else:
                    asked = steps.send(answer)
        except StopIteration as done:
            return int(done.value)

    def connections(self) -> list[ConnectionInfo]:
        """Who is connected, and who consumes what. Only admins may."""
        found: list[ConnectionInfo] = []
        while True:
            after = found[-1].number if found else 0
            asked = requests.call(calls.ListConnections(after), read_connections)
            page: list[ConnectionInfo] = self._connection.run(asked)
            found += page
            if len(page) < LIST_PAGE_MAX:
                return found

    def audit(self, limit: int = 50) -> list[AuditLine]:
        """Who changed what, the newest first. Only admins may."""
        found: list[AuditLine] = self._connection.run(requests.call(calls.ReadAudit(limit)))
        return found

    def close_connection(self, number: int) -> None:
        """End a connection: what its consumers hold goes back at once. A client that is well comes
        back by itself. Only admins may."""
        self._connection.run(requests.call(calls.CloseConnection(number)))

    def cluster(self) -> ClusterFigures:
        """The nodes and shards of the cluster that the broker is a node of. Only admins may."""
        found: ClusterFigures = self._connection.run(requests.call(calls.DescribeCluster()))
        return found

    def drain_node(self, node: str) -> None:
        """Let the shards of a node go to the others, until `rebalance`. Only admins may."""
        self._connection.run(requests.call(calls.DrainNode(node)))

    def rebalance(self) -> None:
        """Give every node that is up its share of the shards. Only admins may."""
        self._connection.run(requests.call(calls.RebalanceCluster()))

    def create_token(
        self, name: str, allow: Iterable[str], expires: float | None = None, aws: bool = False
    ) -> NewToken:
        """Make a token that allows this, such as `["orders.*:push,pop"]`, for so many seconds or
        for ever; with `aws` an access key for the SQS API. Only admins may."""
        made: NewToken = self._connection.run(tokens.create(name, allow, expires, aws))
        return made

    def tokens(self) -> list[TokenInfo]:
        """All tokens by name, without their secrets."""
        found: list[TokenInfo] = self._connection.run(tokens.listing())
        return found

    def revoke_token(self, name: str) -> None:
        """From now on nobody gets anything with this token, on open connections either."""
        self._connection.run(tokens.revoke(name))

    def export_definitions(self) -> Definitions:
        """Queues, topics and bindings with all their settings, as one document. Only admins
        may."""
        found: Definitions = self._connection.run(requests.export_definitions())
        return found

    def import_definitions(
        self, document: Definitions | dict[str, Any], *, dry_run: bool = False
    ) -> list[Imported]:
        """Create and change what a document of definitions says, and say what was done with each.
        All is checked first, and a dry run does no more. Only admins may."""
        asked = requests.import_definitions(document, dry_run)
        done: list[Imported] = self._connection.run(asked)
        return done

    def close(self) -> None:
        """Close subscriptions and the connection; calls under way fail."""
        self._connection.close()

    def __enter__(self) -> Self:
        self._connection.enter()
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()
