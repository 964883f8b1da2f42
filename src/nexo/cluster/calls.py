"""Named calls in a cluster: to one shard, by the name in them; or to all, and one answer is made of
many."""

from __future__ import annotations

import asyncio
import contextlib
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import msgspec

from nexo.access.operations import Named, check, operation_of
from nexo.cluster.legs import unreachable
from nexo.cluster.node import describe
from nexo.cluster.others import gathered, moving, telling
from nexo.cluster.tokens import TOKENS_SHARD
from nexo.cluster.whole import Whole
from nexo.doors.rpc_tcp.access import operation_of_call, resource_of
from nexo.doors.rpc_tcp.calls import CALLS, LISTING_CALLS
from nexo.engine.definitions import Packed
from nexo.vocabulary.errors import InvalidArgument, NexoError, NotReady, Unreachable
from nexo.vocabulary.limits import CLUSTER_CONNECT_S, CLUSTER_PATIENCE_S, CLUSTER_ROUTE_S
from nexo.wire import calls, commands
from nexo.wire.frame import Frame, FrameReader, Kind, ProtocolError, frame_parts

if TYPE_CHECKING:
    from collections.abc import Callable

    from nexo.cluster.node import Node
    from nexo.cluster.others import Shards
    from nexo.cluster.placement import NodeState
    from nexo.cluster.rpc import Switch

NODE = "nexo node"  # the name of a client that is a node and asks for itself
HOME = TOKENS_SHARD  # the shard of what has no name
_OF_CLUSTER = frozenset({"cluster_info", "drain_node", "rebalance_cluster"})
_OF_TASKS = frozenset({"redrive_progress", "redrive_cancel"})
_OF_WHOLE = frozenset(
    {"export_definitions", "import_definitions", "list_connections", "close_connection"}
)
# Who only looks, and needs other nodes for it, is not to wait as long as who changes something.
_LOOKS = frozenset({"list_connections", "list_tokens", "audit", "export_definitions"})
_ASKED = 1  # the correlation of what is asked of another node


class _Names(msgspec.Struct, frozen=True):
    """What of the parameters of a call may say where it belongs."""

    name: str | None = None
    topic: str | None = None
    task: int | None = None


class _Listed(msgspec.Struct, frozen=True):
    name: str


class Gathering:
    """One call."""

    def __init__(self, switch: Switch, received: Frame, called: commands.Called) -> None:
        self._switch, self._received = switch, received
        self._node: Node = switch.node
        self._method = called.method
        self._params = called.params
        try:
            self._names = msgspec.msgpack.decode(called.params, type=_Names)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidArgument(
                f"{called.method}: the parameters cannot be read: {error}"
            ) from None

    @property
    def is_for_all(self) -> bool:
        return self._method in LISTING_CALLS or self._method in _OF_CLUSTER | _OF_WHOLE

    def shard(self) -> int:
        names = self._names
        if self._method in _OF_TASKS:
            return self._node.shard_of_task(names.task or 0)
        name = names.name or names.topic
        if name is None or self._method.endswith("_token"):
            return HOME
        return self._node.shard_of(name)

    @property
    def only_looks(self) -> bool:
        return self._method in _LOOKS

    async def look(self) -> None:
        """Of what only looks, while this node has no lease: once it has one. That may take long,
        and the client would ask again and again until its own time is over; `Unreachable` it takes
        for an answer."""
        try:
            await self._node.held(CLUSTER_PATIENCE_S)
        except NotReady as error:
            self._switch.refuse(self._received.correlation, Unreachable(error.message, error.hint))
            return
        if self.is_for_all:
            await self.work()
        else:
            self._switch.pass_on(self.shard(), self._received)

    async def work(self) -> None:
        switch, correlation = self._switch, self._received.correlation
        try:
            if self._method in _OF_CLUSTER:
                switch.forward(frame_parts(Kind.OK, correlation, b"", [await self._of_cluster()]))
            elif self._method in _OF_WHOLE:
                switch.forward(frame_parts(Kind.OK, correlation, b"", await self._of_whole()))
            else:
                switch.forward(frame_parts(Kind.OK, correlation, b"", await self._listed()))
        except ProtocolError as error:
            switch.end(error)
        except NexoError as error:
            switch.refuse(correlation, error)

    # -- The cluster --------------------------------------------------------------------------

    async def _of_cluster(self) -> bytes:
        caller, node = self._switch.caller, self._node
        assert caller is not None
        wanted = self._decoded()
        operation = operation_of(self._method)
        guard, peer = self._switch.door.guard, self._switch.peer
        check(caller, operation, Named())
        if isinstance(wanted, calls.DescribeCluster):
            return commands.pack(describe(node, await node.epochs(), await node.post.backlogs()))
        with guard.tell(caller, peer, "rpc", operation.name, resource_of(wanted)):
            if isinstance(wanted, calls.DrainNode):
                await node.drain(wanted.node)
            else:
                await node.rebalance()
        return commands.pack(None)

    def _decoded(self) -> Any:
        try:
            return msgspec.msgpack.decode(self._params, type=calls.CALLS[self._method].request)
        except msgspec.DecodeError as error:
            raise InvalidArgument(f"{self._method}: {error}") from None

    # -- Lists --------------------------------------------------------------------------------

    async def _listed(self) -> list[bytes | memoryview]:
        """Of all nodes, in the order of names."""
        wanted, node = self._decoded(), self._node
        await node.settled()
        if self._switch.is_passed:
            with telling(node, _shards_asked(self._received.head)):
                return await self._listed_of(Whole(node), wanted)
        entries = await gathered(node, lambda shards: self._entries_of(shards, wanted))
        return [commands.pack([raw for _, raw in entries[: wanted.limit]])]

    async def _entries_of(self, shards: Shards, wanted: Any) -> list[tuple[str, msgspec.Raw]]:
        here = await self._listed_of(Whole(self._node, engines=shards.here), wanted)
        answers = await asyncio.gather(*[self._ask(*each) for each in shards.there])
        bodies = [b"".join(here), *[bytes(answer.body) for answer in answers]]
        entries = sorted((each for body in bodies for each in _entries(body)), key=itemgetter(0))
        if len({name for name, _ in entries}) < len(entries):
            raise moving()
        return entries

    async def _listed_of(self, whole: Any, wanted: Any) -> list[bytes | memoryview]:
        caller = self._switch.caller
        assert caller is not None
        knows: Callable[[str], bool] = caller.knows if caller.is_bound else lambda name: True
        return await LISTING_CALLS[self._method](whole, wanted, knows)

    async def _ask(self, node: NodeState, shards: list[int]) -> Frame:
        """The same call, of another node, for the shards that it has."""
        switch, tls = self._switch, self._switch.door.peer_tls
        head = commands.pack(shards)
        asked = frame_parts(Kind.CALL, _ASKED, head, [self._received.body])
        try:
            answer = await ask(self._node, node, [switch.passed_hello, *asked], tls)
        except NotReady as error:
            if self._node.is_cut_off(node):  # clients would ask again until their time is over
                raise Unreachable(error.message, error.hint) from None
            raise
        if answer.kind is Kind.GOODBYE and not answer.head:
            raise NotReady(f"node {node.name!r} stops", "try again")
        if answer.kind is Kind.ERROR or answer.kind is Kind.GOODBYE:
            refusal: commands.Refusal = commands.unpack(answer.head, commands.Refusal)
            raise NotReady(f"node {node.name!r}: {refusal.message}", refusal.hint)
        return answer

    # -- All of them ----------------------------------------------------------------------------

    async def _of_whole(self) -> list[bytes | memoryview]:
        """Definitions and connections: a broker alone does the same with its one engine."""
        switch, wanted = self._switch, self._decoded()
        caller, here = switch.caller, switch.door.whole
        assert caller is not None
        assert here.far is not None
        any_engine: Any = here
        operation = operation_of_call(any_engine, self._method, wanted)
        told: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
        if operation.is_audited:
            guard = switch.door.guard
            told = guard.tell(caller, switch.peer, "rpc", operation.name, resource_of(wanted))
        with told:
            check(caller, operation, Named())
            if isinstance(wanted, calls.CloseConnection):
                await here.connections.close_anywhere(wanted.number)
                return [commands.pack(None)]
            if isinstance(wanted, calls.ListConnections):
                await here.far.all_connections()
            else:
                await self._node.settled()
                any_engine = await everything(self._node, here)
            result = await CALLS[self._method](any_engine, wanted)
        return result.pieces if isinstance(result, Packed) else [commands.pack(result)]


async def everything(node: Node, here: Whole) -> Whole:
    """All queues and topics as they are now."""
    far = here.far
    assert far is not None

    async def gather(shards: Shards) -> Whole:
        queues, topics = await asyncio.gather(far.all_queues(shards), far.all_topics(shards))
        told: dict[str, Any] = {"queues": queues, "topics": topics, "engines": shards.here}
        return Whole(node, far, **told, clients=here.connections)

    return await gathered(node, gather)


def _shards_asked(head: bytes) -> list[int]:
    """By another node; one of an older version asks for none in particular."""
    try:
        return msgspec.msgpack.decode(head, type=list[int]) if head else []
    except msgspec.DecodeError:  # what a client of such a node has said
        return []


def _entries(body: bytes) -> list[tuple[str, msgspec.Raw]]:
    raws = msgspec.msgpack.decode(body, type=list[msgspec.Raw])
    return [(msgspec.msgpack.decode(raw, type=_Listed).name, raw) for raw in raws]


async def ask(own: Node, node: NodeState, pieces: list[bytes | memoryview], tls: Any) -> Frame:
    """Send a greeting and one request to another node, and return its answer."""
    host, _, port = node.rpc.rpartition(":")
    try:
        async with asyncio.timeout(CLUSTER_CONNECT_S):
            reader, writer = await asyncio.open_connection(host.strip("[]"), int(port), ssl=tls)
    except (OSError, TimeoutError) as error:
        away = unreachable(node, error, CLUSTER_CONNECT_S)
        own.note_reached(node, away)
        raise away from None
    own.note_reached(node)
    try:
        async with asyncio.timeout(CLUSTER_ROUTE_S):
            try:
                writer.writelines(pieces)
                frames = FrameReader()
                while data := await reader.read(1 << 16):
                    for received in frames.feed(data):
                        if received.correlation == _ASKED or received.kind is Kind.GOODBYE:
                            return received
            finally:
                writer.close()
    except (OSError, TimeoutError) as error:
        raise NotReady(f"node {node.name!r} at {node.rpc} does not answer: {error}") from None
    raise NotReady(f"node {node.name!r} at {node.rpc} hung up", "try again")
