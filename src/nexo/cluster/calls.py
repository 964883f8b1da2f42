"""Named calls in a cluster: to one shard, by the name in them; or to all, and one answer is made of
many."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from nexo.access.operations import Named, check, operation_of
from nexo.cluster.node import TOKENS_SHARD, describe
from nexo.cluster.whole import Whole
from nexo.doors.rpc_tcp.access import resource_of
from nexo.doors.rpc_tcp.calls import LISTING_CALLS
from nexo.vocabulary.errors import InvalidArgument, NexoError, NotReady, RedriveNotFound
from nexo.vocabulary.limits import CLUSTER_ROUTE_S
from nexo.wire import calls, commands
from nexo.wire.frame import Frame, FrameReader, Kind, ProtocolError, frame_parts

if TYPE_CHECKING:
    from collections.abc import Callable

    from nexo.cluster.node import Node
    from nexo.cluster.placement import NodeState
    from nexo.cluster.rpc import Switch
    from nexo.engine.engine import Engine

HOME = TOKENS_SHARD  # the shard of what has no name
NODE = "nexo node"  # the name of a client that is a node and asks for itself
_OF_CLUSTER = frozenset({"cluster_info", "drain_node", "rebalance_cluster"})
_OF_TASKS = frozenset({"redrive_progress", "redrive_cancel"})
# They are about all of a broker, and would tell of one shard as if it were everything.
_NOT_YET = frozenset(
    {"export_definitions", "import_definitions", "list_connections", "close_connection"}
)
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
        if called.method in _NOT_YET:
            raise InvalidArgument(
                f"{called.method} does not work in a cluster yet",
                "see docs/cluster-broker.md for what does",
            )
        try:
            self._names = msgspec.msgpack.decode(called.params, type=_Names)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidArgument(
                f"{called.method}: the parameters cannot be read: {error}"
            ) from None

    @property
    def is_for_all(self) -> bool:
        return self._method in LISTING_CALLS or self._method in _OF_CLUSTER | _OF_TASKS

    def shard(self) -> int:
        names = self._names
        name = names.name or names.topic
        if name is None or self._method.endswith("_token"):
            return HOME
        return self._node.shard_of(name)

    async def work(self) -> None:
        switch, correlation = self._switch, self._received.correlation
        try:
            if self._method in _OF_CLUSTER:
                switch.forward(frame_parts(Kind.OK, correlation, b"", [await self._of_cluster()]))
            elif self._method in _OF_TASKS:
                await self._of_task()
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
        wanted, caller = self._decoded(), self._switch.caller
        assert caller is not None
        await self._node.settled()
        knows: Callable[[str], bool] = caller.knows if caller.is_bound else lambda name: True
        everything: Any = Whole(self._node)
        here = await LISTING_CALLS[self._method](everything, wanted, knows)
        if self._switch.is_passed:
            return here
        answers = await asyncio.gather(*[self._ask(node) for node in self._others()])
        bodies = [b"".join(here), *[bytes(answer.body) for answer in answers]]
        entries = [each for body in bodies for each in _entries(body)]
        entries.sort(key=lambda entry: entry[0])
        return [commands.pack([raw for _, raw in entries[: wanted.limit]])]

    def _others(self) -> list[NodeState]:
        state = self._node.state
        owners = set(state.owners.values()) - {self._node.name, None}
        return [state.nodes[name] for name in sorted(each for each in owners if each is not None)]

    async def _ask(self, node: NodeState) -> Frame:
        """The same call, of another node."""
        switch = self._switch
        asked = frame_parts(Kind.CALL, _ASKED, self._received.head, [self._received.body])
        answer = await ask(node, [switch.passed_hello, *asked], switch.door.peer_tls)
        if answer.kind is Kind.ERROR or answer.kind is Kind.GOODBYE:
            refusal: commands.Refusal = commands.unpack(answer.head, commands.Refusal)
            if refusal.code == RedriveNotFound.code:
                raise RedriveNotFound(refusal.message, refusal.hint)
            raise NotReady(f"node {node.name!r}: {refusal.message}", refusal.hint)
        return answer

    # -- Redrives -----------------------------------------------------------------------------

    async def _of_task(self) -> None:
        """Only one shard knows the task."""
        task = self._names.task or 0
        for shard, engine in self._node.engines.items():
            if _knows_task(engine, task):
                self._switch.pass_on(shard, self._received)
                return
        if not self._switch.is_passed:
            for node in self._others():
                try:
                    answer = await self._ask(node)
                except RedriveNotFound:
                    continue
                told = frame_parts(
                    answer.kind, self._received.correlation, answer.head, [answer.body]
                )
                self._switch.forward(told)
                return
        raise RedriveNotFound(f"there is no redrive {task}", "it ended long ago")


def _knows_task(engine: Engine, task: int) -> bool:
    try:
        engine.tasks.source_of(task)
    except RedriveNotFound:
        return False
    return True


def _entries(body: bytes) -> list[tuple[str, msgspec.Raw]]:
    raws = msgspec.msgpack.decode(body, type=list[msgspec.Raw])
    return [(msgspec.msgpack.decode(raw, type=_Listed).name, raw) for raw in raws]


async def ask(node: NodeState, pieces: list[bytes | memoryview], tls: Any) -> Frame:
    """Send a greeting and one request to another node, and return its answer."""
    host, _, port = node.rpc.rpartition(":")
    try:
        async with asyncio.timeout(CLUSTER_ROUTE_S):
            reader, writer = await asyncio.open_connection(host.strip("[]"), int(port), ssl=tls)
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
