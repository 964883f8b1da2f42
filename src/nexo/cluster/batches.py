"""The batches that Spark's queries have finished, of all nodes: each follows the events of its own
shards while a page is open somewhere, and tells the others."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING

import msgspec

from nexo.cluster.questions import AskBatches, ToldBatches
from nexo.doors.console.batches import Batches
from nexo.vocabulary.errors import NexoError
from nexo.vocabulary.limits import CLUSTER_FRESH_S, CLUSTER_PATIENCE_S, CONSOLE_BATCHES_SHOWN
from nexo.vocabulary.names import events_name

if TYPE_CHECKING:
    from nexo.cluster.node import Node
    from nexo.cluster.others import Others
    from nexo.cluster.placement import NodeState
    from nexo.doors.console.batches import Batch
    from nexo.engine.engine import Engine


class ClusterBatches:
    def __init__(self, node: Node, others: Others) -> None:
        self._node, self._others = node, others
        self._own: dict[int, tuple[Engine, Batches]] = {}  # by shard
        self._told: dict[str, ToldBatches] = {}  # by node, of those that have shards
        self._told_s = float("-inf")
        self._reading: asyncio.Task[None] | None = None

    # -- For pages ----------------------------------------------------------------------------

    async def read(self) -> None:
        """Of a node that does not answer what is known stays."""
        if self._reading is None or self._reading.done():
            if time.monotonic() - self._told_s < CLUSTER_FRESH_S:
                return
            self._reading = asyncio.get_running_loop().create_task(self._read())
        await asyncio.shield(self._reading)

    def last(self, most: int) -> list[Batch]:
        own = [each for _, batches in self._own.values() for each in batches.last(most)]
        told = [each for told in self._told.values() for each in told.batches]
        # Once each: of a shard that has moved two nodes may tell.
        found = {(each.queue, each.consumer, each.at_ms): each for each in told + own}
        return sorted(found.values(), key=lambda each: -each.at_ms)[:most]

    def rate(self, queue: str, consumer: str) -> float | None:
        shard = self._node.shard_of(queue)
        if shard in self._own:
            return self._own[shard][1].rate(queue, consumer)
        told = self._told.get(self._node.state.owners.get(shard) or "")
        for of_queue, of_consumer, rate in told.rates if told is not None else ():
            if (of_queue, of_consumer) == (queue, consumer):
                return rate
        return None

    # -- For other nodes ----------------------------------------------------------------------

    async def told(self) -> ToldBatches:
        """Of the shards of this node."""
        await self._read_own()
        parts = [batches for _, batches in self._own.values()]
        found = [each for batches in parts for each in batches.last(CONSOLE_BATCHES_SHOWN)]
        found.sort(key=lambda each: -each.at_ms)
        rates = [
            (*query, batches.rate(*query)) for batches in parts for query in sorted(batches.queries)
        ]
        return ToldBatches(found[:CONSOLE_BATCHES_SHOWN], rates)

    # -- Inside -------------------------------------------------------------------------------

    async def _read(self) -> None:
        others = self._others.owners()
        await asyncio.gather(self._read_own(), *[self._ask(each) for each in others])
        names = {each.name for each in others}
        self._told = {name: told for name, told in self._told.items() if name in names}
        self._told_s = time.monotonic()

    async def _read_own(self) -> None:
        engines = self._node.engines
        self._own = {
            shard: each for shard, each in self._own.items() if engines.get(shard) is each[0]
        }
        for shard, engine in list(engines.items()):
            if shard not in self._own:
                self._own[shard] = engine, Batches(engine, events_name(shard))
            with contextlib.suppress(NexoError):  # the shard moves
                await self._own[shard][1].read()

    async def _ask(self, node: NodeState) -> None:
        # An answer that cannot be read is of another version.
        with contextlib.suppress(NexoError, TimeoutError, msgspec.DecodeError):
            async with asyncio.timeout(CLUSTER_PATIENCE_S):
                packed = await self._others.ask(node, AskBatches())
                self._told[node.name] = msgspec.msgpack.decode(packed, type=ToldBatches)
