"""Transfers: what goes to a queue in another shard of a cluster.

For each target there is a hidden queue in the shard of the source, and another one for what is
published to it by bindings. To the engine it is a queue like any other: dead letters and redrives
move into it, and topics are bound to it, in one commit with leaving their source. From there a
forwarder (in the room `cluster`) pushes to the target, and here is what it needs on either side:
`load` and `Load` where messages leave, `accept` where they arrive.

What is bound is bound to one life of the target: when that is deleted, the binding is gone, and
what was on its way. Dead letters whose queue was deleted go back to where they came from.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec

from nexo.engine.moves import MoveTask
from nexo.engine.queue_actor import QueueActor
from nexo.machine import move as moves
from nexo.machine import transfer as rules
from nexo.vocabulary import limits
from nexo.vocabulary.batch import Batch, concatenate
from nexo.vocabulary.errors import DataCorrupt, NotReady, QueueNotFound
from nexo.vocabulary.names import FIFO_SUFFIX, TRANSFER_PREFIX
from nexo.vocabulary.settings import QueueSettings, check_room
from nexo.vocabulary.states import Cause

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from nexo.engine.context import Context
    from nexo.machine.queue import Queue
    from nexo.machine.span import Span

_MOVED, _BOUND = "moved.", "bound."
TRANSFER_SETTINGS = QueueSettings(
    max_attempts=None, retention_ms=limits.RETENTION_MS_MAX, events=False
)
_DEAD_LETTERS = QueueSettings(max_attempts=None, retention_ms=14 * 24 * 3_600_000)


class Found(msgspec.Struct, frozen=True):
    """A queue in another shard."""

    incarnation: int
    settings: QueueSettings


class Elsewhere(Protocol):
    """The other shards, as the engine of one of them sees them."""

    def is_here(self, name: str) -> bool:
        """Whether a name lives in this shard."""

    async def find(self, name: str, create: bool = False) -> Found:
        """A queue that lives in another; with `create` it is created if it is not there. Raises
        `QueueNotFound`."""


class Transfer(msgspec.Struct, frozen=True):
    """Messages on their way to `queue`. `ranges` are their numbers under the name of `producer`,
    by which the target knows those that it has. `incarnation`: only to that life of the queue; 0:
    dead letters and redriven messages, to a queue that is FIFO or not if it is to be created."""

    queue: str
    producer: str
    ranges: list[int]
    batch: Batch
    incarnation: int = 0
    fifo: bool = False


class Backlog(NamedTuple):
    """What waits to go to other shards."""

    messages: int = 0
    oldest_ms: int = 0  # how long the oldest has waited


def bound_name(name: str, incarnation: int) -> str:
    """The queue of a shard that stands for one elsewhere in bindings."""
    return f"{TRANSFER_PREFIX}{_BOUND}{incarnation:016x}.{name}"


class TransferActor(QueueActor):
    """The hidden queue of a target; to who looks at bindings it is the target."""

    is_gone = False  # the target was deleted, as far as is known

    def __init__(self, context: Context, owner: int, queue: Queue) -> None:
        super().__init__(context, owner, queue)
        rest = queue.name.removeprefix(TRANSFER_PREFIX)
        self.bound_to = 0  # the life of the target that it is for
        if rest.startswith(_BOUND):
            life, _, rest = rest.removeprefix(_BOUND).partition(".")
            self.bound_to = int(life, 16)
        self.target = rest.removeprefix(_MOVED) if not self.bound_to else rest

    @property
    def name(self) -> str:
        return self.target

    @property
    def label(self) -> str:
        return f"what is on its way to queue {self.target!r}"

    def serve(self) -> None:
        news = self._context.transfers.news
        if news is not None and self.queue.ready and self._gone is None:
            news(self)


class Load:
    """Messages that were taken aside to be pushed to their target."""

    def __init__(
        self,
        context: Context,
        actor: TransferActor,
        picked: list[tuple[int, Span]],
        transfer: Transfer,
    ) -> None:
        self._context, self._actor, self._queue = context, actor, actor.queue
        self._picked = picked
        self.transfer = transfer

    def arrived(self) -> None:
        """They are safe at their target: they leave here. If that is forgotten, because this shard
        moves before it is on disk, they are pushed again, and dropped there."""
        if self._actor.queue is not self._queue:
            return
        now_ms = self._context.clock.now_ms()
        for lease, span in self._picked:
            moves.take_out(self._queue, lease, span, Cause.REDRIVEN, "", now_ms)
        self._context.committer.enlist(self._actor)

    def give_back(self) -> None:
        """They stay, at their place."""
        if self._actor.queue is self._queue:
            for lease, _ in self._picked:
                moves.unpick(self._queue, lease)


class Transfers:
    """Those of one shard; an engine alone has none."""

    def __init__(self, context: Context, elsewhere: Elsewhere | None) -> None:
        self._context = context
        self._elsewhere = elsewhere
        self.news: Callable[[TransferActor], None] | None = None  # told when there is something

    @property
    def is_sharded(self) -> bool:
        """Whether there are other shards."""
        return self._elsewhere is not None

    def is_elsewhere(self, name: str) -> bool:
        return self._elsewhere is not None and not self._elsewhere.is_here(name)

    async def find(self, name: str, create: bool = False) -> Found:
        """A queue in another shard."""
        assert self._elsewhere is not None
        return await self._elsewhere.find(name, create)

    def all(self) -> list[TransferActor]:
        return list(self._context.queues.transfers.values())

    def backlog(self) -> Backlog:
        messages = oldest_ms = 0
        for actor in self._context.queues.transfers.values():
            if actor.queue.depth:
                messages += actor.queue.depth
                oldest_ms = max(oldest_ms, actor.info().oldest_age_ms)
        return Backlog(messages, oldest_ms)

    def by_shard(self) -> list[tuple[int, Backlog]]:
        """What waits in each shard of a node: a broker alone has none."""
        return []

    # -- Where messages leave -----------------------------------------------------------------

    def to(self, name: str) -> TransferActor:
        """What dead letters and redriven messages for a queue elsewhere move into."""
        return self._context.queues.define_transfer(
            f"{TRANSFER_PREFIX}{_MOVED}{name}", TRANSFER_SETTINGS
        )

    def bind(self, name: str, incarnation: int) -> TransferActor:
        """The same, created if it is not there."""
        hidden = bound_name(name, incarnation)
        return self._context.queues.define_transfer(hidden, TRANSFER_SETTINGS)

    def bound(self, topic: int, name: str) -> list[TransferActor]:
        """What stands for a queue elsewhere in the bindings of a topic."""
        bound = [queue for queue, _ in self._context.queues.bound_to(topic) if queue.name == name]
        return [queue for queue in bound if isinstance(queue, TransferActor)]

    def topics_of(self, name: str, incarnation: int) -> list[str]:
        """The topics of this shard that a queue elsewhere is bound to."""
        hidden = bound_name(name, incarnation)
        if hidden not in self._context.queues.transfers:
            return []
        return self._context.catalog.catalog.topics_of(hidden)

    def dead_letters(self, name: str) -> TransferActor | None:
        """Where dead letters for a queue elsewhere move into; None while that is deleted."""
        actor = self.to(name)
        return None if actor.is_gone else actor

    async def load(self, actor: TransferActor) -> Load | None:
        """Take the first messages aside; None if there are none."""
        queue, context = actor.queue, self._context
        actor.check_in_service()
        context.check_writable()
        if queue.aside:
            raise DataCorrupt(f"{actor.label} cannot be read", "what is behind it waits")
        picked = rules.take(queue, limits.TRANSFER_MESSAGES, limits.TRANSFER_RUNS)
        if not picked:
            return None
        try:
            with actor.contents.pins() as pins:
                for _, span in picked:
                    if span.chunk.content is None:
                        await actor.contents.read_strictly(span.chunk)
                    pins.add(span.chunk)
                if actor.queue is not queue:
                    raise NotReady("the shard reloaded its data", "it is tried again")
                batches = _fitting(queue, picked)
        except BaseException:
            if actor.queue is queue:
                for lease, _ in picked:
                    moves.unpick(queue, lease)
            raise
        for lease, _ in picked[len(batches) :]:
            moves.unpick(queue, lease)
        del picked[len(batches) :]
        spans = [span for _, span in picked]
        transfer = Transfer(
            actor.target,
            rules.producer_of(queue, spans[0]),
            rules.ranges_of(spans),
            concatenate(batches),
            actor.bound_to,
            self._is_fifo(actor.target, batches),
        )
        return Load(context, actor, picked, transfer)

    async def lost(self, actor: TransferActor) -> None:
        """The target is not there. Its bindings go, as they do with a queue of the same shard, and
        with them what was on its way. Dead letters go back; redriven messages wait for a queue of
        that name."""
        if actor.bound_to:
            await actor.prepare_clear_out()
            self._context.check_writable()
            if actor.queue.name in self._context.queues.transfers:
                self._context.queues.drop_transfer(actor)
            return
        actor.is_gone = True
        sources = Targets(self._context, None)
        await MoveTask(self._context, actor, sources, None).finished

    async def look_again(self, actor: TransferActor) -> None:
        """Whether a target that was deleted is there again; raises `QueueNotFound`."""
        await self.find(actor.target)
        actor.is_gone = False

    def forget_idle(self, actor: TransferActor) -> None:
        """Nothing is bound to it any more, and all of it has arrived."""
        catalog = self._context.catalog.catalog
        is_used = actor.queue.depth or not actor.bound_to or self._context.refusal is not None
        if not is_used and actor.is_in_service and not catalog.topics_of(actor.queue.name):
            self._context.queues.drop_transfer(actor)

    def _is_fifo(self, target: str, batches: list[Batch]) -> bool:
        """Whether the dead-letter queue of these is to be FIFO, if it is not there yet."""
        origin = batches[0].origins[0] if batches[0].origins else None
        letter = origin.dead_letter if origin is not None else None
        source = self._context.queues.actors.get(letter.source) if letter is not None else None
        return source.settings.fifo if source is not None else target.endswith(FIFO_SUFFIX)

    # -- Where messages arrive ----------------------------------------------------------------

    async def accept(self, transfer: Transfer) -> None:
        """Messages of another shard come in; returns once they are on disk."""
        context = self._context
        context.check_writable()
        await context.committer.room()
        context.check_writable()
        actor = self._target(transfer)
        actor.check_in_service()
        context.topics.check_fed([actor])
        batch = transfer.batch
        if transfer.incarnation:  # published: the queue's own delay counts
            batch = msgspec.structs.replace(batch, delay_ms=None)
        now_ms = context.clock.now_ms()
        rules.push_transferred(actor.queue, batch, transfer.producer, transfer.ranges, now_ms)
        # Also if all of it was there: that it is on disk is what is waited for.
        await context.committer.admit(actor, batch.size, None)

    def has_fed(self, name: str) -> bool:
        """Whether dead letters of another shard, or redriven messages, came to a queue of this."""
        actor = self._context.queues.actors.get(name)
        producers = actor.queue.producers if actor is not None else None
        return producers is not None and producers.has(TRANSFER_PREFIX + _MOVED)

    async def describe(self, name: str, create: bool = False) -> Found:
        """A queue of this shard, for another one."""
        context = self._context
        actor = context.queues.actors.get(name)
        if actor is None and create:
            context.check_writable()
            check_room("queues", len(context.queues.actors) + 1, limits.QUEUES_MAX)
            actor = context.queues.define(name, QueueSettings())
            await context.catalog.durable()
        if actor is None:
            raise _not_found(name)
        actor.check_in_service()
        return Found(actor.incarnation, actor.settings)

    def _target(self, transfer: Transfer) -> QueueActor:
        name, queues = transfer.queue, self._context.queues
        actor = queues.actors.get(name)
        if transfer.incarnation:
            if actor is None or actor.incarnation != transfer.incarnation:
                raise _not_found(name)
            return actor
        if actor is None:
            origins = transfer.batch.origins or []
            are_letters = any(each is not None and each.dead_letter for each in origins)
            if not are_letters or name in self._context.catalog.catalog.retired:
                raise _not_found(name)
            wanted = msgspec.structs.replace(_DEAD_LETTERS, fifo=transfer.fifo)
            actor = queues.define(name, wanted)
        return actor


class Targets:
    """Where the messages of a redrive go, wherever that is."""

    def __init__(
        self, context: Context, to: str | None, may_push: Callable[[str], bool] | None = None
    ) -> None:
        """`may_push`: the messages get other bodies. Then they are new ones, and go back only to
        where who sends them may push; others stay."""
        self._context, self._to = context, to
        self._may_push = may_push
        self._known: dict[str, Found | None] = {}

    def of(self, source: str | None) -> QueueActor | None:
        """The queue that messages of this source go to; None: they stay."""
        name = self._to or source
        if name is None or (
            self._to is None and self._may_push is not None and not self._may_push(name)
        ):
            return None
        transfers = self._context.transfers
        if transfers.is_elsewhere(name):
            return transfers.to(name) if self._known.get(name) is not None else None
        target = self._context.queues.actors.get(name)
        if target is not None:
            target.check_in_service()
        elif self._to is not None:
            raise _not_found(name)  # once it is gone, the redrive has failed
        return target

    def max_message_bytes(self, source: str | None, target: QueueActor) -> int:
        found = self._known.get(self._to or source or "")
        return (found.settings if found is not None else target.settings).max_message_bytes

    async def learn(self, sources: Iterable[str | None]) -> None:
        """Look whether those that live elsewhere are there now. While their shard has no owner,
        that is waited for."""
        transfers = self._context.transfers
        names = set(sources) if self._to is None else {self._to}
        for name in names:
            if name is not None and transfers.is_elsewhere(name):
                self._known[name] = await self._found(name)

    async def _found(self, name: str) -> Found | None:
        while True:
            try:
                return await self._context.transfers.find(name)
            except QueueNotFound:
                if self._to is not None:
                    raise
                return None
            except NotReady:
                await asyncio.sleep(limits.TRANSFER_AGAIN_MS_MAX / 1000)


def _fitting(queue: Queue, picked: list[tuple[int, Span]]) -> list[Batch]:
    """The batches of the first of these, as many as one push takes."""
    batches: list[Batch] = []
    size = 0
    for _, span in picked:
        batch = moves.carried(queue, span)
        size += batch.size
        if batches and size > limits.TRANSFER_BYTES:
            break
        batches.append(batch)
    return batches


def _not_found(name: str) -> QueueNotFound:
    return QueueNotFound(f"there is no queue {name!r:.100}", "create it first")
