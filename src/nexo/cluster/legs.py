"""The legs of a client's connection to a node: the ways to the shards that it uses."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, cast

from nexo.cluster.redirects import deliveries_in
from nexo.doors.rpc_tcp.connection import Connection
from nexo.engine.engine import Engine
from nexo.vocabulary.errors import NotReady
from nexo.vocabulary.limits import (
    CLUSTER_ROUTE_S,
    RPC_CONNECTIONS_MAX,
    RPC_GREETING_MS,
    RPC_UNREAD_BYTES_MAX,
)
from nexo.wire.frame import PREFIX, Kind

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterable

    from nexo.cluster.placement import NodeState
    from nexo.cluster.rpc import Switch
    from nexo.engine.connections import ConsumerFigures

logger = logging.getLogger("nexo.cluster")

_AGAIN_S = 0.1  # before a node that cannot be reached is tried again


class Leg:
    """The way to one shard: what is sent before it is known where it leads waits here."""

    def __init__(self, switch: Switch, shard: int) -> None:
        self._switch, self._shard = switch, shard
        self._waiting: list[bytes | memoryview] = []
        self.target: ShardLeg | NodeLeg | None = None

    def begin(self) -> None:
        found = self._switch.node.route_now(self._shard)
        if isinstance(found, Engine) or (found is not None and not self._switch.is_passed):
            self._attach(found)
        else:
            self._switch.spawn(self._find())

    def write(self, pieces: list[bytes | memoryview]) -> None:
        if self.target is None:
            self._waiting += pieces
            self._switch.hold(sum(map(len, pieces)))
        else:
            self.target.write(pieces)

    async def _find(self) -> None:
        node = self._switch.node
        find = node.local if self._switch.is_passed else node.route
        self._attach(await find(self._shard))

    def _attach(self, found: Engine | NodeState) -> None:
        switch = self._switch
        target = ShardLeg(switch, found) if isinstance(found, Engine) else switch.leg_to(found)
        waiting, self._waiting = self._waiting, []
        self.target = target
        if waiting:
            switch.hold(-sum(map(len, waiting)))
            target.write(waiting)


class ShardLeg(asyncio.Transport):
    """A connection of the RPC door to a shard of this node, as its transport."""

    def __init__(self, switch: Switch, engine: Engine) -> None:
        super().__init__({"peername": (switch.peer, 0)})
        door = switch.door
        self._switch = switch
        self._is_greeted = self._is_closed = False
        self.keeps_up = True
        self._connection = Connection(
            engine, door.guard, door.server_name, door.instance, set(), RPC_CONNECTIONS_MAX
        )
        self._connection.connection_made(self)
        self._connection.data_received(switch.hello)

    # -- The switch's side ------------------------------------------------------------------------

    def pause(self) -> None:
        self._connection.pause_writing()

    def go_on(self) -> None:
        self._connection.resume_writing()

    def consumers(self) -> list[ConsumerFigures]:
        return self._connection.figures(0).consumers

    def lose(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._connection.connection_lost(None)

    # -- Both sides' ------------------------------------------------------------------------------

    def write(self, data: Any) -> None:
        """Of the connection, one piece of whole frames; of the switch, a list of them."""
        if isinstance(data, list):
            if not self._is_closed:
                self._connection.data_received(b"".join(data))
        else:
            self.writelines([data])

    # -- The connection's side --------------------------------------------------------------------

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        if not self._is_greeted:  # the welcome is the switch's to say
            self._is_greeted = True
            pieces = list(list_of_data)
            if pieces[0][4] != Kind.WELCOME:
                self._switch.forward(pieces)
            return
        switch = self._switch
        if switch.has_subscriptions:
            list_of_data = list(list_of_data)
            switch.delivered(None, deliveries_in(list_of_data))
        switch.forward(list_of_data)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def pause_reading(self) -> None:
        self.keeps_up = False
        self._switch.regulate()

    def resume_reading(self) -> None:
        self.keeps_up = True
        self._switch.regulate()

    def close(self) -> None:
        self._switch.end()

    def abort(self) -> None:
        self._switch.end()


class NodeLeg(asyncio.Protocol):
    """A connection to another node."""

    def __init__(self, switch: Switch) -> None:
        self._switch = switch
        self.node = ""  # its name, if a client's frames go there
        self._transport: asyncio.Transport | None = None
        self._waiting: list[bytes | memoryview] = []
        self._is_greeted = self._is_lost = False
        self._cutter = FrameCutter()
        self.keeps_up = True

    async def connect(self, node: NodeState) -> None:
        """One that was killed cannot be reached and has its shards until its lease ends. What is
        meant for it waits so long here, and only then the client's connection ends. To end it at
        once would let the client come back in vain, each time after a longer pause."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + CLUSTER_ROUTE_S
        while not self._is_lost:
            try:
                await connect_to(node, lambda: self, self._switch.door.peer_tls)
                self._switch.node.note_reached(node)
                return
            except NotReady as error:
                self._switch.node.note_reached(node, error)
                known = self._switch.node.state.nodes.get(node.name)
                if known is None or not known.is_living or loop.time() > until_s:
                    raise
            await asyncio.sleep(_AGAIN_S)

    def write(self, pieces: list[bytes | memoryview]) -> None:
        if self._transport is None:
            self._waiting += pieces
            self._switch.hold(sum(map(len, pieces)))
        else:
            self._transport.writelines(pieces)

    def pause(self) -> None:
        if self._transport is not None:
            self._transport.pause_reading()

    def go_on(self) -> None:
        if self._transport is not None:
            self._transport.resume_reading()

    def lose(self) -> None:
        self._is_lost = True
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = made = cast("asyncio.Transport", transport)
        if self._is_lost:
            made.close()
            return
        made.set_write_buffer_limits(high=RPC_UNREAD_BYTES_MAX)
        waiting, self._waiting = self._waiting, []
        self._switch.hold(-sum(map(len, waiting)))
        made.writelines([self._switch.passed_hello, *waiting])

    def data_received(self, data: bytes) -> None:
        if not self._is_lost:
            whole = self._cutter.feed(data)
            if whole and not self._is_greeted:
                self._is_greeted = True
                if whole[4] == Kind.WELCOME:
                    whole = whole[4 + int.from_bytes(whole[:4], "little") :]
            if whole:
                if self._switch.has_subscriptions:
                    self._switch.delivered(self.node, deliveries_in([whole]))
                self._switch.forward([whole])

    def pause_writing(self) -> None:
        self.keeps_up = False
        self._switch.regulate()

    def resume_writing(self) -> None:
        self.keeps_up = True
        self._switch.regulate()

    def connection_lost(self, error: Exception | None) -> None:
        if not self._is_lost:
            self._is_lost = True
            self._switch.end()


class FrameCutter:
    """Cuts what arrives where a frame ends: frames of several legs go to one client."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> bytes:
        """The whole frames that are there now."""
        buffer = self._buffer
        if buffer:
            buffer += data
            if len(buffer) < 4 or len(buffer) < 4 + int.from_bytes(buffer[:4], "little"):
                return b""
            data = bytes(buffer)
            buffer.clear()
        at, length = 0, len(data)
        while length - at >= PREFIX.size:
            end = at + 4 + int.from_bytes(data[at : at + 4], "little")
            if end > length:
                break
            at = end
        if at == length:
            return data
        buffer += data[at:]
        return data[:at]


REACH_HINT = "nodes must reach each other at what they --advertise"


async def connect_to(
    node: NodeState,
    protocol: Any,
    tls: ssl.SSLContext | None,
    within_s: float = RPC_GREETING_MS / 1000,
) -> tuple[asyncio.Transport, Any]:
    """A connection to the RPC port of another node."""
    host, _, port = node.rpc.rpartition(":")
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(within_s):
            return await loop.create_connection(protocol, host.strip("[]"), int(port), ssl=tls)
    except (OSError, TimeoutError) as error:
        raise unreachable(node, error, within_s) from None


def unreachable(node: NodeState, error: OSError | TimeoutError, within_s: float) -> NotReady:
    why = str(error) or f"no connection within {within_s:g} s"  # a timeout says nothing
    return NotReady(
        f"node {node.name!r} at {node.rpc} cannot be reached: {why}",
        REACH_HINT,
    )
