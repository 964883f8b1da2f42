"""Between the shards of a cluster: transfers go to the node that has the target, questions about
queues of other shards to the node that has those.

A shard of this node is asked directly. Another node is asked through `Peers`, and what it asks of
this one is answered by `serve`: nothing here knows a socket.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec

from nexo.cluster.legs import REACH_HINT
from nexo.cluster.placement import NodeState
from nexo.cluster.tokens import KNOWN
from nexo.engine.transfers import Backlog, Found, Transfer
from nexo.vocabulary.errors import InvalidArgument, NexoError, NotReady
from nexo.vocabulary.limits import CLUSTER_ASKED_S, TRANSFERS_AT_ONCE
from nexo.wire.columns import decode_batch, encode_batch

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from nexo.cluster.node import Node
    from nexo.engine.engine import Engine

Result = TypeVar("Result")

_TRANSFER, _TARGET, _BACKLOGS = "transfer", "transfer_target", "transfer_backlogs"
METHODS = frozenset({_TRANSFER, _TARGET, _BACKLOGS, KNOWN})


class Peers(Protocol):
    """The other nodes."""

    async def call(self, node: NodeState, method: str, params: bytes) -> bytes:
        """What `serve` of that node returns; raises what it raised, and `NotReady` if there is no
        answer: then nobody knows whether it was done."""


class _Transfer(msgspec.Struct, frozen=True, array_like=True):
    queue: str
    producer: str
    ranges: list[int]
    incarnation: int
    fifo: bool
    batch: bytes


class _Target(msgspec.Struct, frozen=True, array_like=True):
    name: str
    create: bool = False


class Post:
    """Of one node. Without `peers` it knows its own shards alone."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.peers: Peers | None = None
        self._rooms: dict[str, asyncio.Semaphore] = {}  # by node: one that sleeps is alone with it
        self._asked: dict[int, set[asyncio.Task[Any]]] = {}  # of other nodes, by shard
        node.when_moved.append(self._moved)

    # -- For the shards of this node ----------------------------------------------------------

    async def push(self, transfer: Transfer) -> None:
        """To the shard of its queue; returns once it is on disk there."""
        shard = self._node.shard_of(transfer.queue)
        found = await self._node.route(shard)
        async with self._room(found.name if isinstance(found, NodeState) else self._node.name):
            if isinstance(found, NodeState):
                await self._ask(shard, found, _TRANSFER, _packed(transfer))
            else:
                await found.transfers.accept(transfer)

    def _room(self, name: str) -> asyncio.Semaphore:
        return self._rooms.setdefault(name, asyncio.Semaphore(TRANSFERS_AT_ONCE))

    async def find(self, name: str, create: bool = False) -> Found:
        """A queue, wherever it is."""
        shard = self._node.shard_of(name)
        found = await self._node.route(shard)
        if not isinstance(found, NodeState):
            return await found.transfers.describe(name, create)
        asked = msgspec.msgpack.encode(_Target(name, create))
        return _unpacked(await self._ask(shard, found, _TARGET, asked), Found)

    async def backlogs(self) -> dict[int, Backlog]:
        """What waits in each shard, of all nodes that answer soon."""
        known = self._own_backlogs()
        state = self._node.state
        # Those without shards too: who looks wants to know whether they can be reached. A command
        # that works on the tables has no address.
        others = [each for each in state.nodes.values() if each.name != self._node.name]
        asked = [self._backlogs_of(each) for each in others if each.is_living and each.rpc]
        for told in await asyncio.gather(*asked):
            known |= told
        return known

    async def _backlogs_of(self, node: NodeState) -> dict[int, Backlog]:
        try:
            async with asyncio.timeout(CLUSTER_ASKED_S):
                return _unpacked(await self.call(node, _BACKLOGS, b""), dict[int, Backlog])
        except TimeoutError:
            told = f"node {node.name!r} at {node.rpc} has not answered within {CLUSTER_ASKED_S:g} s"
            self._node.note_reached(node, NotReady(told, REACH_HINT))
            return {}
        except NexoError:
            return {}

    async def _ask(self, shard: int, node: NodeState, method: str, params: bytes) -> bytes:
        """If the shard gets another owner meanwhile, the one before may sleep for long."""
        return await self._unless_moved(shard, self.call(node, method, params))

    async def call(self, node: NodeState, method: str, params: bytes) -> bytes:
        """What another node answers to one of `METHODS`."""
        if self.peers is None:
            raise NotReady(f"node {node.name!r} cannot be reached")
        return await self.peers.call(node, method, params)

    async def _unless_moved(self, shard: int, asking: Coroutine[Any, Any, Result]) -> Result:
        task = asyncio.get_running_loop().create_task(asking)
        asked = self._asked.setdefault(shard, set())
        asked.add(task)
        try:
            await asyncio.wait((task,))
        finally:
            asked.discard(task)
            task.cancel()
        if task.cancelled():
            raise NotReady(f"shard {shard} has moved to another node meanwhile", "try again")
        return task.result()

    def _moved(self, shard: int) -> None:
        for task in self._asked.get(shard, ()):
            task.cancel()

    # -- For other nodes ----------------------------------------------------------------------

    async def serve(self, method: str, params: bytes) -> bytes:
        """What another node asks of this one."""
        if method == _TRANSFER:
            transfer = _transfer(params)
            await (await self._local(transfer.queue)).transfers.accept(transfer)
            return b""
        if method == KNOWN:
            return await self._node.tokens.serve(params)
        if method == _TARGET:
            wanted = _unpacked(params, _Target)
            engine = await self._local(wanted.name)
            return msgspec.msgpack.encode(await engine.transfers.describe(*_fields(wanted)))
        return msgspec.msgpack.encode(self._own_backlogs())

    async def _local(self, name: str) -> Engine:
        return await self._node.local(self._node.shard_of(name))

    def _own_backlogs(self) -> dict[int, Backlog]:
        engines = self._node.engines.items()
        return {shard: engine.transfers.backlog() for shard, engine in engines}


class Elsewhere:
    """The other shards, as the engine of one of them sees them."""

    def __init__(self, node: Node, shard: int) -> None:
        self._node, self._shard = node, shard

    def is_here(self, name: str) -> bool:
        return self._node.shard_of(name) == self._shard

    async def find(self, name: str, create: bool = False) -> Found:
        return await self._node.post.find(name, create)


def _packed(transfer: Transfer) -> bytes:
    batch = b"".join(encode_batch(transfer.batch))
    queue, producer, ranges, _, incarnation, fifo = _fields(transfer)
    return msgspec.msgpack.encode(_Transfer(queue, producer, ranges, incarnation, fifo, batch))


def _transfer(params: bytes) -> Transfer:
    told = _unpacked(params, _Transfer)
    batch, _ = decode_batch(memoryview(told.batch))
    return Transfer(told.queue, told.producer, told.ranges, batch, told.incarnation, told.fifo)


def _fields(struct: msgspec.Struct) -> tuple[Any, ...]:
    return msgspec.structs.astuple(struct)


def _unpacked(data: bytes, kind: type[Result]) -> Result:
    try:
        return msgspec.msgpack.decode(data, type=kind)
    except msgspec.DecodeError as error:
        raise InvalidArgument(f"a node of another version asked: {error}") from None
