"""The RPC port of a node: it takes any call, and passes it on to where its queue or topic lives.

A client's connection has *legs*: one for each shard of this node that it uses, which is a
connection of the RPC door to that shard's engine, without a socket; and one for each other node,
which is a connection to its RPC port. Frames are passed on as they are: a leg's answers carry the
correlations that the client has chosen. What a frame is about is all that is read of it.

A leg that ends (its shard moves, its node dies) ends the client's connection. Clients come back by
themselves and send again what has no answer, as after a restart of a broker, and find the new
owner. A connection that was passed on is not passed on again.

A client that understands it is told when most of what it does goes to one other node: see
`redirects`. It is free to stay.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from hashlib import sha256
from hmac import compare_digest
from typing import TYPE_CHECKING, Any, cast

import msgspec

from nexo.access.caller import ANYONE
from nexo.cluster.calls import NODE, Gathering
from nexo.cluster.follower import STARTS, AskingLeg, Follower
from nexo.cluster.legs import Leg, NodeLeg, ShardLeg
from nexo.cluster.links import Links
from nexo.cluster.others import METHOD
from nexo.cluster.post import METHODS
from nexo.cluster.redirects import Usage
from nexo.doors.rpc_tcp.access import FRAMES
from nexo.doors.rpc_tcp.connection import DOOR, HEARTBEAT_MS_MAX, HEARTBEAT_MS_MIN
from nexo.doors.rpc_tcp.inbox import Inbox
from nexo.engine.connections import ConnectionFigures
from nexo.vocabulary.errors import (
    InvalidArgument,
    NexoError,
    RateLimited,
    Unauthorized,
    VersionMismatch,
)
from nexo.vocabulary.limits import (
    CLUSTER_HEARTBEAT_MS,
    HEARTBEATS_MISSED_MAX,
    RPC_CLOSING_MS,
    RPC_CONNECTIONS_MAX,
    RPC_GREETING_BYTES_MAX,
    RPC_GREETING_MS,
    RPC_UNREAD_BYTES_MAX,
    SUBSCRIPTIONS_MAX,
)
from nexo.wire import commands
from nexo.wire.frame import (
    FirstFrame,
    Frame,
    FrameReader,
    Kind,
    ProtocolError,
    frame,
    frame_parts,
)

if TYPE_CHECKING:
    import ssl
    from collections.abc import Coroutine, Iterable

    from nexo.access.caller import Caller
    from nexo.access.guard import Guard
    from nexo.cluster.node import Node
    from nexo.cluster.placement import NodeState
    from nexo.cluster.questions import Answering
    from nexo.cluster.whole import Whole
    from nexo.engine.connections import ConsumerFigures

_HEARTBEAT = frame(Kind.HEARTBEAT, 0)
_GOODBYE = frame(Kind.GOODBYE, 0)
_NUMBER_BITS = 48  # of a connection: drawn, as nodes number theirs apart
_SUBSCRIBED = (Kind.UNSUBSCRIBE, Kind.CREDIT)  # they name a subscription of this connection


class RpcSwitch:
    """The listener."""

    def __init__(
        self,
        node: Node,
        server_name: str,
        guard: Guard,
        tls: ssl.SSLContext | None = None,
        peer_tls: ssl.SSLContext | None = None,
    ) -> None:
        """`peer_tls` is what this node speaks to others with."""
        self.node, self.guard, self.server_name = node, guard, server_name
        self.peer_tls = peer_tls
        self.instance = secrets.randbits(63)
        # What all nodes of this cluster say alike, and nobody else.
        self.cluster = sha256(f"cluster {node.secret}".encode()).hexdigest()[:16]
        self.connections: set[Switch] = set()
        self.whole: Whole  # all shards of all nodes, for calls that are about many …
        self.answering: Answering  # … and for other nodes, those of this one
        self._tls = tls
        self._server: asyncio.Server | None = None
        self.links = node.post.peers = Links(node, peer_tls)
        node.when_opened.append(self._shard_opened)
        node.when_closed.append(self._shard_closed)
        node.when_moved.append(self._shard_moved)

    async def open(self, host: str, port: int) -> int:
        """Listen; returns the port, which is of the system's choice if 0 was asked for."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: Switch(self),
            host,
            port,
            backlog=1024,
            ssl=self._tls,
            ssl_handshake_timeout=None if self._tls is None else RPC_GREETING_MS / 1000,
        )
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    async def close(self) -> None:
        """Take no more connections, and say goodbye on those that are there."""
        self.links.close()
        if self._server is not None:
            self._server.close()
        for connection in list(self.connections):
            connection.end()
        if self._server is not None:
            await self._server.wait_closed()

    def _shard_opened(self, shard: int) -> None:
        for connection in self.connections:
            connection.follower.look_again()

    def _shard_closed(self, shard: int) -> None:
        for connection in list(self.connections):
            connection.shard_closed(shard)

    def _shard_moved(self, shard: int) -> None:
        for connection in list(self.connections):
            connection.shard_moved(shard)


class Switch(asyncio.Protocol):
    """One connection of a client, or of a node that passes one on."""

    def __init__(self, door: RpcSwitch) -> None:
        self.door = door
        self.node = door.node
        self.peer = ""
        self.hello = b""  # for the legs
        self.passed_hello = b""
        self.caller: Caller | None = None
        self.is_passed = False
        self.is_node = False  # another node asks for itself
        self.number = 0
        self._name = self._software = ""
        self._since_ms = 0
        self.transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._first: FirstFrame | None = FirstFrame(RPC_GREETING_BYTES_MAX)
        self._reader = FrameReader()
        self._inbox = Inbox()
        self._legs: dict[int, Leg] = {}
        self._nodes: dict[str, NodeLeg] = {}
        self._asking: dict[str, AskingLeg] = {}
        self.follower = Follower(self)
        self._subscriptions: dict[int, int] = {}  # the shard of each
        self._usage: Usage | None = None  # of a client that can be sent to another node
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_ending = False
        self._is_reading = self._is_writable = True
        self._held_bytes = 0
        self._heartbeat_s = RPC_GREETING_MS / 1000
        self._patience_s = self._heartbeat_s * HEARTBEATS_MISSED_MAX
        self._heard = self._spoke = self._beat_due = self._loop.time()
        self._pulse: asyncio.TimerHandle | None = None

    # -- The transport's side ---------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = made = cast("asyncio.Transport", transport)
        made.set_write_buffer_limits(high=RPC_UNREAD_BYTES_MAX)
        self.peer = str((made.get_extra_info("peername") or ("",))[0])
        if len(self.door.connections) >= RPC_CONNECTIONS_MAX:
            self.end(RateLimited(f"{RPC_CONNECTIONS_MAX} clients are connected already"))
            return
        self.door.connections.add(self)
        self._beat_later()

    def data_received(self, data: bytes) -> None:
        self._heard = self._loop.time()
        try:
            if self._first is not None:
                greeting, data = self._first.feed(data)
                if greeting is None:
                    return
                self._first = None
                self._greet(greeting)
            self._inbox.add(self._reader.feed(data))
            if not self._inbox.is_waiting:
                self._inbox.take(self, self._take)
        except ProtocolError as error:
            self.end(error)

    def pause_writing(self) -> None:
        self._is_writable = False
        for leg in self._all_legs():
            leg.pause()

    def resume_writing(self) -> None:
        self._is_writable = True
        for leg in self._all_legs():
            leg.go_on()

    def connection_lost(self, error: Exception | None) -> None:
        self.transport = None
        if not self._inbox.is_waiting:  # else what has come is done first: acks, for one
            self._lose()

    def _lose(self) -> None:
        self._is_ending = True
        self.door.connections.discard(self)
        if self._pulse is not None:
            self._pulse.cancel()
        if self.caller is not None:
            self.caller.forget(self._expel)
        for task in self._tasks:
            task.cancel()
        for leg in self._all_legs():
            leg.lose()
        self._legs.clear()
        self._nodes.clear()
        self._asking.clear()

    # -- For who lists connections ----------------------------------------------------------------

    @property
    def is_client(self) -> bool:
        """Whether it is the connection of a client to this very node, which has greeted."""
        return bool(self.number) and not self.is_passed

    def figures(self) -> ConnectionFigures:
        caller = self.caller
        return ConnectionFigures(
            number=self.number,
            door=DOOR,
            name=self._name,
            address=self.peer,
            software=self._software,
            token=caller.name if caller is not None and caller.is_bound else "",
            since_ms=self._since_ms,
            consumers=self.consumers(),
        )

    def consumers(self) -> list[ConsumerFigures]:
        """Those that it has in shards of this node."""
        here = [leg.target for leg in self._legs.values() if isinstance(leg.target, ShardLeg)]
        return [each for leg in here for each in leg.consumers()]

    def close_by_operator(self) -> None:
        self.end()

    # -- For the legs -----------------------------------------------------------------------------

    @property
    def has_subscriptions(self) -> bool:
        return bool(self._subscriptions) and not self.is_passed

    def delivered(self, node: str | None, frames: int) -> None:
        """A leg brings deliveries; without a node, from here."""
        if frames:
            self._count(node, frames)

    def forward(self, pieces: Iterable[bytes | memoryview]) -> None:
        """What a leg says: whole frames."""
        if self.transport is not None and not self._is_ending:
            self._spoke = self._loop.time()
            self.transport.writelines(pieces)

    def hold(self, count: int) -> None:
        """So many bytes more, or less, wait for a way to where they go."""
        self._held_bytes += count
        self.regulate()

    def regulate(self) -> None:
        """Read from the client only while all legs keep up, and not much waits."""
        is_behind = self._inbox.is_waiting or self._held_bytes > RPC_UNREAD_BYTES_MAX
        wanted = not is_behind and all(leg.keeps_up for leg in self._all_legs())
        if self.transport is not None and wanted != self._is_reading:
            self._is_reading = wanted
            (self.transport.resume_reading if wanted else self.transport.pause_reading)()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._worked)

    def end(self, error: NexoError | None = None) -> None:
        """Say goodbye and why, if there is a reason; the client comes back by itself."""
        transport = self.transport
        if transport is None or self._is_ending:
            return
        transport.write(
            frame(Kind.GOODBYE, 0, b"" if error is None else commands.refusal_of(error))
        )
        self._is_ending = True
        self._inbox.clear()
        for leg in self._all_legs():
            leg.lose()
        if self._pulse is not None:
            self._pulse.cancel()
        self._pulse = self._loop.call_later(RPC_CLOSING_MS / 1000, transport.abort)
        transport.close()

    def shard_closed(self, shard: int) -> None:
        self.follower.look_again()
        leg = self._legs.get(shard)
        if leg is not None and isinstance(leg.target, ShardLeg):
            self.end()

    def shard_moved(self, shard: int) -> None:
        self.follower.look_again()
        leg = self._legs.get(shard)
        if leg is not None and isinstance(leg.target, NodeLeg):
            self.end()

    def leg_to(self, found: NodeState) -> NodeLeg:
        leg = self._nodes.get(found.name)
        if leg is None:
            leg = self._nodes[found.name] = NodeLeg(self)
            leg.node = found.name
            self.spawn(leg.connect(found))
        return leg

    def asking(self, found: NodeState) -> AskingLeg:
        """The way to another node for what this one asks by itself."""
        leg = self._asking.get(found.name)
        if leg is None:
            leg = self._asking[found.name] = AskingLeg(self)
            self.spawn(leg.connect(found))
        return leg

    def other_nodes(self) -> list[NodeState]:
        """Those that have shards."""
        state = self.node.state
        owners = {owner for owner in state.owners.values() if owner not in (None, self.node.name)}
        return [state.nodes[name] for name in sorted(owners & state.nodes.keys())]

    # -- Frames -----------------------------------------------------------------------------------

    def _greet(self, received: Frame) -> None:
        if received.kind is not Kind.HELLO:
            raise ProtocolError("the first frame must be HELLO")
        hello: commands.Hello = commands.unpack(received.head, commands.Hello)
        if hello.magic != commands.MAGIC:
            raise ProtocolError("the greeting does not say NEXO")
        low, high = hello.versions
        version = commands.PROTOCOL_VERSION
        if not low <= version <= high:
            told = f"the broker speaks protocol {version}, the client {low} to {high}"
            self.end(VersionMismatch(told, "upgrade the older of the two"))
            return
        self.is_passed = hello.passed != "" and compare_digest(hello.passed, self.node.secret)
        try:
            self.is_node = self.is_passed and hello.client == NODE
            if self.is_passed and hello.address:
                self.peer = hello.address
            if self.is_node:
                self.caller = ANYONE
            else:
                self.caller = self.door.guard.admit(hello.token, self.peer, "rpc")
        except (Unauthorized, RateLimited) as error:
            self.end(error)
            return
        if self.caller.is_bound:
            self.caller.when_ended(self._expel)
        self._name, self._software = hello.client, hello.software
        self._since_ms = time.time_ns() // 1_000_000
        self.number = hello.number if self.is_passed else secrets.randbits(_NUMBER_BITS) + 1
        plain = msgspec.structs.replace(hello, passed="", number=0, address="")
        self.hello = frame(Kind.HELLO, 0, commands.pack(plain))
        if hello.follows and not self.is_passed:
            self._usage = Usage(self._heard)
        passed = msgspec.structs.replace(
            hello, passed=self.node.secret, number=self.number, address=self.peer
        )
        self.passed_hello = frame(Kind.HELLO, 0, commands.pack(passed))
        asked_ms = min(max(hello.heartbeat_ms, HEARTBEAT_MS_MIN), HEARTBEAT_MS_MAX)
        # A node that hangs has lost its shards when its lease ends, and its clients are to know
        # soon after. A client that hangs has as much time as it asked for.
        beat_ms = min(asked_ms, CLUSTER_HEARTBEAT_MS)
        self._heartbeat_s = beat_ms / 1000
        self._patience_s = asked_ms / 1000 * HEARTBEATS_MISSED_MAX
        if self._pulse is not None:
            self._pulse.cancel()
        self._beat_later()
        # Another number on each connection: clients take a receipt that is stale at a second try,
        # in the same run of a broker, for one that was accepted at the first. Between the two a
        # shard may have moved, and the first come to nothing.
        instance = secrets.randbits(63)
        welcome = commands.Welcome(
            version, self.door.server_name, beat_ms, instance, cluster=self.door.cluster
        )
        self.forward([frame(Kind.WELCOME, received.correlation, commands.pack(welcome))])

    def take_more(self) -> None:
        self._inbox.go_on(self, self._take)

    def abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()

    def caught_up(self) -> None:
        self.regulate()
        if self.transport is None:
            self._lose()

    def _take(self, received: Frame) -> None:
        kind, correlation, head, _ = received
        if kind is Kind.HEARTBEAT or self._is_ending:
            return
        if kind is Kind.GOODBYE:
            self._take_goodbye(correlation)
            return
        try:
            if kind is Kind.CALL:
                self._take_call(received)
                return
            if kind in _SUBSCRIBED:
                subscription = commands.unpack_credit(head).subscription
                shard = self._subscriptions.get(subscription)
                if kind is Kind.UNSUBSCRIBE:
                    self._subscriptions.pop(subscription, None)
                if shard is not None:
                    self.pass_on(shard, received)
                elif correlation:  # it has ended, or was never
                    self.forward([frame(Kind.OK, correlation)])
                return
            if kind is Kind.FOLLOW:
                self._take_follow(received)
                return
            row = FRAMES.get(kind)
            if row is None:
                raise ProtocolError(f"a client may not send {kind.name}")
            shard = self.node.shard_of(row[1](head))
            if kind is Kind.SUBSCRIBE:
                self._subscribed(commands.unpack(head, commands.Subscribe).subscription, shard)
            self.pass_on(shard, received)
        except ProtocolError:
            raise
        except NexoError as error:
            self.refuse(correlation, error)

    def _take_goodbye(self, correlation: int) -> None:
        """What came before it has been passed on; pops that wait there are answered now."""
        for leg in self._all_legs():
            leg.write([_GOODBYE])
        if correlation:
            self.forward([frame(Kind.OK, correlation)])

    def _take_follow(self, received: Frame) -> None:
        shard = self.follower.shard(received)
        if shard is None:
            self.spawn(self.follower.follow(received))
        else:
            self.pass_on(shard, received)

    def _take_call(self, received: Frame) -> None:
        called: commands.Called = commands.unpack(received.body, commands.Called)
        if self.is_node and called.method == METHOD:
            self.spawn(self._answer(received.correlation, called))
            return
        if self.is_node and called.method in METHODS:
            self.spawn(self._serve(received.correlation, called))
            return
        if called.method == STARTS:
            shard = self.follower.starts_shard(called.params)
            if shard is None:
                self.spawn(self.follower.starts(received, called.params))
            else:
                self.pass_on(shard, received)
            return
        gathering = Gathering(self, received, called)
        if gathering.only_looks and not (self.node.is_held or self.is_passed):
            self.spawn(gathering.look())
        elif gathering.is_for_all:
            self.spawn(gathering.work())
        else:
            self.pass_on(gathering.shard(), received)

    async def _answer(self, correlation: int, called: commands.Called) -> None:
        """Another node asks for itself."""
        try:
            answer = await self.door.answering.answer(called.params)
            self.forward(frame_parts(Kind.OK, correlation, b"", [answer]))
        except NexoError as error:
            self.refuse(correlation, error)

    async def _serve(self, correlation: int, called: commands.Called) -> None:
        """What another node asks of this one."""
        try:
            answer = await self.node.post.serve(called.method, bytes(called.params))
        except NexoError as error:
            self.refuse(correlation, error)
        else:
            self.forward(frame_parts(Kind.OK, correlation, b"", [answer]))

    def _subscribed(self, subscription: int, shard: int) -> None:
        if (
            len(self._subscriptions) >= SUBSCRIPTIONS_MAX
            and subscription not in self._subscriptions
        ):
            raise InvalidArgument(
                f"a connection has at most {SUBSCRIPTIONS_MAX:,} subscriptions", "open another"
            )
        self._subscriptions[subscription] = shard

    def pass_on(self, shard: int, received: Frame) -> None:
        leg = self._legs.get(shard)
        if leg is None:
            leg = self._legs[shard] = Leg(self, shard)
            leg.begin()
        kind, correlation, head, body = received
        leg.write(frame_parts(kind, correlation, head, [body] if body else []))
        if not self.is_passed:
            target = leg.target
            self._count(target.node if isinstance(target, NodeLeg) else None, 1)

    def _count(self, node: str | None, frames: int) -> None:
        """Frames of a client that were for this node, or passed on to or from another."""
        if node is not None:
            self.node.passed_frames += frames
        if self._usage is None:
            return
        home = self._usage.count(node, self._heard, frames)
        found = None if home is None else self.node.state.nodes.get(home)
        if found is not None and found.is_living:
            self.node.redirects += 1
            self.forward([frame(Kind.MOVED, 0, commands.pack(commands.Moved(found.rpc)))])

    def refuse(self, correlation: int, error: NexoError) -> None:
        if correlation:
            self.forward([frame(Kind.ERROR, correlation, commands.refusal_of(error))])

    # -- Inside -----------------------------------------------------------------------------------

    def _all_legs(self) -> list[ShardLeg | NodeLeg]:
        here = [leg.target for leg in self._legs.values() if isinstance(leg.target, ShardLeg)]
        return [*here, *self._nodes.values(), *self._asking.values()]

    def _expel(self, reason: Unauthorized) -> None:
        self.end(reason)

    def _worked(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        failure = None if task.cancelled() else task.exception()
        if isinstance(failure, NexoError):
            self.end(failure)
        elif failure is not None:
            context = {"message": "a call failed", "exception": failure}
            self._loop.call_exception_handler(context)
            self.end(NexoError("the broker failed at this", "see its log"))

    def _beat(self) -> None:
        """Say something when nothing was said for a while; end when nothing was heard."""
        now = self._loop.time()
        if self._first is not None:
            self.end(ProtocolError("no greeting came"))
            return
        if now - self._beat_due > self._heartbeat_s:
            self._heard = now  # it was the broker that slept: what came meanwhile is not read yet
        if self._is_reading and now - self._heard > self._patience_s:
            self.end(ProtocolError(f"nothing was heard for {self._patience_s:.0f} s"))
            return
        for leg in self._all_legs():
            leg.write([_HEARTBEAT])  # for each of them the client may have been silent
        if now - self._spoke >= self._heartbeat_s:
            self.forward([_HEARTBEAT])
        self._beat_later()

    def _beat_later(self) -> None:
        self._beat_due = self._loop.time() + self._heartbeat_s
        self._pulse = self._loop.call_at(self._beat_due, self._beat)
