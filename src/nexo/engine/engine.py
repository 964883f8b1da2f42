"""The engine: all queues and topics of one broker, on one journal.

It is the catalog's actor: it creates, edits and deletes, knows who is bound to whom, and moves
messages between queues.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

import msgspec

from nexo.engine.clock import SystemClock
from nexo.engine.committer import CATALOG_RANK, Committer
from nexo.engine.context import Context
from nexo.engine.desk import AdaptiveRunner, Desk
from nexo.engine.memory import Memory
from nexo.engine.moves import Mover, MoveTask, MoveTasks
from nexo.engine.queue_actor import QueueActor
from nexo.engine.recorder import Recorder
from nexo.engine.recovery import new_queue, new_topic, recover
from nexo.engine.rows import SharedRows
from nexo.engine.supervisor import Supervisor
from nexo.engine.topic_actor import TopicActor
from nexo.journal.port import CATALOG
from nexo.machine.catalog import Catalog, encode_catalog_image
from nexo.machine.clear import purge
from nexo.machine.topic import drop_before
from nexo.vocabulary.changes import Dropped
from nexo.vocabulary.errors import InvalidArgument, NotReady, QueueNotFound, TopicNotFound
from nexo.vocabulary.limits import MEMORY_LIMIT_BYTES
from nexo.vocabulary.names import ARCHIVE_PREFIX, archive_name, dead_letter_name
from nexo.vocabulary.settings import QueueSettings, TopicSettings

if TYPE_CHECKING:
    from collections.abc import Callable

    from nexo.engine.clock import Clock
    from nexo.engine.committer import Draft, Participant
    from nexo.engine.desk import Runner
    from nexo.journal.port import Journal
    from nexo.machine.queue import Queue
    from nexo.machine.topic import Topic
    from nexo.vocabulary.batch import Batch
    from nexo.vocabulary.errors import NexoError

_DEAD_LETTERS = QueueSettings(max_attempts=None, retention_ms=14 * 24 * 3_600_000)


class Engine:
    rank = CATALOG_RANK

    def __init__(
        self,
        journal: Journal,
        *,
        clock: Clock | None = None,
        runner: Runner | None = None,
        memory_limit_bytes: int = MEMORY_LIMIT_BYTES,
        new_incarnation: Callable[[], int],
    ) -> None:
        self._journal = journal
        self._new_incarnation = new_incarnation
        self._catalog = Catalog()
        self._queues: dict[str, QueueActor] = {}
        self._topics: dict[str, TopicActor] = {}
        self._queues_by_owner: dict[int, QueueActor] = {}
        self._recorder = Recorder(CATALOG)
        context = self._context = Context()
        context.clock = clock or SystemClock()
        context.journal = journal
        context.desk = Desk(runner or AdaptiveRunner())
        context.rows = SharedRows()
        context.memory = Memory(memory_limit_bytes, journal, context.desk)
        context.refusal = None
        context.on_events = None
        context.queues_bound_to = self._queues_bound_to
        context.archive = self._archive
        self._supervisor = Supervisor(context, self._load, self._resume)
        context.committer = Committer(
            journal,
            context.desk,
            context.rows.release,
            self._supervisor.commit_failed,
            self._settled,
        )
        self._mover = Mover(context, self._dead_letters_of)
        context.on_doomed = self._mover.bury
        self.tasks = MoveTasks(self.redrive)

    # -- Life ---------------------------------------------------------------------------------

    async def open(self) -> Engine:
        """Open the journal and bring everything back that it holds."""
        self._context.boot(self._journal.open())
        try:
            self._load()
        except BaseException:
            self._journal.close()
            raise
        self._supervisor.begin()
        return self

    async def close(self) -> None:
        """Write what waits, and let go of the journal."""
        self._supervisor.close()
        try:
            if self._context.refusal is None:
                await self._context.committer.drain()
        finally:
            self._context.committer.stop()
            stopped = NotReady("the broker has stopped", "try again when it is back")
            for queue in self._queues.values():
                queue.close(stopped)
            for topic in self._topics.values():
                topic.close(stopped)
            self._context.desk.close()
            self._journal.close()

    @property
    def refusal(self) -> NexoError | None:
        """Why nothing new is accepted now; None while all is well."""
        return self._context.refusal

    @property
    def committer(self) -> Committer:
        return self._context.committer

    @property
    def memory(self) -> Memory:
        return self._context.memory

    # -- Queues -------------------------------------------------------------------------------

    def queue(self, name: str) -> QueueActor:
        self._catalog.queue(name)
        return self._queues[name]

    @property
    def queues(self) -> dict[str, QueueActor]:
        return self._queues

    @property
    def topics(self) -> dict[str, TopicActor]:
        return self._topics

    async def create_queue(self, name: str, settings: QueueSettings | None = None) -> QueueActor:
        """Create a queue; the same name with the same settings is the same queue."""
        self._check_writable()
        actor = self._define_queue(name, settings or QueueSettings())
        await self._durable()
        return actor

    async def edit_queue(self, name: str, settings: QueueSettings) -> None:
        self._check_writable()
        self._catalog.edit_queue(name, settings, self._context.clock.now_ms())
        actor = self._queues[name]
        actor.queue.settings = settings
        if settings.archive:
            self._define_archive(actor)
        actor.begin()
        await self._durable()

    async def delete_queue(self, name: str) -> None:
        self._check_writable()
        self.queue(name).flush()
        owner = self._catalog.drop_queue(name)
        actor = self._queues.pop(name)
        del self._queues_by_owner[owner]
        purge(actor.queue, self._context.clock.now_ms())
        # A queue of the same name must not take the receipts of this one for its own.
        self._context.first_lease = max(self._context.first_lease, actor.queue.next_lease)
        self._context.committer.enlist(actor)
        actor.close(QueueNotFound(f"queue {name!r} was deleted"))
        self._context.memory.forget(actor)
        await self._durable()

    async def redrive(
        self, name: str, to: str | None = None, rate: float | None = None
    ) -> MoveTask:
        """Send dead letters back to their source, or to another queue."""
        self._check_writable()
        source = self.queue(name)
        if to is not None and self.queue(to) is source:
            raise InvalidArgument(f"queue {name!r} cannot be redriven into itself")

        def target_of(source_name: str | None) -> QueueActor | None:
            wanted = to or source_name
            return self._queues.get(wanted) if wanted is not None else None

        return MoveTask(self._context, source, target_of, rate)

    # -- Topics -------------------------------------------------------------------------------

    def topic(self, name: str) -> TopicActor:
        self._catalog.topic(name)
        return self._topics[name]

    async def create_topic(self, name: str, settings: TopicSettings | None = None) -> TopicActor:
        self._check_writable()
        actor = self._define_topic(name, settings or TopicSettings())
        await self._durable()
        return actor

    async def delete_topic(self, name: str) -> None:
        self._check_writable()
        self.topic(name).fan_out()  # what it has accepted still goes to those who are bound
        self._catalog.drop_topic(name)
        actor = self._topics.pop(name)
        drop_before(actor.topic, actor.topic.log.end)
        self._context.committer.enlist(actor)
        actor.close(TopicNotFound(f"topic {name!r} was deleted"))
        self._context.memory.forget(actor)
        await self._durable()

    async def bind(self, topic: str, queue: str, where: dict[str, str] | None = None) -> None:
        """What is published to the topic arrives in the queue from now on."""
        self._check_writable()
        if topic.startswith(ARCHIVE_PREFIX):
            raise InvalidArgument("an archive cannot be bound", "bind the topic that feeds it")
        self.topic(topic).fan_out()
        self._catalog.bind(topic, queue, where)
        await self._durable()

    async def unbind(self, topic: str, queue: str) -> None:
        self._check_writable()
        self.topic(topic).fan_out()
        self._catalog.unbind(topic, queue)
        await self._durable()

    # -- The catalog as a participant in commits ----------------------------------------------

    def collect(self, draft: Draft) -> None:
        changes, self._catalog.changes = self._catalog.changes, []
        draft.dropped_owners += [each.owner for each in changes if isinstance(each, Dropped)]
        self._recorder.write(draft, changes, lambda: encode_catalog_image(self._catalog.image()))

    def settle(self, mark: Any) -> None:
        """Nothing waits for a definition but its caller."""

    def _define_queue(self, name: str, settings: QueueSettings) -> QueueActor:
        now_ms = self._context.clock.now_ms()
        defined = self._catalog.define_queue(name, settings, self._new_incarnation(), now_ms)
        actor = self._queues.get(name)
        if actor is None:
            context = self._context
            queue = new_queue(defined, context.row_numbers, context.first_lease)
            actor = QueueActor(context, defined.owner, queue)
            self._add_queue(name, actor)
            actor.begin()
            if settings.archive:
                self._define_archive(actor)
        self._context.committer.enlist(self)
        return actor

    def _add_queue(self, name: str, actor: QueueActor) -> None:
        self._queues[name] = actor
        self._queues_by_owner[actor.owner] = actor

    def _define_topic(self, name: str, settings: TopicSettings, system: bool = False) -> TopicActor:
        now_ms = self._context.clock.now_ms()
        defined = self._catalog.define_topic(name, settings, now_ms, system)
        actor = self._topics.get(name)
        if actor is None:
            topic = new_topic(defined, self._context.row_numbers)
            actor = TopicActor(self._context, defined.owner, topic, name.startswith(ARCHIVE_PREFIX))
            self._topics[name] = actor
            actor.begin()
        self._context.committer.enlist(self)
        return actor

    def _define_archive(self, queue: QueueActor) -> None:
        retention_ms = queue.queue.settings.archive_retention_ms
        name = archive_name(queue.name)
        settings = TopicSettings(retention_ms=retention_ms)
        if name in self._topics:
            self._catalog.edit_topic(name, settings, self._context.clock.now_ms())
            self._topics[name].topic.settings = settings
        else:
            self._define_topic(name, settings, system=True)

    def _dead_letters_of(self, source: QueueActor) -> QueueActor:
        """The dead-letter queue of a queue, created on first need."""
        settings = source.queue.settings
        name = dead_letter_name(source.name, settings.dead_letter)
        actor = self._queues.get(name)
        if actor is None:
            wanted = msgspec.structs.replace(_DEAD_LETTERS, fifo=settings.fifo)
            actor = self._define_queue(name, wanted)
        return actor

    def _queues_bound_to(self, owner: int) -> list[tuple[QueueActor, dict[str, str] | None]]:
        return [
            (self._queues_by_owner[bound.queue], bound.where)
            for bound in self._catalog.bound_to(owner)
        ]

    def _archive(self, queue: QueueActor, batch: Batch, row: int, row_start: int) -> None:
        """Keep what came into a queue, if it has an archive."""
        if queue.queue.settings.archive:
            topic = self._topics.get(archive_name(queue.name))
            if topic is not None:
                topic.archive(batch, row, row_start)

    async def _durable(self) -> None:
        self._context.committer.enlist(self)
        await self._context.committer.when_durable(None)

    def _check_writable(self) -> None:
        if self._context.refusal is not None:
            raise self._context.refusal

    def _settled(self, actors: list[Participant]) -> None:
        for actor in actors:
            if isinstance(actor, (QueueActor, TopicActor)):
                self._context.memory.note(actor)

    # -- Loading ------------------------------------------------------------------------------

    def _load(self) -> None:
        """Load everything from the open journal; actors that exist stay, with new state."""
        context = self._context
        context.row_numbers = count(self._journal.last_row() + 1)
        recovered = recover(self._journal, context.row_numbers, context.first_lease)
        context.clock.not_before(recovered.latest_ms)
        context.rows.recount(recovered.held_rows)
        self._catalog = recovered.catalog
        self._recorder = Recorder(CATALOG)
        context.committer.resume()
        self._load_queues(recovered.queues)
        self._load_topics(recovered.topics)

    def _load_queues(self, queues: dict[int, Queue]) -> None:
        known, self._queues, self._queues_by_owner = self._queues_by_owner, {}, {}
        for owner, queue in queues.items():
            actor = known.pop(owner, None)
            if actor is None:
                actor = QueueActor(self._context, owner, queue)
                actor.begin()
            else:
                actor.adopt(queue)
            self._add_queue(queue.name, actor)
        for actor in known.values():  # they were created in a commit that failed
            actor.close(QueueNotFound(f"queue {actor.name!r} could not be created"))

    def _load_topics(self, topics: dict[int, Topic]) -> None:
        known = {actor.owner: actor for actor in self._topics.values()}
        self._topics = {}
        for owner, topic in topics.items():
            actor = known.pop(owner, None)
            if actor is None:
                archive = topic.name.startswith(ARCHIVE_PREFIX)
                actor = TopicActor(self._context, owner, topic, archive)
                actor.begin()
            else:
                actor.adopt(topic)
            self._topics[topic.name] = actor
        for actor in known.values():
            actor.close(TopicNotFound(f"topic {actor.name!r} could not be created"))

    def _resume(self) -> None:
        """The disk takes payloads again: go on with what had to wait for it."""
        for actor in list(self._queues.values()):  # burying may create dead-letter queues
            actor.tick()
