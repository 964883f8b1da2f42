"""Links: connections from this node to the RPC ports of the others, one for each, for what nodes
ask each other. They greet with the secret of the cluster, so no token is needed."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import TYPE_CHECKING, Any

import msgspec

from nexo.cluster.calls import NODE
from nexo.cluster.legs import unreachable
from nexo.vocabulary import errors
from nexo.vocabulary.errors import NexoError, NotReady
from nexo.vocabulary.limits import CLUSTER_CONNECT_S, CLUSTER_ROUTE_S
from nexo.wire import commands
from nexo.wire.frame import FrameReader, Kind, ProtocolError, frame, frame_parts

if TYPE_CHECKING:
    import ssl

    from nexo.cluster.node import Node
    from nexo.cluster.placement import NodeState
    from nexo.wire.frame import Frame

_VERSIONS = (commands.PROTOCOL_VERSION, commands.PROTOCOL_VERSION)
_KINDS = {
    each.code: each
    for each in vars(errors).values()
    if isinstance(each, type) and issubclass(each, NexoError)
}


class Links:
    """Of one node, to all others: see `post.Peers`."""

    def __init__(self, node: Node, tls: ssl.SSLContext | None) -> None:
        self._node, self._tls = node, tls
        self._links: dict[str, _Link] = {}  # by address: a node may come back at another one

    async def call(self, node: NodeState, method: str, params: bytes) -> bytes:
        link = self._links.get(node.rpc)
        if link is None or link.is_lost:
            hello = commands.Hello(commands.MAGIC, _VERSIONS, NODE, passed=self._node.secret)
            link = self._links[node.rpc] = _Link(self._node, node, commands.pack(hello), self._tls)
        # The shard may be on its way to that node.
        try:
            async with asyncio.timeout(2 * CLUSTER_ROUTE_S):
                answer = await link.ask(commands.pack((method, msgspec.Raw(params or b"\x80"))))
        except TimeoutError:
            silent = NotReady(f"node {node.name!r} at {node.rpc} does not answer", "try again")
            link.lose(silent)
            self._node.note_reached(node, silent)
            raise silent.anew() from None
        self._node.note_reached(node)
        if answer.kind is not Kind.OK:
            told: commands.Refusal = commands.unpack(answer.head, commands.Refusal)
            raise _KINDS.get(told.code, NotReady)(told.message, told.hint)
        return bytes(answer.body)

    def close(self) -> None:
        for link in self._links.values():
            link.lose(NotReady("the node stops", "try again"))
        self._links.clear()


class _Link:
    """One connection, made when something is asked first. One that is idle for long ends, and the
    next who asks makes another."""

    def __init__(
        self, own: Node, node: NodeState, hello: bytes, tls: ssl.SSLContext | None
    ) -> None:
        self._own, self._node, self._hello, self._tls = own, node, hello, tls
        self._numbers = count(1)
        self._asked: dict[int, asyncio.Future[Frame]] = {}
        self._writer: asyncio.StreamWriter | None = None
        self._task = asyncio.get_running_loop().create_task(self._live())
        self._connected: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._connected.add_done_callback(lambda done: done.cancelled() or done.exception())
        self.is_lost = False

    async def ask(self, body: bytes) -> Frame:
        await asyncio.shield(self._connected)
        if self._writer is None or self.is_lost:
            raise NotReady(f"node {self._node.name!r} hung up", "try again")
        number = next(self._numbers)
        answer: asyncio.Future[Frame] = asyncio.get_running_loop().create_future()
        self._asked[number] = answer
        try:
            self._writer.writelines(frame_parts(Kind.CALL, number, b"", [body]))
            await self._writer.drain()
            return await answer
        except OSError as error:
            raise self._hung_up(error) from None
        finally:
            self._asked.pop(number, None)

    def lose(self, error: NexoError) -> None:
        """Who waits is told; nobody uses it any more."""
        if self.is_lost:
            return
        self.is_lost = True
        self._task.cancel()
        if self._writer is not None:
            self._writer.close()
        waiting: list[asyncio.Future[Any]] = [self._connected, *self._asked.values()]
        for future in waiting:
            if not future.done():
                future.set_exception(error.anew())

    async def _live(self) -> None:
        host, _, port = self._node.rpc.rpartition(":")
        try:
            try:
                async with asyncio.timeout(CLUSTER_CONNECT_S):
                    reader, writer = await asyncio.open_connection(
                        host.strip("[]"), int(port), ssl=self._tls
                    )
            except (OSError, TimeoutError) as error:
                # Who asked may not have waited so long: it is noted here.
                away = unreachable(self._node, error, CLUSTER_CONNECT_S)
                self._own.note_reached(self._node, away)
                self.lose(away)
                return
            self._own.note_reached(self._node)
            self._writer = writer
            writer.write(frame(Kind.HELLO, 0, self._hello))
            self._connected.set_result(None)
            frames = FrameReader()
            while data := await reader.read(1 << 16):
                for received in frames.feed(data):
                    self._take(received)
        except (OSError, TimeoutError, ProtocolError) as error:
            self.lose(self._hung_up(error))
        else:
            self.lose(self._hung_up("it hung up"))

    def _take(self, received: Frame) -> None:
        if received.kind is Kind.HEARTBEAT and self._writer is not None:
            self._writer.write(frame(Kind.HEARTBEAT, 0))
        elif received.kind is Kind.GOODBYE:
            self.lose(self._hung_up("it said goodbye"))
        else:
            answer = self._asked.get(received.correlation)
            if answer is not None and not answer.done():
                answer.set_result(received)

    def _hung_up(self, why: object) -> NotReady:
        return NotReady(f"node {self._node.name!r} at {self._node.rpc} does not answer: {why}")
