"""The whole of a cluster as if it were one engine, for lists and pages: the shards of this node as
they are, and the queues and topics of other nodes as those have told of them.

What is about one queue or topic is done by the engine of its shard. Here is what is about many: to
walk through all of them, to sum them up, to define them wherever they belong.
"""

from __future__ import annotations

import time
from heapq import merge
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from nexo.cluster.connections import Clients
from nexo.cluster.far import FarQueue
from nexo.cluster.questions import DefineBinding, DefineQueue, DefineTopic, define
from nexo.cluster.tokens import TOKENS_SHARD
from nexo.engine.engine import Engine
from nexo.journal.port import Usage
from nexo.vocabulary.errors import NotReady, QueueNotFound, TopicNotFound
from nexo.vocabulary.limits import LIST_STEP_NAMES

if TYPE_CHECKING:
    from collections.abc import ItemsView, Iterator

    from nexo.cluster.far import Far
    from nexo.cluster.node import Node
    from nexo.engine.listing import Named
    from nexo.engine.queue_actor import QueueActor
    from nexo.engine.tokens import Tokens
    from nexo.engine.topic_actor import TopicActor
    from nexo.engine.transfers import Backlog
    from nexo.vocabulary.changes import QueueDefined
    from nexo.vocabulary.errors import NexoError
    from nexo.vocabulary.settings import QueueSettings, TopicSettings
    from nexo.vocabulary.sns import Subscription


class Together:
    """Queues or topics of shards of this node, and with `far` of the others, as one list. What is
    said by name goes to its shard; shards come and go."""

    def __init__(
        self, node: Node, engines: dict[int, Engine], kind: str, far: Named[Any] | None = None
    ) -> None:
        self._node, self._engines, self._kind, self._far = node, engines, kind, far

    def _of(self, engine: Engine) -> Named[Any]:
        found: Named[Any] = engine.queues if self._kind == "queues" else engine.topics
        return found

    def _parts(self) -> list[Named[Any]]:
        here = [self._of(engine) for engine in self._engines.values()]
        return here if self._far is None else [*here, self._far]

    def behind(self, after: str = "") -> Iterator[list[str]]:
        merged = _each_once(merge(*[_one_by_one(part, after) for part in self._parts()]))
        while names := list(islice(merged, LIST_STEP_NAMES)):
            yield names

    def get(self, name: str) -> Any:
        engine = self._engines.get(self._node.shard_of(name))
        if engine is not None:
            return self._of(engine).get(name)
        return None if self._far is None else self._far.get(name)

    def __getitem__(self, name: str) -> Any:
        found = self.get(name)
        if found is None:
            raise KeyError(name)
        return found

    def __contains__(self, name: str) -> bool:
        return self.get(name) is not None

    def __len__(self) -> int:
        return sum(map(len, self._parts()))

    def __iter__(self) -> Iterator[str]:
        return chain.from_iterable(self._parts())

    def keys(self) -> set[str]:
        return set(self)

    def values(self) -> list[Any]:
        return [actor for part in self._parts() for actor in part.values()]

    def items(self) -> ItemsView[str, Any]:
        return {name: actor for part in self._parts() for name, actor in part.items()}.items()


def _one_by_one(part: Any, after: str) -> Iterator[str]:
    for names in part.behind(after):
        yield from names


def _each_once(names: Iterator[str]) -> Iterator[str]:
    """A queue that has just come here may still be told of by its former node."""
    last = ""
    for name in names:
        if name != last:
            yield name
        last = name


class Whole:
    """Without `far` only this node. `queues` and `topics` are those of other nodes that a list is
    to be of, and `engines` the shards of this one; otherwise all that `far` knows of, and those
    that are open. `is_looked_at`: by pages, so that what others have
    is asked for again while somebody looks."""

    def __init__(
        self,
        node: Node,
        far: Far | None = None,
        *,
        queues: Named[Any] | None = None,
        topics: Named[Any] | None = None,
        engines: dict[int, Engine] | None = None,
        clients: Clients | None = None,
        is_looked_at: bool = False,
    ) -> None:
        self.node, self.far = node, far
        self._given = queues, topics
        self._is_looked_at = is_looked_at
        self._engines = node.engines if engines is None else engines
        self.own_queues: Any = Together(node, self._engines, "queues")
        self.own_topics: Any = Together(node, self._engines, "topics")
        self.connections = clients or Clients(None, far)
        self.meters = node.meters
        self.memory = _WholeMemory(node, far)
        self.committer = _WholeCommitter(node, far)
        self.backups = self
        self._usage = Usage(stored_bytes=0, free_bytes=0)
        self.transfers = _WholeTransfers(node)

    @property
    def queues(self) -> Any:
        given, far = self._given[0], self.far
        if far is not None and self._is_looked_at:
            far.looked()
        others = far.queues if given is None and far else given
        return Together(self.node, self._engines, "queues", others)

    @property
    def topics(self) -> Any:
        given, far = self._given[1], self.far
        if far is not None and self._is_looked_at:
            far.looked()
        others = far.topics if given is None and far else given
        return Together(self.node, self._engines, "topics", others)

    # -- One of them --------------------------------------------------------------------------

    def engine_of(self, name: str) -> Engine | None:
        """The engine of a name, if its shard is here."""
        return self._engines.get(self.node.shard_of(name))

    async def engine_here(self, name: str) -> Engine:
        """The same, where another node believes it to be."""
        return await self.node.local(self.node.shard_of(name))

    def queue(self, name: str) -> QueueActor:
        return self._here(name).queue(name)

    def find_queue(self, name: str) -> QueueActor:
        return self._here(name).find_queue(name)

    def topic(self, name: str) -> TopicActor:
        return self._here(name).topic(name)

    def find_topic(self, name: str) -> TopicActor:
        return self._here(name).find_topic(name)

    def _here(self, name: str) -> Engine:
        engine = self.engine_of(name)
        if engine is None:
            raise NotReady(f"{name!r} is not at node {self.node.name!r} any more", "try again")
        return engine

    def definition(self, name: str) -> QueueDefined:
        engine = self.engine_of(name)
        if engine is not None:
            return engine.definition(name)
        found = self.queues.get(name)
        if isinstance(found, FarQueue):
            return found.told.defined
        raise QueueNotFound(f"there is no queue {name!r:.100}")

    def topics_of(self, queue: str) -> list[str]:
        """Of all shards, of other nodes as they have told."""
        engine = self.engine_of(queue)
        if engine is None:
            return []
        found = set(engine.topics_of(queue))
        life = engine.queue(queue).incarnation
        for each in self.node.engines.values():
            if each is not engine:
                found.update(each.transfers.topics_of(queue, life))
        if self.far is not None:
            found.update(self.far.topics_of(queue))
        return sorted(found)

    @property
    def tokens(self) -> Tokens:
        engine = self.node.engines.get(TOKENS_SHARD)
        if engine is None:
            raise NotReady("the tokens are not at this node any more", "try again")
        return engine.tokens

    # -- Defined where they belong ------------------------------------------------------------

    async def create_queue(self, name: str, settings: QueueSettings) -> None:
        await self._define(name, DefineQueue(name, settings, is_new=True))

    async def edit_queue(self, name: str, settings: QueueSettings) -> None:
        await self._define(name, DefineQueue(name, settings, is_new=False))

    async def create_topic(self, name: str, settings: TopicSettings) -> None:
        await self._define(name, DefineTopic(name, settings, is_new=True))

    async def edit_topic(self, name: str, settings: TopicSettings) -> None:
        await self._define(name, DefineTopic(name, settings, is_new=False))

    async def bind(
        self,
        topic: str,
        queue: str,
        where: dict[str, str] | None = None,
        sns: Subscription | None = None,
    ) -> None:
        await self._define(topic, DefineBinding(topic, queue, where, sns))

    async def _define(self, name: str, wanted: DefineQueue | DefineTopic | DefineBinding) -> None:
        found = await self.node.route(self.node.shard_of(name))
        if isinstance(found, Engine):
            await define(found, wanted)
        else:
            if self.far is None:
                raise TopicNotFound(f"{name!r} is not at this node")
            await self.far.others.ask(found, wanted)

    # -- All of them --------------------------------------------------------------------------
    async def usage(self) -> Usage:
        """Of the database, which is that of all shards."""
        for engine in self.node.engines.values():
            self._usage = await engine.backups.usage()
            break
        return self._usage  # a node without shards has no connection to ask over

    @property
    def refusal(self) -> NexoError | None:
        engines = self.node.engines.values()
        found = [engine.refusal for engine in engines if engine.refusal is not None]
        return found[0] if found else None

    @property
    def events_waiting(self) -> int:
        return sum(engine.events_waiting for engine in self.node.engines.values())

    @property
    def out_of_service(self) -> list[NexoError]:
        engines = self.node.engines.values()
        return [each for engine in engines for each in engine.out_of_service]

    def now_ms(self) -> int:
        return self.wall_ms()

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def clock_ahead_ms(self) -> int:
        engines = self.node.engines.values()
        return max([engine.clock_ahead_ms() for engine in engines], key=abs, default=0)


class Scope:
    """One shard of this node with the whole around it, for the page of one queue or topic: what is
    done is done in its engine, what is listed is that of all."""

    def __init__(self, whole: Whole, engine: Engine) -> None:
        self._whole, self._engine = whole, engine
        self.connections = whole.connections

    @property
    def queues(self) -> Any:
        return self._whole.queues

    @property
    def topics(self) -> Any:
        return self._whole.topics

    def topics_of(self, queue: str) -> list[str]:
        return self._whole.topics_of(queue)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


class _WholeTransfers:
    def __init__(self, node: Node) -> None:
        self._engines = node.engines

    def by_shard(self) -> list[tuple[int, Backlog]]:
        engines = sorted(self._engines.items())
        return [(shard, engine.transfers.backlog()) for shard, engine in engines]

    def is_elsewhere(self, name: str) -> bool:
        """It stands for all shards of the node."""
        return False


class _WholeMemory:
    def __init__(self, node: Node, far: Far | None) -> None:
        self._node, self._far = node, far

    @property
    def _memories(self) -> list[Any]:
        return [engine.memory for engine in self._node.engines.values()]

    def unreadable(self) -> list[Any]:
        return [each for memory in self._memories for each in memory.unreadable()]

    @property
    def resident_bytes(self) -> int:
        own = sum(int(memory.resident_bytes) for memory in self._memories)
        return own + _sum(self._far, "payload_bytes")

    @property
    def payload_limit_bytes(self) -> int:
        own = sum(int(memory.payload_limit_bytes) for memory in self._memories)
        return own + _sum(self._far, "payload_limit_bytes")

    limit_bytes = payload_limit_bytes

    @property
    def bookkeeping_bytes(self) -> int:
        return sum(memory.bookkeeping_bytes for memory in self._memories)


class _WholeCommitter:
    def __init__(self, node: Node, far: Far | None) -> None:
        self._node, self._far = node, far

    @property
    def _committers(self) -> list[Any]:
        return [engine.committer for engine in self._node.engines.values()]

    @property
    def overdue_ms(self) -> int:
        return max([committer.overdue_ms for committer in self._committers], default=0)

    @property
    def unsettled_bytes(self) -> int:
        own = sum(int(committer.unsettled_bytes) for committer in self._committers)
        return own + _sum(self._far, "unsettled_bytes")


def _sum(far: Far | None, field: str) -> int:
    return 0 if far is None else sum(getattr(each, field) for each in far.nodes.values())
