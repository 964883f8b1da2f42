"""A node as a process: it starts, joins, takes calls and passes them on, and dies."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, Any

from nexo.cluster.node import Node
from nexo.engine.clock import SystemClock
from nexo.engine.engine import Engine
from nexo.simulation.cluster.network import Network, Place
from nexo.simulation.cluster.store import SimulatedStore
from nexo.simulation.history import Violation
from nexo.vocabulary.errors import NexoError, NotReady, Unreachable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from nexo.cluster.placement import NodeState
    from nexo.simulation.cluster.database import Database
    from nexo.simulation.history import History

    Work = Callable[[Engine, "Given"], Awaitable[Any]]

PEER_PATIENCE_S = 20.0  # of a node that passes a call on
_MEMORY_BYTES = 4 * 1024 * 1024
_WALL_START_S = 1_700_000_000.0


class Given:
    """Who gives something out, for whoever has to check that it may."""

    def __init__(self, member: Member, shard: int) -> None:
        self._member, self._shard = member, shard
        self._naps = member.place.naps

    def check(self) -> None:
        """A message leaves the engine now. What a process that slept sends after its sleep may have
        left it before; then nobody can tell it from a message that took long."""
        member, opened_by = self._member, self._member.database.opened_by
        if member.place.naps == self._naps and opened_by[self._shard] != member.identity:
            raise Violation(
                "a node gives out nothing of a shard that it lost",
                f"{member.identity} gave out a message of shard {self._shard}, "
                f"which {opened_by[self._shard]} has opened",
            )


class SimulatedPeers:
    """The other nodes, for what goes from shard to shard."""

    def __init__(self, member: Member) -> None:
        self._member = member

    async def call(self, node: NodeState, method: str, params: bytes) -> bytes:
        other = self._member.find(node.rpc)

        async def serve() -> bytes:
            if other.node is None or not other.has_joined or other.has_ended:
                raise NotReady(f"{other.name} is not there")
            return await other.node.post.serve(method, params)

        try:
            return await self._member.network.ask(other.place, serve, PEER_PATIENCE_S)
        except Unreachable as error:
            raise NotReady(error.message) from None


class Member:
    """One run of a node. `skew_s` is how wrong its wall clock is."""

    def __init__(
        self,
        network: Network,
        database: Database,
        history: History,
        name: str,
        run: int,
        skew_s: float,
        find: Callable[[str], Member],
    ) -> None:
        self.identity = (name, run)
        self.name = name
        self.place = Place(name)
        self.network, self.database = network, database
        self._history, self.find = history, find
        self._skew_s = skew_s
        self.node: Node | None = None
        self.has_joined = self.has_ended = False
        network.spawn(self.place, self._live(run))

    async def _live(self, run: int) -> None:
        loop, name = self.network.loop, self.name
        store = SimulatedStore(self.network, self.place, self.database, name, run)
        wall_s = _WALL_START_S + self._skew_s
        node = self.node = Node(
            store,
            _MEMORY_BYTES,
            now_s=loop.time,
            new_clock=lambda: SystemClock(lambda: wall_s + loop.time(), loop.time),
            chance=Random(run),
        )
        node.post.peers = SimulatedPeers(self)
        try:
            await node.prepare()
            await node.join(f"{name}:{run}", f"{name}:{run}", "0")
            self.has_joined = True
            self._history.add("-- joined", name, run)
            error = await node.failure
        except NexoError as raised:
            error = raised
        self._history.add("-- node ends", name, run, error.message)
        self.has_ended = True  # as `nexo serve` does

    @property
    def engines(self) -> dict[int, Engine]:
        return self.node.engines if self.node is not None else {}

    async def leave(self) -> None:
        """As after a SIGTERM."""
        assert self.node is not None
        await self.node.leave()
        self.has_ended = True
        self._history.add("-- left", *self.identity)

    # -- Calls ----------------------------------------------------------------------------------

    async def serve(self, queue: str, work: Work, is_passed: bool = False) -> Any:
        """As a switch does: here, or at the node that has the shard, which does not pass it on."""
        node = self.node
        if node is None or not self.has_joined or self.has_ended:
            raise NotReady(f"{self.name} is not there yet")
        shard = node.shard_of(queue)
        found = await (node.local(shard) if is_passed else node.route(shard))
        if isinstance(found, Engine):
            return await self._until_closed(node, shard, work(found, Given(self, shard)))
        other = self.find(found.rpc)
        return await self.network.ask(
            other.place, lambda: other.serve(queue, work, True), PEER_PATIENCE_S
        )

    async def _until_closed(self, node: Node, shard: int, work: Awaitable[Any]) -> Any:
        """A shard that is closed ends the connections to it, whatever is under way."""
        task = asyncio.ensure_future(work)

        def closed(which: int) -> None:
            if which == shard and not task.done():
                self.network.loop.call_soon(task.cancel)

        node.when_closed.append(closed)
        try:
            return await task
        except asyncio.CancelledError:
            raise NotReady("the shard is on its way to another node") from None
        finally:
            node.when_closed.remove(closed)
