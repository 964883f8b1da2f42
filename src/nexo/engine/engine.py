"""The engine: all queues and topics of one broker, on one journal.

It creates, edits and deletes them, binds queues to topics, and loads all of it from the journal.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Any

from nexo.engine import followers
from nexo.engine.backups import Backups
from nexo.engine.catalog_actor import CatalogActor
from nexo.engine.clock import SystemClock
from nexo.engine.committer import Committer
from nexo.engine.connections import Connections
from nexo.engine.context import Context
from nexo.engine.desk import AdaptiveRunner, Desk
from nexo.engine.hands import Hands
from nexo.engine.memory import Memory
from nexo.engine.move_tasks import MoveTasks
from nexo.engine.moves import Mover, MoveTask
from nexo.engine.outcome import report
from nexo.engine.queue_actor import QueueActor
from nexo.engine.queues import Queues
from nexo.engine.recorder import Recorders, StoredBytes
from nexo.engine.recovery import load_queue, load_topic, new_queue, new_topic, recover
from nexo.engine.rows import SharedRows
from nexo.engine.supervisor import Supervisor
from nexo.engine.tokens import Tokens
from nexo.engine.topic_actor import TopicActor
from nexo.engine.topics import EVENTS_SETTINGS, Kept, Topics, check_bindable, check_deletable
from nexo.engine.transfers import Targets, Transfers, bound_name
from nexo.journal.port import CATALOG
from nexo.machine.queue import Queue
from nexo.machine.topic import Topic
from nexo.telemetry.meters import Meters
from nexo.vocabulary import limits
from nexo.vocabulary.errors import InvalidArgument, NotReady, QueueNotFound, ReadOnly
from nexo.vocabulary.limits import CLOSE_MS, COMMIT_OVERDUE_MS
from nexo.vocabulary.names import EVENTS_TOPIC, check_name
from nexo.vocabulary.settings import QueueSettings, TopicSettings, check_filter, check_room
from nexo.vocabulary.sns import check_subscription
from nexo.vocabulary.start import LATEST

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from contextlib import AbstractContextManager

    from nexo.engine.clock import Clock
    from nexo.engine.committer import Participant
    from nexo.engine.desk import Runner
    from nexo.engine.followers import Found, Waiting
    from nexo.engine.listing import Named
    from nexo.engine.moves import Chosen, Resumed
    from nexo.engine.recovery import Recovered
    from nexo.engine.transfers import Elsewhere
    from nexo.journal.port import Journal
    from nexo.vocabulary.changes import QueueDefined
    from nexo.vocabulary.errors import NexoError
    from nexo.vocabulary.sns import Subscription
    from nexo.vocabulary.start import Start

_DEAD_LETTERS = QueueSettings(max_attempts=None, retention_ms=14 * 24 * 3_600_000)


class Engine:
    def __init__(
        self,
        journal: Journal,
        *,
        clock: Clock | None = None,
        runner: Runner | None = None,
        memory_limit_bytes: int = limits.MEMORY_LIMIT_BYTES,
        events: TopicSettings | None = EVENTS_SETTINGS,
        events_name: str = EVENTS_TOPIC,
        new_incarnation: Callable[[], int],
        is_held: Callable[[], bool] | None = None,
        check_place: Callable[[str], None] | None = None,
        elsewhere: Elsewhere | None = None,
        meters: Meters | None = None,
        numbered: tuple[int, int] = (0, 1),
    ) -> None:
        """`events` is what the topic of events keeps; None: the life of messages is not told. Of a
        shard of a cluster `is_held` tells whether anything of it may be given out now,
        `check_place` refuses a name that lives in another, and `elsewhere` finds it there; its
        `meters` are those of the node, `events_name` is its own, and `numbered` are its number and
        how many shards there are, so that its tasks have numbers of their own."""
        self._journal = journal
        context = self._context = Context()
        context.is_held, context.check_place = is_held, check_place
        context.clock = clock or SystemClock()
        context.journal = journal
        context.desk = Desk(runner or AdaptiveRunner())
        context.rows = SharedRows()
        context.memory = Memory(memory_limit_bytes, journal, context.desk)
        context.refusal = None
        context.out_of_service = {}
        context.meters = meters or Meters()
        context.committer = Committer(context)
        context.recorders = Recorders(context.committer.enlist_lazily, {})
        context.supervisor = Supervisor(context, self)
        context.mover = Mover(context)
        self._catalog = context.catalog = CatalogActor(context)
        self._queues = context.queues = Queues(context, new_incarnation)
        self._topics = context.topics = Topics(context, events, events_name)
        self.transfers = context.transfers = Transfers(context, elsewhere)
        self.tokens = Tokens(context)
        self.committer, self.memory, self.meters = context.committer, context.memory, context.meters
        self.tasks = MoveTasks(context, self._redrive_all, new_incarnation, numbered)
        self.hands = Hands(self, context)
        self.connections = Connections()
        self.backups = Backups(context)

    # -- Life ---------------------------------------------------------------------------------

    async def open(self) -> Engine:
        """Open the journal and bring everything back that it holds."""
        self._context.boot(self._journal.open())
        try:
            self.load_all()
        except BaseException:
            self._journal.close()
            raise
        return await self._begin()

    async def open_apart(self) -> Engine:
        """The same, with all that may take its time at the desk: other engines go on meanwhile."""
        desk = self._context.desk
        self._context.boot(await desk.call(self._journal.open))
        try:
            self._adopt_all(await desk.call(self._recover))
        except BaseException:
            self._journal.close()
            raise
        return await self._begin()

    async def _begin(self) -> Engine:
        self._topics.define_events()
        self._context.supervisor.begin()
        await self.tasks.resume()
        return self

    async def close(self) -> None:
        """Write what waits, and let go of the journal."""
        self._context.supervisor.close()
        await self.tasks.close()
        desk = self._context.desk
        try:
            async with asyncio.timeout(CLOSE_MS / 1000):
                await self.backups.close()
                if self._context.refusal is None:
                    await self.drain()
                    with suppress(ReadOnly):  # the next start can fold what does not fit any more
                        self._context.recorders.fold_all()
                        await self.drain()
                if desk.is_busy:
                    await desk.call(lambda: None)
        except TimeoutError as error:
            report("the broker stops though its disk has not taken everything", error)
        finally:
            self._context.committer.stop()
            stopped = NotReady("the broker has stopped", "try again when it is back")
            for queue in self._queues.all():
                queue.close(stopped)
            for topic in self._topics.actors.values():
                topic.close(stopped)
            self._context.committer.abandon(stopped)
            if not desk.is_busy:  # else its thread is in the journal, and may never come back
                desk.close()
                self._journal.close()

    async def drain(self) -> None:
        """Wait until everything that happened is on disk, and told in `nexo.events`."""
        await self._topics.drain()

    @property
    def epoch(self) -> int:
        """How often the journal was opened. Another number: what was not on disk is forgotten."""
        return self._context.epoch

    @property
    def refusal(self) -> NexoError | None:
        """Why nothing new is accepted now; None while all is well."""
        return self._context.refusal

    @property
    def trouble(self) -> NexoError | None:
        """Why the broker is not healthy: nothing new is accepted, or commits do not come."""
        overdue_ms = self._context.committer.overdue_ms
        if self._context.refusal is None and overdue_ms > COMMIT_OVERDUE_MS:
            return NotReady(
                f"no write has finished for {overdue_ms // 1000} seconds",
                "check the disk, or PostgreSQL, and the broker's log",
            )
        return self._context.refusal

    # -- Queues -------------------------------------------------------------------------------

    @property
    def out_of_service(self) -> list[NexoError]:
        """Queues and topics that refuse every call because they failed again and again."""
        return list(self._context.out_of_service.values())

    def queue(self, name: str) -> QueueActor:
        actor = self.find_queue(name)
        actor.check_in_service()
        return actor

    def find_queue(self, name: str) -> QueueActor:
        """The same to look at it, also while it is out of service."""
        self._check_place(name)
        self._catalog.catalog.queue(name)
        found = self._queues.actors.get(name)
        if found is None:  # it is hidden
            raise QueueNotFound(f"there is no queue {name!r:.100}", "create it first")
        return found

    async def settings_of(self, name: str) -> QueueSettings | None:
        """Those of a queue, also of one in another shard; None if it is not there."""
        if self.transfers.is_elsewhere(name):
            try:
                return (await self.transfers.find(name)).settings
            except QueueNotFound:
                return None
        found = self._queues.actors.get(name)
        return None if found is None else found.settings

    def definition(self, name: str) -> QueueDefined:
        """When a queue was created and last edited, and with which settings."""
        return self._catalog.catalog.queue(name)

    def now_ms(self) -> int:
        """The time that queues and topics live by."""
        return self._context.clock.now_ms()

    def wall_ms(self) -> int:
        """The time that access is judged by."""
        return self._context.clock.wall_ms()

    def clock_ahead_ms(self) -> int:
        """How far the clock of queues is ahead of the wall clock; below 0: behind."""
        return self.now_ms() - self.wall_ms()

    @property
    def events_waiting(self) -> int:
        """How many events are true and not told yet."""
        return self._topics.events_waiting

    @property
    def events_name(self) -> str:
        """The topic in which the life of messages is told."""
        return self._topics.events_name

    def topics_of(self, queue: str) -> list[str]:
        """The topics that a queue is bound to."""
        return self._catalog.catalog.topics_of(queue)

    @property
    def queues(self) -> Named[QueueActor]:
        return self._queues.actors

    @property
    def topics(self) -> Named[TopicActor]:
        return self._topics.actors

    async def create_queue(self, name: str, settings: QueueSettings | None = None) -> QueueActor:
        """Create a queue; the same name with the same settings is the same queue."""
        self._context.check_writable()
        settings = settings or QueueSettings()
        self._check_place(name)
        if name not in self.queues:
            check_room("queues", len(self.queues) + 1, limits.QUEUES_MAX)
        actor = self._queues.define(name, settings)
        await self._catalog.durable()
        return actor

    async def edit_queue(self, name: str, settings: QueueSettings) -> None:
        self._context.check_writable()
        self._check_place(name)
        self._catalog.catalog.edit_queue(name, settings, self._context.clock.now_ms())
        self._queues.edit(name, settings)
        await self._catalog.durable()

    async def delete_queue(self, name: str) -> None:
        self._context.check_writable()
        await self.find_queue(name).prepare_clear_out()
        self.find_queue(name)  # another may have deleted it meanwhile
        self._context.check_writable()
        self._queues.drop(name)
        await self._catalog.durable()

    def _check_place(self, name: str) -> None:
        """Of a shard: refuse what lives in another."""
        if self._context.check_place is not None:
            self._context.check_place(name)

    async def redrive(
        self,
        name: str,
        to: str | None = None,
        rate: float | None = None,
        chosen: Chosen | None = None,
        resumed: Resumed | None = None,
        may_push: Callable[[str], bool] | None = None,
    ) -> MoveTask:
        """Send dead letters back to their source, or to another queue. `may_push`: only to sources
        for which it is so."""
        self._context.check_writable()
        source = self.queue(name)
        if resumed is None:  # else that is looked at when it moves something: shards open in turn
            await self.check_target(name, to)
        targets = Targets(self._context, to, may_push)
        task = MoveTask(self._context, source, targets, rate, to, chosen, resumed)
        return self.tasks.started(task)

    async def _redrive_all(
        self, name: str, to: str | None, rate: float | None, resumed: Resumed | None
    ) -> MoveTask:
        return await self.redrive(name, to, rate, resumed=resumed)

    async def check_target(self, name: str, to: str | None) -> None:
        """Refuse a redrive that leads nowhere."""
        if to is not None and self.transfers.is_elsewhere(to):
            await self.transfers.find(to)
        elif to is not None and self.queue(to) is self.queue(name):
            raise InvalidArgument(f"queue {name!r} cannot be redriven into itself")

    # -- Topics -------------------------------------------------------------------------------

    def topic(self, name: str) -> TopicActor:
        actor = self.find_topic(name)
        actor.check_in_service()
        return actor

    def find_topic(self, name: str) -> TopicActor:
        """The same to look at it, also while it is out of service."""
        self._check_place(name)
        self._catalog.catalog.topic(name)
        return self._topics.actors[name]

    async def create_topic(self, name: str, settings: TopicSettings | None = None) -> TopicActor:
        self._context.check_writable()
        self._check_place(name)
        if name not in self.topics:
            check_room("topics", len(self.topics) + 1, limits.TOPICS_MAX)
        now_ms = self._context.clock.now_ms()
        actor = self._topics.add(
            self._catalog.catalog.define_topic(name, settings or TopicSettings(), now_ms)
        )
        await self._catalog.durable()
        return actor

    async def edit_topic(self, name: str, settings: TopicSettings) -> None:
        self._context.check_writable()
        check_name(name, "topic")  # what the broker's own keep is not for users to say
        self._catalog.catalog.edit_topic(name, settings, self._context.clock.now_ms())
        self._topics.actors[name].edit(settings)
        await self._catalog.durable()

    async def delete_topic(self, name: str) -> None:
        self._context.check_writable()
        check_deletable(name, self.queues)
        self.topic(name).fan_out()  # what it has accepted still goes to those who are bound
        self._catalog.catalog.drop_topic(name)
        self._topics.drop(name)
        await self._catalog.durable()

    async def bind(
        self,
        topic: str,
        queue: str,
        where: dict[str, str] | None = None,
        start: Start = LATEST,
        create: bool = False,
        sns: Subscription | None = None,
    ) -> None:
        """What is published to the topic arrives in the queue from now on, and with a start in
        the past what it has kept since then: in the same commit, and once, however often it is
        bound. With `create` a queue that is not there is created. `sns` takes the place of
        `where`, and says in what form SQS's clients see the messages."""
        self._context.check_writable()
        check_bindable(topic)
        self._check_place(topic)
        check_filter(where)
        check_subscription(sns)
        if self.transfers.is_elsewhere(queue):
            await self._bind_elsewhere(topic, queue, where, start, create, sns)
            return
        if create and queue not in self.queues:
            check_room("queues", len(self.queues) + 1, limits.QUEUES_MAX)
        actor = self.topic(topic)
        kept = await self._kept(actor, queue, where, start)
        # From here on nothing else comes in between.
        tied = [self.queues[queue]] if queue in self.queues else []
        self._context.committer.tie(self._catalog, actor, *tied)
        if create and not tied:
            self._context.committer.tie(self._queues.define(queue, QueueSettings()))
        actor.fan_out()
        is_new = self._catalog.catalog.bind(topic, queue, where, sns)
        if is_new and start != LATEST:
            kept.hand_over(self.queues[queue], self._context.rows.share)
        await self._catalog.durable()

    async def _kept(
        self, actor: TopicActor, queue: str, where: dict[str, str] | None, start: Start
    ) -> Kept:
        """What is to be handed over to a queue that is to be bound, if there is room for that."""
        catalog = self._catalog.catalog
        bindings = catalog.binding_count + 1
        is_bound = catalog.is_bound(actor.name, queue)
        if bindings > limits.BINDINGS_MAX and not is_bound:
            check_room("bindings", bindings, limits.BINDINGS_MAX)
        kept = Kept(actor, where)
        if start != LATEST and not is_bound:
            await kept.choose(start)
            self._context.check_writable()
        return kept

    async def _bind_elsewhere(
        self,
        topic: str,
        queue: str,
        where: dict[str, str] | None,
        start: Start,
        create: bool,
        sns: Subscription | None,
    ) -> None:
        """Bind what stands here for a queue of another shard, as it lives now."""
        actor = self.topic(topic)
        found = await self.transfers.find(queue, create)
        hidden = bound_name(queue, found.incarnation)
        kept = await self._kept(actor, hidden, where, start)
        self._context.check_writable()
        actor.check_in_service()
        self._context.committer.tie(self._catalog, actor)
        stands = self.transfers.bind(queue, found.incarnation)
        self._context.committer.tie(stands)
        actor.fan_out()
        for former in self.transfers.bound(actor.owner, queue):
            if former is not stands:  # of a queue of that name that was deleted
                self._catalog.catalog.unbind(topic, former.queue.name)
        is_new = self._catalog.catalog.bind(topic, hidden, where, sns)
        if is_new and start != LATEST:
            kept.hand_over(stands, self._context.rows.share)
        await self._catalog.durable()

    async def starts(self, pattern: str, start: Start) -> dict[str, int]:
        """Where to begin in each topic that a pattern stands for now."""
        return await followers.starts(self._topics, pattern, start)

    def follow(
        self,
        pattern: str,
        offsets: dict[str, int],
        count: int,
        bytes_max: int,
        wait_ms: int,
        may_read: Callable[[str], bool] | None = None,
    ) -> Coroutine[Any, Any, list[Found]]:
        """Messages of all topics that a pattern stands for, from these offsets on; with
        `may_read` only of those that whoever follows may read. The offsets are not held on to
        by who waits: see there."""
        return followers.follow(self._topics, pattern, offsets, count, bytes_max, wait_ms, may_read)

    def followed(self, pattern: str, waiting: Waiting) -> AbstractContextManager[Waiting]:
        """Let it hear of what is new in the topics of a pattern."""
        return self._topics.followers.waiting(pattern, waiting)

    async def unbind(self, topic: str, queue: str) -> None:
        self._context.check_writable()
        actor = self.topic(topic)
        actor.fan_out()
        if self.transfers.is_elsewhere(queue):
            for stands in self.transfers.bound(actor.owner, queue):
                self._catalog.catalog.unbind(topic, stands.queue.name)
                self.transfers.forget_idle(stands)
        else:
            self._catalog.catalog.unbind(topic, queue)
        await self._catalog.durable()

    # -- Loading ------------------------------------------------------------------------------

    def can_be_alone(self, actor: Participant) -> bool:
        """The catalog is everybody's; an actor that was deleted is part of its change."""
        known: set[Participant] = {*self._queues.all(), *self._topics.actors.values()}
        return actor in known

    def suspend_all(self, error: NexoError) -> None:
        for queue in self._queues.all():
            queue.suspend(error)
        for topic in self._topics.actors.values():
            topic.suspend(error)

    def read_one(self, actor: Participant) -> Queue | Topic:
        stored, context = self._journal.load(actor.owner), self._context
        if isinstance(actor, TopicActor):
            topic = new_topic(self._catalog.catalog.topic(actor.name), context.row_numbers)
            load_topic(topic, stored)
            return topic
        assert isinstance(actor, QueueActor)
        defined = self._catalog.catalog.queue(actor.queue.name)
        queue = new_queue(defined, context.row_numbers, context.first_lease)
        load_queue(queue, stored)
        return queue

    def adopt_one(self, actor: Participant, state: Queue | Topic) -> None:
        """What others hold of its rows stays as it was: nothing of this commit is tied to it."""
        if isinstance(actor, QueueActor) and isinstance(state, Queue):
            # The numbers of leases go on: none may stand for two deliveries.
            state.next_lease = max(state.next_lease, actor.queue.next_lease)
            actor.adopt(state)
            self._context.memory.reset(actor)
        elif isinstance(actor, TopicActor) and isinstance(state, Topic):
            actor.adopt(state)
            self._context.memory.reset(actor)
        self.resume()

    def load_all(self) -> None:
        """Load everything from the open journal; actors that exist stay, with new state."""
        self._adopt_all(self._recover())

    def _recover(self) -> Recovered:
        context = self._context
        context.row_numbers = count(self._journal.last_row() + 1)
        return recover(self._journal, context.row_numbers, context.first_lease)

    def _adopt_all(self, recovered: Recovered) -> None:
        context = self._context
        context.clock.not_before(recovered.latest_ms)
        context.rows.recount(recovered.held_rows)
        self._catalog.load(recovered.catalog, recovered.stored.pop(CATALOG, StoredBytes()))
        self.tokens.tell()
        context.recorders = Recorders(context.committer.enlist_lazily, recovered.stored)
        context.committer.resume()
        self._queues.load(recovered.queues)
        self._topics.load(recovered.topics)

    def resume(self) -> None:
        """The disk takes payloads again: go on with what had to wait for it."""
        self._topics.define_events()
        for actor in self._queues.all():
            actor.tick()
