"""Queues and topics of other nodes, as lists and pages look at them: what their node told last.

They look like the actors of this node as far as a list goes, so that the same lists and pages show
both. What is to be done with one of them is done at its own node.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Any

import msgspec

from nexo.cluster.others import moving
from nexo.cluster.questions import (
    AskConnections,
    AskNode,
    AskQueues,
    AskTopics,
    ToldConnections,
    ToldNode,
    ToldQueue,
    ToldTopic,
)
from nexo.engine.listing import Named
from nexo.vocabulary.errors import NexoError
from nexo.vocabulary.limits import (
    CLUSTER_FRESH_S,
    CLUSTER_LOOKED_S,
    CLUSTER_PATIENCE_S,
    CLUSTER_REST_TIMES,
    CLUSTER_TOLD_MAX,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from nexo.cluster.others import Others, Shards
    from nexo.cluster.placement import NodeState
    from nexo.cluster.questions import BoundQueue
    from nexo.engine.claims import Claimant
    from nexo.engine.topic_actor import TopicInfo
    from nexo.engine.types import Info
    from nexo.vocabulary.changes import Bound
    from nexo.vocabulary.settings import QueueSettings, TopicSettings


class FarQueue:
    """It stands for its state, its totals, its room and its claims as well."""

    __slots__ = ("node", "told")

    def __init__(self, node: str, told: ToldQueue) -> None:
        self.node, self.told = node, told

    @property
    def name(self) -> str:
        return self.told.name

    @property
    def incarnation(self) -> int:
        return self.told.defined.incarnation

    @property
    def settings(self) -> QueueSettings:
        return self.told.defined.settings

    @property
    def queue(self) -> FarQueue:
        return self

    totals = room = claims = queue

    @property
    def consumers(self) -> int:
        return self.told.consumers

    @property
    def scheduled_count(self) -> int:
        return self.told.info.scheduled

    def info(self) -> Info:
        return self.told.info

    def claimants(self) -> list[Claimant]:
        return self.told.claimants

    def __getattr__(self, name: str) -> Any:
        """Depth, what is ready or in flight, and the totals: as they were told."""
        return getattr(self.told.info, name)


class FarTopic:
    __slots__ = ("node", "told")

    def __init__(self, node: str, told: ToldTopic) -> None:
        self.node, self.told = node, told

    @property
    def name(self) -> str:
        return self.told.info.name

    @property
    def incarnation(self) -> int:
        return 0  # topics have none

    @property
    def topic(self) -> FarTopic:
        return self

    @property
    def settings(self) -> TopicSettings:
        return self.told.info.settings

    def info(self) -> TopicInfo:
        return self.told.info

    def bindings(self) -> list[tuple[str, dict[str, str] | None]]:
        return [(queue.name, bound.where) for queue, bound in self.told.bound]

    def bound_queues(self) -> list[tuple[BoundQueue, Bound]]:
        return self.told.bound


class _Kind:
    """Of queues, or of topics: how they are asked for, and what is made of the answer."""

    def __init__(self, question: Any, told: Any, made: Any) -> None:
        self.question, self.told, self.made = question, told, made


_QUEUES = _Kind(AskQueues, ToldQueue, FarQueue)
_TOPICS = _Kind(AskTopics, ToldTopic, FarTopic)


class Far:
    """What all other nodes have, looked up anew while somebody looks at it."""

    def __init__(self, others: Others) -> None:
        self.others = others
        self.queues: Named[Any] = Named()
        self.topics: Named[Any] = Named()
        self._topics_of: dict[str, dict[str, list[str]]] = {}  # by node and queue
        self.nodes: dict[str, ToldNode] = {}
        self.connections: dict[str, ToldConnections] = {}
        self.silent: list[str] = []  # nodes that did not answer the last time
        self._looked_s = float("-inf")
        self._connections_looked_s = float("-inf")
        self._told_s = float("-inf")
        self._took_s = 0.0
        self._refreshing: asyncio.Task[None] | None = None

    # -- For pages ----------------------------------------------------------------------------

    async def fresh(self) -> None:
        """Have it no older than a moment; of very many queues a longer one."""
        rest_s = max(CLUSTER_FRESH_S, CLUSTER_REST_TIMES * self._took_s)
        if time.monotonic() - self._told_s >= rest_s:
            await self.refresh()

    async def follow(self) -> bool:
        """The same, if somebody has looked lately; else what is known is let go of. Returns whether
        there is somebody."""
        if time.monotonic() - self._looked_s < CLUSTER_LOOKED_S:
            await self.fresh()
            return True
        if self.queues or self.topics:
            self.queues, self.topics, self.connections = Named(), Named(), {}
            self._topics_of = {}
            self._told_s = float("-inf")
        return False

    def topics_of(self, queue: str) -> list[str]:
        """The topics of other nodes that a queue is bound to."""
        return [topic for by_queue in self._topics_of.values() for topic in by_queue.get(queue, ())]

    def looked(self, at_connections: bool = False) -> None:
        """An open page shows it."""
        self._looked_s = time.monotonic()
        if at_connections:
            self._connections_looked_s = self._looked_s

    async def refresh(self) -> None:
        """Of a node that does not answer what is known stays."""
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.get_running_loop().create_task(self._refresh())
        await asyncio.shield(self._refreshing)

    async def _refresh(self) -> None:
        began_s = time.monotonic()
        others = self.others.owners()
        told = await asyncio.gather(*[self._patiently(node) for node in others])
        self.silent = [node.name for node, is_told in zip(others, told, strict=True) if not is_told]
        names = {node.name for node in others}
        for kept in (self.queues, self.topics):
            for name in [each.name for each in kept.values() if each.node not in names]:
                del kept[name]
        self.nodes = {name: each for name, each in self.nodes.items() if name in names}
        self._topics_of = {name: each for name, each in self._topics_of.items() if name in names}
        self.connections = {name: kept for name, kept in self.connections.items() if name in names}
        self._told_s = time.monotonic()
        self._took_s = self._told_s - began_s if not self.silent else 0.0

    async def _patiently(self, node: NodeState) -> bool:
        # An answer that cannot be read is of another version.
        with contextlib.suppress(NexoError, TimeoutError, msgspec.DecodeError):
            async with asyncio.timeout(CLUSTER_PATIENCE_S):
                await self._look_at(node)
                return True
        return False

    async def _look_at(self, node: NodeState) -> None:
        ask = self.others.ask
        self.nodes[node.name] = _decoded(await ask(node, AskNode()), ToldNode)
        self._learn(self.queues, node, await self._all(node, _QUEUES), _QUEUES)
        topics = await self._all(node, _TOPICS)
        self._learn(self.topics, node, topics, _TOPICS)
        by_queue: dict[str, list[str]] = {}
        for topic in topics:
            for queue, _ in topic.bound:
                by_queue.setdefault(queue.name, []).append(topic.info.name)
        self._topics_of[node.name] = by_queue
        if time.monotonic() - self._connections_looked_s < CLUSTER_LOOKED_S:
            self.connections[node.name] = _decoded(
                await ask(node, AskConnections()), ToldConnections
            )

    def _learn(self, kept: Named[Any], node: NodeState, told: list[Any], kind: _Kind) -> None:
        """One that is still the same stays the same object, as the actor of a queue does."""
        found: set[str] = set()
        for each in told:
            made = kind.made(node.name, each)
            known = kept.get(made.name)
            if known is not None and known.incarnation == made.incarnation:
                known.node, known.told = node.name, each
            else:
                kept[made.name] = made
            found.add(made.name)
        gone = [each.name for each in kept.values() if each.node == node.name]
        for name in gone:
            if name not in found:
                del kept[name]

    # -- For programs -------------------------------------------------------------------------

    async def all_topics(self, shards: Shards) -> Named[Any]:
        """As they are now."""
        return await self._gathered(shards, _TOPICS, "", None, lambda name: True)

    async def all_queues(self, shards: Shards) -> Named[Any]:
        return await self._gathered(shards, _QUEUES, "", None, lambda name: True)

    async def page_of_queues(
        self, shards: Shards, after: str, limit: int, knows: Callable[[str], bool]
    ) -> Named[Any]:
        """Enough of each node for a page of them: the first that one knows of, and one more."""
        return await self._gathered(shards, _QUEUES, after, limit + 1, knows)

    async def page_of_topics(
        self, shards: Shards, after: str, limit: int, knows: Callable[[str], bool]
    ) -> Named[Any]:
        return await self._gathered(shards, _TOPICS, after, limit + 1, knows)

    async def all_connections(self) -> None:
        """As they are now, for a page of them."""
        found = await self.others.ask_all(AskConnections())
        self.connections = {
            name: _decoded(answer, ToldConnections) for name, answer in found.items()
        }
        self.looked(at_connections=True)

    async def all_nodes(self) -> None:
        found = await self.others.ask_all(AskNode())
        self.nodes = {name: _decoded(answer, ToldNode) for name, answer in found.items()}

    async def _gathered(
        self,
        shards: Shards,
        kind: _Kind,
        after: str,
        limit: int | None,
        knows: Callable[[str], bool],
    ) -> Named[Any]:
        told = await asyncio.gather(
            *[self._all(node, kind, after, limit, knows, theirs) for node, theirs in shards.there]
        )
        found: Named[Any] = Named()
        for (node, _), entries in zip(shards.there, told, strict=True):
            for each in entries:
                made = kind.made(node.name, each)
                if made.name in found:
                    raise moving()
                found[made.name] = made
        return found

    async def _all(
        self,
        node: NodeState,
        kind: _Kind,
        after: str = "",
        limit: int | None = None,
        knows: Callable[[str], bool] = lambda name: True,
        shards: Sequence[int] = (),
    ) -> list[Any]:
        """Of one node, some at a time."""
        found: list[Any] = []
        while True:
            wanted = CLUSTER_TOLD_MAX if limit is None else min(CLUSTER_TOLD_MAX, limit)
            answer = await self.others.ask(node, kind.question(after, wanted, list(shards)))
            told = _decoded(answer, list[kind.told])  # type: ignore[name-defined]
            names = [kind.made("", each).name for each in told]
            pairs = zip(names, told, strict=True)
            found += [each for name, each in pairs if knows(name)]
            if len(told) < wanted or (limit is not None and len(found) >= limit):
                return found
            after = names[-1]


def _decoded(packed: bytes, kind: Any) -> Any:
    return msgspec.msgpack.decode(packed, type=kind)
