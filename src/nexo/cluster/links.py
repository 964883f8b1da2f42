"""Connections between nodes over which one asks another for itself, not for a client: what it has,
or to do something with what it has. Many questions share a connection, which is made when it is
first needed. Only who knows the cluster's secret is answered."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import msgspec

from nexo.cluster.legs import connect_to
from nexo.vocabulary import errors
from nexo.vocabulary.errors import NexoError, NotReady
from nexo.vocabulary.limits import CLUSTER_ROUTE_S
from nexo.wire import commands
from nexo.wire.frame import FrameReader, Kind, ProtocolError, frame, frame_parts

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterable

    from nexo.cluster.node import Node
    from nexo.cluster.placement import NodeState

NODE = "nexo node"  # the name of a client that is a node and asks for itself
METHOD = "nexo_node"  # of the call that carries a question
_VERSIONS = (commands.PROTOCOL_VERSION, commands.PROTOCOL_VERSION)
_BEAT_S = 5.0  # half of what the other side expects at least
_ERRORS = {  # a subclass that shares its parent's code stands behind it
    each.code: each
    for each in reversed(vars(errors).values())
    if isinstance(each, type) and issubclass(each, NexoError)
}


class Links:
    """Those of one node to all others."""

    def __init__(self, node: Node, tls: ssl.SSLContext | None) -> None:
        self._node, self._tls = node, tls
        self._links: dict[tuple[str, str], _Link] = {}

    def others(self) -> list[NodeState]:
        """The nodes that have shards, besides this one."""
        state = self._node.state
        owners = {owner for owner in state.owners.values() if owner} - {self._node.name}
        return [state.nodes[owner] for owner in sorted(owners) if owner in state.nodes]

    async def ask(self, node: NodeState, question: msgspec.Struct) -> bytes:
        """The answer of another node, as it was packed there."""
        body = commands.pack((METHOD, question))
        try:
            async with asyncio.timeout(CLUSTER_ROUTE_S):
                return await (await self._link(node)).ask(body)
        except TimeoutError:
            raise NotReady(f"node {node.name!r} at {node.rpc} does not answer") from None

    async def ask_all(self, question: msgspec.Struct) -> dict[str, bytes]:
        """The answers of all other nodes that have shards, by name."""
        others = self.others()
        found = await asyncio.gather(*[self.ask(each, question) for each in others])
        return {each.name: answer for each, answer in zip(others, found, strict=True)}

    def close(self) -> None:
        for link in self._links.values():
            link.close()
        self._links.clear()

    async def _link(self, node: NodeState) -> _Link:
        key = (node.name, node.rpc)
        link = self._links.get(key)
        if link is None or link.is_lost:
            link = self._links[key] = _Link(node, self._node.secret)
            link.connecting = asyncio.ensure_future(connect_to(node, lambda: link, self._tls))
        await asyncio.shield(link.connecting)
        return link


class _Link(asyncio.Protocol):
    connecting: asyncio.Future[Any]

    def __init__(self, node: NodeState, secret: str) -> None:
        self._node = node
        hello = commands.PassedHello(commands.MAGIC, _VERSIONS, NODE, passed=secret)
        self._hello = frame(Kind.HELLO, 0, commands.pack(hello))
        self._transport: asyncio.Transport | None = None
        self._frames = FrameReader()
        self._asked: dict[int, asyncio.Future[bytes]] = {}
        self._number = 0
        self._beat: asyncio.TimerHandle | None = None
        self._is_closed = False

    @property
    def is_lost(self) -> bool:
        if self._is_closed:
            return True
        done = self.connecting.done()
        return done and (self.connecting.cancelled() or self.connecting.exception() is not None)

    async def ask(self, body: bytes) -> bytes:
        if self._transport is None:
            raise self._hung_up()
        self._number += 1
        number = self._number
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._asked[number] = answer
        self._transport.writelines(frame_parts(Kind.CALL, number, b"", [body]))
        try:
            return await answer
        finally:
            self._asked.pop(number, None)

    def close(self) -> None:
        self._is_closed = True
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = made = cast("asyncio.Transport", transport)
        made.write(self._hello)
        self._say_something()

    def data_received(self, data: bytes) -> None:
        try:
            for kind, number, head, body in self._frames.feed(data):
                waiting = self._asked.get(number)
                if kind is Kind.GOODBYE:
                    self._fail(_error_of(head) if head else self._hung_up())
                elif waiting is None or waiting.done():
                    continue
                elif kind is Kind.ERROR:
                    waiting.set_exception(_error_of(head))
                else:
                    waiting.set_result(bytes(body))
        except ProtocolError as error:
            self._fail(error)
            self.close()

    def connection_lost(self, error: Exception | None) -> None:
        self._is_closed = True
        self._transport = None
        if self._beat is not None:
            self._beat.cancel()
        self._fail(self._hung_up())

    def _say_something(self) -> None:
        """The other side takes who says nothing for long for dead."""
        if self._transport is not None:
            self._transport.write(frame(Kind.HEARTBEAT, 0))
            self._beat = asyncio.get_running_loop().call_later(_BEAT_S, self._say_something)

    def _fail(self, error: NexoError) -> None:
        for waiting in self._asked.values():
            if not waiting.done():
                waiting.set_exception(error)

    def _hung_up(self) -> NotReady:
        return NotReady(f"node {self._node.name!r} at {self._node.rpc} hung up", "try again")


def _error_of(head: bytes) -> NexoError:
    refusal: commands.Refusal = commands.unpack(head, commands.Refusal)
    return _ERRORS.get(refusal.code, NexoError)(refusal.message, refusal.hint)


def joined(packed: Iterable[bytes], kind: Any) -> list[Any]:
    """Lists of several nodes as one."""
    return [each for answer in packed for each in msgspec.msgpack.decode(answer, type=kind)]
