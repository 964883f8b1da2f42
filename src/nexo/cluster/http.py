"""The HTTP port of a node: the SQS and SNS APIs, the admin API and the console of all shards at any
node; `/metrics` and `/health` of this one.

What a request names says where it goes: to a shard of this node, or on to the node that has it.
What is about many (lists, the overview, definitions) is done here, with the shards of this node and
what the others tell of theirs; the apps do with that what they do with the engine of a broker
alone, and check what the caller may see.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import msgspec

from nexo.access.operations import OPERATIONS
from nexo.cluster.calls import everything
from nexo.cluster.others import gathered
from nexo.cluster.peers import PASSED, Peer, is_passed
from nexo.cluster.placement import NodeState
from nexo.cluster.subjects import (
    api_name,
    api_number,
    aws_subject,
    console_name,
    created_name,
    form_field,
)
from nexo.cluster.tokens import TOKENS_SHARD
from nexo.cluster.whole import Scope, Whole
from nexo.doors.admin_http.app import AdminApp
from nexo.doors.admin_http.request import Paging, read_query
from nexo.doors.http.body import Gone, read_body
from nexo.doors.http.front import Front, Guarded, refuse
from nexo.doors.http.server import HttpDoor
from nexo.doors.metrics_http.app import MetricsApp
from nexo.doors.sns_http.app import SnsApi
from nexo.doors.sqs_http.app import SqsApp
from nexo.vocabulary.errors import NexoError, NotReady
from nexo.vocabulary.limits import SQS_BODY_S, SQS_FORM_BYTES_MAX

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable

    from nexo.access.guard import Guard
    from nexo.cluster.node import Node
    from nexo.cluster.others import Shards
    from nexo.cluster.surroundings import NodeSurroundings
    from nexo.doors.http.exchange import Exchange
    from nexo.doors.http.front import App
    from nexo.engine.engine import Engine

    Subject = int | NodeState | None  # a shard, a node; None: here, whichever node this is

_CONSOLE, _API = "/console", "/api/v1/"
_OF_NO_QUEUE = ("/console/static/", "/console/login")
# Of SQS and SNS: what lists those of all shards, and what looks for a source among them.
_OF_ALL = frozenset({"ListQueues", "ListTopics", "ListSubscriptions", "ListDeadLetterSourceQueues"})
_AMONG_ALL = frozenset({"StartMessageMoveTask"})


class HttpSwitch:
    def __init__(
        self,
        node: Node,
        guard: Guard,
        whole: Whole,
        console: App,
        *,
        tls: ssl.SSLContext | None,
        peer_tls: ssl.SSLContext | None,
        account: str,
        region: str,
        has_pauses: bool,
        is_for_this_machine: bool,
        surroundings: NodeSurroundings,
    ) -> None:
        assert whole.far is not None
        self._node, self._guard, self._peer_tls = node, guard, peer_tls
        self._whole, self._far, self._console = whole, whole.far, console
        self._place = {"account": account, "region": region}
        self._has_pauses = has_pauses
        self._apps: dict[int, tuple[Engine, SqsApp]] = {}
        self._peers: dict[str, Peer] = {}
        self._waiting: dict[int, set[asyncio.Future[None]]] = {}  # for answers of other nodes
        engine: Any = whole
        self._admin = AdminApp(engine, guard, surroundings)
        here: Any = Whole(node)
        metrics = MetricsApp(here, surroundings.own, surroundings.metrics)
        self._metrics = Guarded(metrics, guard, "metrics", OPERATIONS["metrics"])
        front = Front(
            self,
            {},
            lambda: node.trouble,
            no_other_sites=is_for_this_machine,
            more_health=node.health,
            has_console=True,
            store="PostgreSQL",
        )
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
        elif first == _CONSOLE:
            exchange.spawn(self._guarded(exchange, self._work_console))
        elif first == "/api":
            exchange.spawn(self._guarded(exchange, self._work_api))
        else:
            exchange.spawn(self._guarded(exchange, self._work))

    async def _guarded(
        self, exchange: Exchange, work: Callable[[Exchange], Awaitable[None]]
    ) -> None:
        if PASSED in exchange.fields and not is_passed(exchange, self._node.secret):
            del exchange.fields[PASSED]  # a stranger says so
        try:
            if self._guard.is_required and not self._node.is_held:
                await self._node.held()  # before anybody is admitted by tokens of long ago
            await work(exchange)
        except Gone:
            return
        except NexoError as error:
            _refuse(exchange, error)

    async def _found(self, exchange: Exchange, shard: int) -> Engine | NodeState:
        if PASSED in exchange.fields:
            return await self._node.local(shard)
        return await self._node.route(shard)

    # -- SQS and SNS --------------------------------------------------------------------------

    async def _work(self, exchange: Exchange) -> None:
        body = await _whole(exchange)
        action, name = aws_subject(exchange, body)
        if action in _OF_ALL and PASSED not in exchange.fields:
            await self._node.settled()
            exchange.add(body)
            self._new_app(await everything(self._node, self._whole)).begin(exchange)
            return
        # Whoever has the tokens answers as all do: what is wrong with it, or who asks.
        shard = TOKENS_SHARD if name is None else self._node.shard_of(name)
        found = await self._found(exchange, shard)
        if isinstance(found, NodeState):
            await self._pass_on(exchange, body, found, shard)
            return
        exchange.add(body)
        if action in _AMONG_ALL:
            whole = await everything(self._node, self._whole)
            self._new_app(Scope(whole, found)).begin(exchange)
        else:
            self._app_of(shard, found).begin(exchange)

    def _app_of(self, shard: int, engine: Engine) -> SqsApp:
        known = self._apps.get(shard)
        if known is None or known[0] is not engine:
            known = self._apps[shard] = engine, self._new_app(engine)
        return known[1]

    def _new_app(self, engine: Any) -> SqsApp:
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
        known = self._apps.pop(shard, None)
        if known is not None:
            known[1].close()

    # -- The admin API --------------------------------------------------------------------------

    async def _work_api(self, exchange: Exchange) -> None:
        path = exchange.raw_path.decode("latin-1")
        body: bytes | None = None
        name = api_name(path)
        if name is None and exchange.method == "POST" and path in _CREATING:
            body = await _whole(exchange)
            name = created_name(body)
        kind, number = api_number(path)
        subject: Subject = None
        if name is not None:
            subject = self._node.shard_of(name)
        elif kind == "redrives":
            subject = self._node.shard_of_task(number)
        elif kind == "connections":
            subject = await self._holder_of(exchange, number)
        elif path.startswith(f"{_API}tokens"):
            subject = TOKENS_SHARD
        if isinstance(subject, int):
            found = await self._found(exchange, subject)
            if not isinstance(found, NodeState):
                _give_back(exchange, body)
                exchange.run(self._api(lambda scope: _at_once(found)))
                return
            body = await _whole(exchange) if body is None else body
            await self._pass_on(exchange, body, found, subject)
        elif subject is not None:
            await self._peer(subject).stream(exchange, await _whole(exchange))
        else:
            _give_back(exchange, body)
            exchange.run(self._api(lambda scope: self._engine_for(path, scope)))

    def _api(self, engine_for: Callable[[Any], Awaitable[Any]]) -> App:
        """The API with an engine that is found once it is known who asks."""

        async def work(scope: Any, receive: Any, send: Any) -> None:
            try:
                scope["state"]["engine"] = await engine_for(scope)
            except NexoError as error:
                await refuse(send, error)
                return
            await self._admin(scope, receive, send)

        return Guarded(work, self._guard, "admin")

    async def _engine_for(self, path: str, scope: Any) -> Any:
        """What a request is about that names nothing: as much of other nodes as it needs."""
        node, far, whole = self._node, self._far, self._whole
        caller, what = scope["state"]["caller"], path.removeprefix(_API)
        if scope["method"] == "POST" or what not in _GATHERED:
            return whole
        await node.settled()
        if what in ("queues", "topics"):
            wanted = read_query(scope["query_string"], Paging)
            page_of = far.page_of_queues if what == "queues" else far.page_of_topics

            async def gather(shards: Shards) -> Whole:
                page = await page_of(shards, wanted.after, wanted.limit, caller.knows)
                given: dict[str, Any] = {what: page}
                return Whole(node, far, engines=shards.here, **given)

            return await gathered(node, gather)
        if what == "connections":
            await far.all_connections()
            return whole
        await far.all_nodes()
        return await everything(node, whole)

    async def _holder_of(self, exchange: Exchange, number: int) -> NodeState | None:
        """The node that a connection is made to; None: this one, or nobody knows it."""
        if PASSED in exchange.fields or self._whole.connections.has_own(number):
            return None
        await self._far.all_connections()
        for name, told in self._far.connections.items():
            if any(each.number == number for each in told.own):
                return self._node.state.nodes.get(name)
        return None

    # -- The console ----------------------------------------------------------------------------

    async def _work_console(self, exchange: Exchange) -> None:
        path = exchange.raw_path.decode("latin-1")
        body = await _whole(exchange) if exchange.method == "POST" else b""
        subject = await self._console_subject(exchange, path, body)
        engine: Any = self._whole
        if isinstance(subject, int):
            found = await self._found(exchange, subject)
            if isinstance(found, NodeState):
                subject = found
            else:
                engine = Scope(self._whole, found)
        if isinstance(subject, NodeState):
            await self._peer(subject).stream(exchange, body)
            return
        if not path.startswith(_OF_NO_QUEUE):
            self._far.looked()
            await self._far.fresh()
        exchange.add(body)

        async def work(scope: Any, receive: Any, send: Any) -> None:
            scope["state"]["engine"] = engine
            await self._console(scope, receive, send)

        exchange.run(work)

    async def _console_subject(self, exchange: Exchange, path: str, body: bytes) -> Subject:
        name = console_name(path)
        if name is None and exchange.method == "POST":
            if path in ("/console/queues", "/console/topics"):
                name = form_field(body, "name").strip()
            elif path == "/console/consumers/close":
                number = form_field(body, "number")
                if number.isascii() and number.isdigit():
                    return await self._holder_of(exchange, int(number[:19]))
        if name is not None:
            return self._node.shard_of(name)
        if path.startswith("/console/access"):
            return TOKENS_SHARD
        if path.endswith("/consumers"):
            with contextlib.suppress(NexoError):
                await self._far.all_connections()
        return None

    # -- Other nodes ----------------------------------------------------------------------------

    def _peer(self, node: NodeState) -> Peer:
        peer = self._peers.get(node.http)
        if peer is None:
            peer = self._peers[node.http] = Peer(node.http, self._node.secret, self._peer_tls)
        return peer

    async def _pass_on(self, exchange: Exchange, body: bytes, node: NodeState, shard: int) -> None:
        loop = asyncio.get_running_loop()
        asked = loop.create_task(self._peer(node).ask(exchange, body))
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
        asked.result().reply(exchange)

    def _shard_moved(self, shard: int) -> None:
        for moved in self._waiting.get(shard, ()):
            if not moved.done():
                moved.set_result(None)


_CREATING = (f"{_API}queues", f"{_API}topics")
_GATHERED = frozenset({"queues", "topics", "connections", "overview", "definitions"})


async def _at_once(engine: Engine) -> Engine:
    return engine


def _give_back(exchange: Exchange, body: bytes | None) -> None:
    """What was read to see what it is about is for the app to read."""
    if body is not None:
        exchange.add(body)


async def _whole(exchange: Exchange) -> bytes:
    if exchange.is_whole and exchange.size <= SQS_FORM_BYTES_MAX:
        return exchange.take_body()
    return await read_body(exchange.receive, exchange.headers, SQS_FORM_BYTES_MAX, SQS_BODY_S)


def _refuse(exchange: Exchange, error: NexoError) -> None:
    told = {"code": error.code, "message": error.message, "hint": error.hint}
    body = msgspec.json.encode({"error": told, "__type": error.code})
    head = b"content-type: application/json\r\ncache-control: no-store\r\ncontent-length: %d\r\n"
    exchange.reply(error.http_status, head % len(body), body)
