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
    """A client of one broker. Any number of threads can share its one connection. While the broker
    is unreachable, calls are retried for `timeout` seconds; a retried push is never duplicated.
    Create one with `connect`."""

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
        follow_redirects: bool = True,
    ) -> None:
        tracing.look()
        self._connection = Connection(
            address_of(url, tls_ca, tls_verify),
            token_of(token),
            timeout,
            heartbeat,
            name or client_name(),
            follow_redirects,
        )

    @property
    def connected(self) -> bool:
        """Whether there is a connection now. A lost connection is opened again while a call
        waits or a subscription is open, else with the next call. The logger `nexo.client`
        reports both."""
        return self._connection.session.connected

    def queue(self, name: str, create: bool = False) -> Queue:
        """A queue by name. This does not contact the broker: a name that does not exist fails at
        first use, or is created then with `create`."""
        return Queue(self._connection, name, create)

    def create_queue(self, name: str, **settings: Unpack[QueueOptions]) -> Queue:
        """Create a queue. If it exists with the same settings, that queue is returned; with other
        settings the call fails with `queue_exists`."""
        given: Any = queue_params(settings)  # the broker knows the defaults of the others
        self._connection.run(requests.call(calls.CreateQueue(name, given)))
        return Queue(self._connection, name)

    def queues(self) -> list[QueueInfo]:
        """All queues with their message counts, sorted by name."""
        found: list[QueueInfo] = []
        while True:
            page = self._connection.run(requests.queues_behind(found))
            found += page
            if len(page) < LIST_PAGE_MAX:
                return found

    def topic(self, name: str) -> Topic:
        """A topic by name. This does not contact the broker."""
        return Topic(self._connection, name)

    def create_topic(self, name: str, **settings: Unpack[TopicOptions]) -> Topic:
        """Create a topic. If it exists with the same settings, that topic is returned."""
        given: Any = topic_params(settings)
        self._connection.run(requests.call(calls.CreateTopic(name, given)))
        return Topic(self._connection, name)

    def topics(self) -> list[TopicInfo]:
        """All topics with their message counts, sorted by name."""
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
        """Copy all data of the running broker into a local file; returns its size. `progress` is
        called with the current step, the bytes so far and the total bytes."""
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
        """All connections with their consumers. Needs the permission `admin`."""
        found: list[ConnectionInfo] = []
        while True:
            after = found[-1].number if found else 0
            asked = requests.call(calls.ListConnections(after), read_connections)
            page: list[ConnectionInfo] = self._connection.run(asked)
            found += page
            if len(page) < LIST_PAGE_MAX:
                return found

    def audit(self, limit: int = 50) -> list[AuditLine]:
        """The audit log, newest first. Needs the permission `admin`."""
        found: list[AuditLine] = self._connection.run(requests.call(calls.ReadAudit(limit)))
        return found

    def close_connection(self, number: int) -> None:
        """Close a connection. The messages of its consumers return to their queues at once; its
        client reconnects by itself. Needs the permission `admin`."""
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
        """Create a token with permissions such as `["orders.*:push,pop"]`, which expires after
        `expires` seconds or never. With `aws`, create an access key for the SQS API. Needs the
        permission `admin`."""
        made: NewToken = self._connection.run(tokens.create(name, allow, expires, aws))
        return made

    def tokens(self) -> list[TokenInfo]:
        """All tokens, sorted by name, without their secrets."""
        found: list[TokenInfo] = self._connection.run(tokens.listing())
        return found

    def revoke_token(self, name: str) -> None:
        """Revoke a token. It stops working at once, also on open connections."""
        self._connection.run(tokens.revoke(name))

    def export_definitions(self) -> Definitions:
        """Queues, topics and bindings with all their settings, as one document. Needs the
        permission `admin`."""
        found: Definitions = self._connection.run(requests.export_definitions())
        return found

    def import_definitions(
        self, document: Definitions | dict[str, Any], *, dry_run: bool = False
    ) -> list[Imported]:
        """Create and change the definitions of a document; returns what was done with each. The
        whole document is checked first; with `dry_run` nothing is changed. Needs the permission
        `admin`."""
        asked = requests.import_definitions(document, dry_run)
        done: list[Imported] = self._connection.run(asked)
        return done

    def close(self) -> None:
        """Close all subscriptions and the connection. Calls that are under way fail."""
        self._connection.close()

    def __enter__(self) -> Self:
        self._connection.enter()
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()
