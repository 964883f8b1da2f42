"""What a node asks another for itself, and the answers: what it has, as lists and pages show it,
and a few things to be done with that. Each question is a type; so is what is told.

A node answers for its own shards alone, so a question never goes on to a third.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from nexo.cluster.others import telling
from nexo.doors.console.batches import Batch
from nexo.engine.claims import Claimant
from nexo.engine.connections import ConnectionFigures, ConsumerFigures
from nexo.engine.listing import steps
from nexo.engine.topic_actor import TopicInfo
from nexo.engine.transfers import Backlog
from nexo.engine.types import Info
from nexo.vocabulary.changes import Bound, QueueDefined
from nexo.vocabulary.errors import InvalidArgument, NexoError
from nexo.vocabulary.settings import QueueSettings, TopicSettings
from nexo.vocabulary.sns import Subscription
from nexo.wire import commands

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from nexo.cluster.audit import ClusterAudit
    from nexo.cluster.batches import ClusterBatches
    from nexo.cluster.whole import Whole
    from nexo.engine.queue_actor import QueueActor
    from nexo.engine.topic_actor import TopicActor


# -- What is told -----------------------------------------------------------------------------


class ToldQueue(msgspec.Struct, frozen=True, array_like=True):
    name: str
    defined: QueueDefined
    consumers: int
    info: Info
    claimants: list[Claimant]


class BoundQueue(msgspec.Struct, frozen=True, array_like=True):
    name: str
    incarnation: int


class ToldTopic(msgspec.Struct, frozen=True, array_like=True):
    info: TopicInfo
    bound: list[tuple[BoundQueue, Bound]]


class ToldNode(msgspec.Struct, frozen=True):
    """A node besides its queues and topics; the connections are counted by door."""

    queues: int
    topics: int
    connections: dict[str, int]
    resident_bytes: int
    payload_bytes: int
    payload_limit_bytes: int
    unsettled_bytes: int
    backlogs: dict[int, Backlog]  # of each shard, what waits to go to others
    refusal: commands.Refusal | None = None


class ToldConnections(msgspec.Struct, frozen=True):
    """The connections of clients to a node; and the consumers that those have here which were made
    to another, by their numbers there."""

    own: list[ConnectionFigures]
    parts: dict[int, list[ConsumerFigures]]


class ToldBatches(msgspec.Struct, frozen=True):
    """The latest batches that Spark's queries on queues of a node have finished, and the rows a
    second of each query."""

    batches: list[Batch]
    rates: list[tuple[str, str, float | None]]


# -- What is asked ----------------------------------------------------------------------------


class AskQueues(msgspec.Struct, frozen=True, tag=True):
    """`limit` of them at most, in the order of names; with `shards`, of all of these or none."""

    after: str
    limit: int
    shards: list[int] = []


class AskTopics(msgspec.Struct, frozen=True, tag=True):
    after: str
    limit: int
    shards: list[int] = []


class AskNode(msgspec.Struct, frozen=True, tag=True):
    pass


class AskConnections(msgspec.Struct, frozen=True, tag=True):
    pass


class CloseConnection(msgspec.Struct, frozen=True, tag=True):
    """The answer is whether there was one."""

    number: int


class AskBatches(msgspec.Struct, frozen=True, tag=True):
    pass


class AskAudit(msgspec.Struct, frozen=True, tag=True):
    limit: int


class DefineQueue(msgspec.Struct, frozen=True, tag=True):
    name: str
    settings: QueueSettings
    is_new: bool


class DefineTopic(msgspec.Struct, frozen=True, tag=True):
    name: str
    settings: TopicSettings
    is_new: bool


class DefineBinding(msgspec.Struct, frozen=True, tag=True):
    topic: str
    queue: str
    where: dict[str, str] | None
    sns: Subscription | None


class Datagrams(msgspec.Struct, frozen=True, tag=True):
    """Datagrams of clients for topics of one shard; each with the address that it came from and
    how long its answer may be. The answer has those that there are, by their place."""

    shard: int
    items: list[tuple[bytes, str, int, int]]


Question = (
    AskQueues
    | AskTopics
    | AskNode
    | AskConnections
    | CloseConnection
    | AskBatches
    | AskAudit
    | DefineQueue
    | DefineTopic
    | DefineBinding
    | Datagrams
)
_decoder = msgspec.msgpack.Decoder(Question)


# -- The answers ------------------------------------------------------------------------------


class Answering:
    """`whole` are the shards of this node, `told` what it tells of itself."""

    def __init__(
        self,
        whole: Whole,
        audit: ClusterAudit,
        batches: ClusterBatches,
        told: Callable[[], ToldNode],
    ) -> None:
        self._whole, self._audit, self._batches, self._told = whole, audit, batches, told
        self.datagrams: Callable[[Datagrams], Awaitable[dict[int, bytes]]] | None = None

    async def answer(self, asked: bytes | msgspec.Raw) -> bytes:
        try:
            question = _decoder.decode(asked)
        except msgspec.DecodeError as error:
            raise InvalidArgument(f"a question that cannot be read: {error}") from None
        return commands.pack(await self._answered(question))

    async def _answered(self, question: Any) -> Any:
        whole = self._whole
        match question:
            case AskQueues():
                with telling(whole.node, question.shards):
                    return await told_queues(whole, question.after, question.limit)
            case AskTopics():
                with telling(whole.node, question.shards):
                    return await told_topics(whole, question.after, question.limit)
            case AskNode():
                return self._told()
            case AskConnections():
                return whole.connections.told()
            case CloseConnection():
                return whole.connections.close_own(question.number)
            case AskBatches():
                return await self._batches.told()
            case AskAudit():
                return self._audit.read_own(question.limit)
            case Datagrams():
                return await self.datagrams(question) if self.datagrams is not None else {}
            case _:
                await self._define(question)
                return None

    async def _define(self, wanted: DefineQueue | DefineTopic | DefineBinding) -> None:
        name = wanted.topic if isinstance(wanted, DefineBinding) else wanted.name
        await define(await self._whole.engine_here(name), wanted)


async def define(engine: Any, wanted: DefineQueue | DefineTopic | DefineBinding) -> None:
    """Do it in the shard that it belongs to."""
    match wanted:
        case DefineQueue():
            do = engine.create_queue if wanted.is_new else engine.edit_queue
            await do(wanted.name, wanted.settings)
        case DefineTopic():
            do = engine.create_topic if wanted.is_new else engine.edit_topic
            await do(wanted.name, wanted.settings)
        case DefineBinding():
            await engine.bind(wanted.topic, wanted.queue, wanted.where, sns=wanted.sns)


async def told_queues(whole: Whole, after: str, limit: int) -> list[ToldQueue]:
    found: list[ToldQueue] = []
    async for actors in steps(whole.own_queues, after):
        found += [_told_queue(whole, actor) for actor in actors]
        if len(found) >= limit:
            break
    return found[:limit]


def _told_queue(whole: Whole, actor: QueueActor) -> ToldQueue:
    name, claims = actor.name, actor.queue.claims
    return ToldQueue(
        name,
        whole.definition(name),
        actor.room.consumers,
        actor.info(),
        actor.claims.claimants() if claims else [],
    )


async def told_topics(whole: Whole, after: str, limit: int) -> list[ToldTopic]:
    found: list[ToldTopic] = []
    async for actors in steps(whole.own_topics, after):
        found += [_told_topic(actor) for actor in actors]
        if len(found) >= limit:
            break
    return found[:limit]


def _told_topic(actor: TopicActor) -> ToldTopic:
    bound = [
        (BoundQueue(queue.name, queue.incarnation), how) for queue, how in actor.bound_queues()
    ]
    return ToldTopic(actor.info(), bound)


def refusal_told(error: NexoError | None) -> commands.Refusal | None:
    if error is None:
        return None
    return commands.Refusal(error.code, error.message, error.hint, error.retryable)
