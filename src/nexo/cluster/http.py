"""The HTTP port of a node: the SQS and SNS APIs of all shards at any node, and `/health`.

A request is read whole, and the queue or topic in it says where it goes: to the API of a shard of
this node, or to the node that has it, byte for byte, so that its signature stays valid. A list of
queues is made of the lists of all nodes. What is not there yet says so.
"""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import httptools
import msgspec

from nexo.access.operations import OPERATIONS
from nexo.cluster.calls import NODE, ask
from nexo.cluster.node import TOKENS_SHARD
from nexo.cluster.placement import NodeState
from nexo.cluster.whole import Whole
from nexo.doors.admin_http.app import AdminApp
from nexo.doors.http.body import Gone, read_body, read_form
from nexo.doors.http.front import Front, Guarded
from nexo.doors.http.server import HttpDoor
from nexo.doors.metrics_http.app import MetricsApp
from nexo.doors.sns_http.app import SnsApi
from nexo.doors.sqs_http.app import SqsApp
from nexo.engine.listing import Named
from nexo.vocabulary.errors import InvalidArgument, NexoError, NotReady
from nexo.vocabulary.limits import (
    CLUSTER_ROUTE_S,
    SQS_BODY_S,
    SQS_FORM_BYTES_MAX,
    WAIT_MS_MAX,
)
from nexo.wire import calls, commands
from nexo.wire.frame import Kind, frame, frame_parts

if TYPE_CHECKING:
    import ssl

    from nexo.access.guard import Guard
    from nexo.cluster.node import Node
    from nexo.doors.admin_http.operation import Surroundings
    from nexo.doors.http.exchange import Exchange
    from nexo.engine.engine import Engine

PASSED = b"x-nexo-passed"  # of a request that a node passed on: it is not passed on again
_API = re.compile(r"/api/v1/(?:(?:queues|topics)/(?P<name>[^/]+)(?:/.*)?|(?P<kind>queues|topics))")
_API_OF_ALL = re.compile(r"/api/v1/(?:tokens(?:/[^/]+)?|openapi\.json)")  # wherever the tokens are
_FORM_FIELDS_MAX = 10_000
_HOP = frozenset({b"connection", b"keep-alive", b"transfer-encoding", b"date", b"content-length"})
_VERSIONS = (commands.PROTOCOL_VERSION, commands.PROTOCOL_VERSION)
_IDLE_MAX = 64  # connections to another node that are kept


class _Names(msgspec.Struct, frozen=True, rename="pascal"):
    """Where the name of a queue or topic may stand in a request of SQS or SNS."""

    queue_url: str | None = None
    queue_name: str | None = None
    source_arn: str | None = None
    topic_arn: str | None = None
    target_arn: str | None = None
    subscription_arn: str | None = None
    resource_arn: str | None = None
    name: str | None = None


class _Created(msgspec.Struct, frozen=True):
    """What the admin API is to create."""

    name: str


class _NotYet(InvalidArgument):
    """It works with a broker alone, and will with a cluster."""


def _not_yet(what: str) -> _NotYet:
    return _NotYet(f"{what} does not work on a node of a cluster yet", "see docs/cluster-broker.md")


class HttpSwitch:
    def __init__(
        self,
        node: Node,
        guard: Guard,
        *,
        tls: ssl.SSLContext | None,
        peer_tls: ssl.SSLContext | None,
        account: str,
        region: str,
        has_pauses: bool,
        is_for_this_machine: bool,
        surroundings: Surroundings,
    ) -> None:
        self._node, self._guard, self._peer_tls = node, guard, peer_tls
        self._place = {"account": account, "region": region}
        self._has_pauses = has_pauses
        self._apps: dict[int, tuple[Engine, SqsApp]] = {}
        self._apis: dict[int, tuple[Engine, Guarded]] = {}
        self._peers: dict[str, _Peer] = {}
        self._waiting: dict[int, set[asyncio.Future[None]]] = {}  # for answers of other nodes
        self._surroundings = surroundings
        self._metrics = Guarded(self._show_metrics, guard, "metrics", OPERATIONS["metrics"])
        front = Front(self, {}, lambda: node.trouble, no_other_sites=is_for_this_machine)
        self._door = HttpDoor(front, tls)
        node.when_closed.append(self._shard_closed)
        node.when_moved.append(self._shard_moved)

    async def open(self, host: str, port: int) -> int:
        return await self._door.open(host, port)

    async def close(self) -> None:
        for _, app in self._apps.values():
            app.close()
        for peer in self._peers.values():
            peer.close()
        await self._door.close()

    @property
    def connections(self) -> int:
        return self._door.connections

    # -- Requests -----------------------------------------------------------------------------

    def begin(self, exchange: Exchange) -> None:
        first = "/" + exchange.path[1:].partition("/")[0]
        if first == "/metrics":
            exchange.run(self._metrics)
        elif first == "/console":
            _refuse(exchange, _not_yet(first), 501)
        elif first == "/api":
            exchange.spawn(self._work_api(exchange))
        else:
            exchange.spawn(self._work(exchange))

    async def _show_metrics(self, scope: Any, receive: Any, send: Any) -> None:
        """Of this node: whoever collects metrics asks each."""
        whole: Any = Whole(self._node)
        await MetricsApp(whole, self._surroundings)(scope, receive, send)

    async def _work_api(self, exchange: Exchange) -> None:
        """The admin API: what names a queue or topic goes where that is."""
        try:
            body = await _whole(exchange)
            shard = self._shard_of_api(exchange, body)
            found = await self._found(exchange, shard)
            if isinstance(found, NodeState):
                await self._pass_on(exchange, body, found, shard)
                return
            exchange.add(body)
            exchange.run(self._api_of(shard, found))
        except Gone:
            return
        except NexoError as error:
            status = 501 if isinstance(error, _NotYet) else error.http_status
            _refuse(exchange, error, status)

    def _shard_of_api(self, exchange: Exchange, body: bytes) -> int:
        path = exchange.raw_path.decode("latin-1")
        if _API_OF_ALL.fullmatch(path):
            return TOKENS_SHARD
        meant = _API.fullmatch(path)
        if meant is not None and meant["name"] is not None:
            return self._node.shard_of(unquote(meant["name"]))
        if meant is not None and exchange.method == "POST":
            try:
                name = msgspec.json.decode(body, type=_Created).name
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                return TOKENS_SHARD  # any shard refuses it alike
            return self._node.shard_of(name)
        raise _not_yet(f"{exchange.method} {exchange.path:.80}")

    async def _found(self, exchange: Exchange, shard: int) -> Engine | NodeState:
        if PASSED in exchange.fields:
            return await self._node.local(shard)
        return await self._node.route(shard)

    async def _work(self, exchange: Exchange) -> None:
        try:
            body = await _whole(exchange)
            await self._answer(exchange, body)
        except Gone:
            return
        except NexoError as error:
            _refuse(exchange, error, error.http_status)

    async def _answer(self, exchange: Exchange, body: bytes) -> None:
        action, name = _meant(exchange, body)
        is_passed = PASSED in exchange.fields
        if name is None:
            if action == "ListQueues":
                await self._list_queues(exchange, body, is_passed)
                return
            if action in ("ListTopics", "ListSubscriptions", "CancelMessageMoveTask"):
                raise InvalidArgument(
                    f"{action} does not work in a cluster yet", "see docs/cluster-broker.md"
                )
            shard = (
                TOKENS_SHARD  # whoever it is answers the same: what is wrong with it, or who asks
            )
        else:
            shard = self._node.shard_of(name)
        found = await self._found(exchange, shard)
        if isinstance(found, NodeState):
            await self._pass_on(exchange, body, found, shard)
            return
        exchange.add(body)
        self._app_of(shard, found).begin(exchange)

    async def _list_queues(self, exchange: Exchange, body: bytes, is_passed: bool) -> None:
        """The names of all nodes are here then, and the API answers as it does alone."""
        await self._node.settled()
        names: Named[Any] = Named()
        if not is_passed:
            state = self._node.state
            owners = {owner for owner in state.owners.values() if owner} - {self._node.name}
            others = [state.nodes[owner] for owner in owners]
            asked = [_names_of(each, self._node.secret, self._peer_tls) for each in others]
            for found in await asyncio.gather(*asked):
                for name in found:
                    names[name] = name
        everything: Any = Whole(self._node, names)
        exchange.add(body)
        self._new_app(everything).begin(exchange)

    def _api_of(self, shard: int, engine: Engine) -> Guarded:
        known = self._apis.get(shard)
        if known is None or known[0] is not engine:
            app = AdminApp(engine, self._guard, self._surroundings)
            known = self._apis[shard] = engine, Guarded(app, self._guard, "admin")
        return known[1]

    def _app_of(self, shard: int, engine: Engine) -> SqsApp:
        known = self._apps.get(shard)
        if known is None or known[0] is not engine:
            known = self._apps[shard] = engine, self._new_app(engine)
        return known[1]

    def _new_app(self, engine: Engine) -> SqsApp:
        sns = SnsApi(engine, self._guard, **self._place)
        return SqsApp(
            engine,
            **self._place,
            has_pauses=self._has_pauses,
            guard=self._guard,
            others=[sns],
        )

    def _shard_closed(self, shard: int) -> None:
        """Those who wait for messages are answered; they ask again, and find the new owner."""
        self._apis.pop(shard, None)
        known = self._apps.pop(shard, None)
        if known is not None:
            known[1].close()

    # -- Other nodes ----------------------------------------------------------------------------

    async def _pass_on(self, exchange: Exchange, body: bytes, node: NodeState, shard: int) -> None:
        peer = self._peers.get(node.http)
        if peer is None:
            peer = self._peers[node.http] = _Peer(node.http, self._peer_tls)
        loop = asyncio.get_running_loop()
        asked = loop.create_task(peer.ask(exchange, body))
        moved: asyncio.Future[None] = loop.create_future()
        waiting = self._waiting.setdefault(shard, set())
        waiting.add(moved)
        try:
            either: set[asyncio.Future[Any]] = {asked, moved}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not asked.done():
                raise NotReady("the queue has moved to another node meanwhile", "try again")
        finally:
            waiting.discard(moved)
            asked.cancel()
        status, headers, answer = asked.result()
        lines = b"".join(
            b"%b: %b\r\n" % (name, value) for name, value in headers if name not in _HOP
        )
        exchange.reply(status, b"%bcontent-length: %d\r\n" % (lines, len(answer)), answer)

    def _shard_moved(self, shard: int) -> None:
        for moved in self._waiting.get(shard, ()):
            if not moved.done():
                moved.set_result(None)


class _Peer:
    """Connections to the HTTP port of another node, which are kept for the next request."""

    def __init__(self, address: str, tls: ssl.SSLContext | None) -> None:
        self._host, _, self._port = address.rpartition(":")
        self._tls = tls
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    def close(self) -> None:
        for _, writer in self._idle:
            writer.close()
        self._idle.clear()

    async def ask(
        self, exchange: Exchange, body: bytes
    ) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
        """Send the request as it came, and return status, headers and body of the answer."""
        query = b"?" + exchange.query if exchange.query else b""
        lines = [b"%b %b%b HTTP/1.1\r\n" % (exchange.method.encode(), exchange.raw_path, query)]
        lines += [
            b"%b: %b\r\n" % (name, value)
            for name, value in exchange.headers
            if name not in _HOP and name != b"expect"
        ]
        lines.append(b"%b: 1\r\ncontent-length: %d\r\n\r\n" % (PASSED, len(body)))
        try:
            # A long poll may take its time, and so may a shard that is on its way.
            async with asyncio.timeout(WAIT_MS_MAX / 1000 + CLUSTER_ROUTE_S):
                return await self._ask([*lines, body])
        except (OSError, TimeoutError, EOFError, httptools.HttpParserError) as error:
            raise NotReady(
                f"the node at {self._host}:{self._port} does not answer: {error}"
            ) from None

    async def _ask(self, pieces: list[bytes]) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
        while self._idle and self._idle[-1][0].at_eof():
            self._idle.pop()[1].close()
        if self._idle:
            reader, writer = self._idle.pop()
        else:
            host, port = self._host.strip("[]"), int(self._port)
            reader, writer = await asyncio.open_connection(host, port, ssl=self._tls)
        answer = _Answer()
        try:
            writer.writelines(pieces)
            while not answer.is_whole:
                data = await reader.read(1 << 16)
                if not data:
                    raise EOFError("it hung up")
                answer.parser.feed_data(data)
        except BaseException:
            writer.close()
            raise
        if answer.parser.should_keep_alive() and len(self._idle) < _IDLE_MAX:
            self._idle.append((reader, writer))
        else:
            writer.close()
        return answer.parser.get_status_code(), answer.headers, b"".join(answer.parts)


class _Answer:
    """What httptools tells of an answer."""

    def __init__(self) -> None:
        self.parser = httptools.HttpResponseParser(self)
        self.headers: list[tuple[bytes, bytes]] = []
        self.parts: list[bytes] = []
        self.is_whole = False

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))

    def on_body(self, body: bytes) -> None:
        self.parts.append(body)

    def on_message_complete(self) -> None:
        self.is_whole = True


async def _whole(exchange: Exchange) -> bytes:
    if exchange.is_whole and exchange.size <= SQS_FORM_BYTES_MAX:
        return exchange.take_body()
    return await read_body(exchange.receive, exchange.headers, SQS_FORM_BYTES_MAX, SQS_BODY_S)


_QUEUE_PATH = re.compile(r"/\d{12}/([^/?]+)")


def _meant(exchange: Exchange, body: bytes) -> tuple[str, str | None]:
    """The action of a request, and the queue or topic that it is about; None: about none. What
    cannot be read is for the API to refuse."""
    try:
        if b"x-amz-target" in exchange.fields:
            action = exchange.fields[b"x-amz-target"].rpartition(b".")[2].decode("latin-1")
            names = msgspec.json.decode(body or b"{}", type=_Names)
        else:
            fields = dict(read_form(exchange.query, _FORM_FIELDS_MAX))
            fields.update(read_form(body, _FORM_FIELDS_MAX))
            action = fields.get("Action", "")
            at_queue = _QUEUE_PATH.fullmatch(exchange.path)
            if at_queue is not None:
                fields.setdefault("QueueUrl", exchange.path)
            names = msgspec.convert(fields, _Names)
    except (msgspec.DecodeError, NexoError, UnicodeDecodeError, RecursionError):
        return "", None
    return action, _name_of(names)


def _name_of(names: _Names) -> str | None:
    if names.queue_url:
        return unquote(names.queue_url.partition("?")[0].rstrip("/").rpartition("/")[2])
    if names.subscription_arn:  # arn:aws:sns:REGION:ACCOUNT:TOPIC:ID
        parts = names.subscription_arn.split(":")
        return parts[5] if len(parts) > 5 else None
    arn = names.source_arn or names.topic_arn or names.target_arn or names.resource_arn
    if arn:
        return arn.rpartition(":")[2] or None
    return names.queue_name or names.name


async def _names_of(node: NodeState, secret: str, tls: ssl.SSLContext | None) -> list[str]:
    """The queues of another node."""
    hello = commands.PassedHello(commands.MAGIC, _VERSIONS, NODE, passed=secret)
    called = frame_parts(Kind.CALL, 1, b"", [calls.encode(calls.ListQueues())])
    answer = await ask(node, [frame(Kind.HELLO, 0, commands.pack(hello)), *called], tls)
    if answer.kind is not Kind.OK:
        raise NotReady(f"node {node.name!r} does not list its queues", "try again")
    return [each.name for each in calls.read(calls.ListQueues, answer)]


def _refuse(exchange: Exchange, error: NexoError, status: int) -> None:
    told = {"code": error.code, "message": error.message, "hint": error.hint}
    _reply(exchange, status, msgspec.json.encode({"error": told, "__type": error.code}))


def _reply(exchange: Exchange, status: int, body: bytes) -> None:
    head = b"content-type: application/json\r\ncache-control: no-store\r\ncontent-length: %d\r\n"
    exchange.reply(status, head % len(body), body)
