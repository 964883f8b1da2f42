"""The topics of an engine: those of users, the archives of queues, and the events.

Only the catalog knows which there are for certain; here are their actors, and how queues are
bound to them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nexo.engine.committer import ARCHIVE_RANK, TOPIC_RANK
from nexo.engine.events import EventsActor
from nexo.engine.followers import Followers
from nexo.engine.listing import Named
from nexo.engine.recovery import new_topic
from nexo.engine.topic_actor import TopicActor
from nexo.machine import bind as rules
from nexo.machine.topic import chunks_from, drop_before
from nexo.vocabulary.errors import InvalidArgument, ReadOnly, TopicNotFound
from nexo.vocabulary.limits import EVENTS_RETENTION_BYTES, EVENTS_RETENTION_MS
from nexo.vocabulary.names import (
    ARCHIVE_PREFIX,
    EVENTS_TOPIC,
    RESERVED_PREFIX,
    archive_name,
    is_events,
)
from nexo.vocabulary.settings import TopicSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from nexo.engine.context import Context
    from nexo.engine.queue_actor import QueueActor
    from nexo.machine.chunk import Chunk
    from nexo.machine.log import Piece, Place
    from nexo.machine.topic import Topic
    from nexo.vocabulary.batch import Batch
    from nexo.vocabulary.changes import TopicDefined
    from nexo.vocabulary.events import Event
    from nexo.vocabulary.start import Start

    Selection = dict[Chunk, tuple[int, list[rules.Run]]]  # up to which number, and what of it


EVENTS_SETTINGS = TopicSettings(
    retention_ms=EVENTS_RETENTION_MS, retention_bytes=EVENTS_RETENTION_BYTES
)


class Topics:
    def __init__(
        self, context: Context, events: TopicSettings | None, events_name: str = EVENTS_TOPIC
    ) -> None:
        """`events` is what the topic `events_name` keeps; None: the life of messages is not told.
        In a shard of a cluster it is there from the first queue on: most may be empty."""
        self._context = context
        self._events = events
        self.events_name = events_name
        self.actors: Named[TopicActor] = Named()
        self.followers = Followers()
        self.tells_events = events is not None

    def load(self, topics: dict[int, Topic]) -> None:
        """Topics as the journal has them; actors that exist stay, with new state."""
        known = {actor.owner: actor for actor in self.actors.values()}
        self.actors = Named()
        self.followers.loaded()
        for owner, topic in topics.items():
            actor = known.pop(owner, None)
            if actor is None:
                actor = self._new_actor(owner, topic)
                actor.begin()
                self.followers.news(topic.name, 0)  # a commit that seemed to fail did not
            else:
                actor.adopt(topic)
            self.actors[topic.name] = actor
        self.actors.sort()
        for actor in known.values():  # they were created in a commit that failed
            actor.close(TopicNotFound(f"topic {actor.name!r} could not be created"))

    def add(self, defined: TopicDefined) -> TopicActor:
        """The actor of a topic that the catalog has just been told of."""
        actor = self.actors.get(defined.name)
        if actor is None:
            topic = new_topic(defined, self._context.row_numbers)
            actor = self.actors[defined.name] = self._new_actor(defined.owner, topic)
            actor.begin()
            self.followers.added(defined.name, actor)
        return actor

    def drop(self, name: str) -> None:
        actor = self.actors[name]
        self._context.committer.tie(actor)  # with the catalog, which drops it too
        del self.actors[name]
        self.followers.dropped(name)
        drop_before(actor.topic, actor.topic.log.end)
        self._context.committer.enlist(actor)
        actor.close(TopicNotFound(f"topic {name!r} was deleted"))
        self._context.memory.forget(actor)

    # -- The broker's own ---------------------------------------------------------------------

    async def drain(self) -> None:
        """Wait until everything is on disk, and told unless the disk takes no payloads."""
        context, events = self._context, self.actors.get(self.events_name)
        await context.committer.drain()
        while isinstance(events, EventsActor) and events.is_behind and context.refusal is None:
            if not events.is_in_service:
                return
            events.hurry()
            await context.committer.drain()

    def define_archive(self, queue: QueueActor) -> None:
        retention_ms = queue.settings.archive_retention_ms
        name, settings = archive_name(queue.name), TopicSettings(retention_ms=retention_ms)
        self._define_own(name, settings)
        self._context.catalog.enlist()

    def define_events(self) -> None:
        is_needed = self.events_name == EVENTS_TOPIC or bool(self._context.queues.actors)
        if self._events is not None and is_needed:
            events = self._define_own(self.events_name, self._events)
            assert isinstance(events, EventsActor)
            events.hurry()
        if self._context.catalog.catalog.changes:
            self._context.catalog.enlist()

    def expect_events(self) -> None:
        """There is a queue now."""
        if self._events is not None and self.events_name not in self.actors:
            self._define_own(self.events_name, self._events)

    def _define_own(self, name: str, settings: TopicSettings) -> TopicActor:
        """A topic of the broker, with what it is to keep from now on."""
        catalog, now_ms = self._context.catalog.catalog, self._context.clock.now_ms()
        actor = self.actors.get(name)
        if actor is None:
            return self.add(catalog.define_topic(name, settings, now_ms, system=True))
        if actor.topic.settings != settings:
            catalog.edit_topic(name, settings, now_ms)
            actor.edit(settings)
        return actor

    def publish_events(self, events: list[Event], late: bool) -> None:
        """What a queue did since the last commit; `late`: from outside of a commit."""
        self._context.meters.observe(events)
        actor = self.actors.get(self.events_name)
        if isinstance(actor, EventsActor):  # else its creation failed, and is tried again
            if late:
                actor.tell_late(events)
            else:
                actor.tell(events)

    @property
    def events_waiting(self) -> int:
        """How many events wait to be told."""
        actor = self.actors.get(self.events_name)
        return actor.waiting if isinstance(actor, EventsActor) else 0

    def check_fed(self, queues: Iterable[QueueActor]) -> None:
        """What comes in goes to queues and to their archives, or not at all: refuse it if one of
        them is out of service."""
        for queue in queues:
            queue.check_in_service()
            archive = self.actors.get(archive_name(queue.name))
            if archive is not None:
                archive.check_in_service()

    def archive(self, queue: QueueActor, batch: Batch, place: Place) -> None:
        """Keep what came into a queue, if it has an archive."""
        if queue.settings.archive:
            topic = self.actors.get(archive_name(queue.name))
            if topic is not None:
                self._context.committer.tie(queue, topic)
                topic.archive(batch, place)

    def archive_kept(self, queue: QueueActor, piece: Piece) -> None:
        """The same for what a topic had kept when the queue was bound to it."""
        if queue.settings.archive:
            topic = self.actors.get(archive_name(queue.name))
            if topic is not None:
                self._context.committer.tie(queue, topic)
                topic.archive_kept(piece)

    def _new_actor(self, owner: int, topic: Topic) -> TopicActor:
        if topic.name == self.events_name:
            return EventsActor(self._context, owner, topic)
        is_archive = topic.name.startswith(ARCHIVE_PREFIX)
        return TopicActor(self._context, owner, topic, ARCHIVE_RANK if is_archive else TOPIC_RANK)


def check_bindable(topic: str) -> None:
    if topic.startswith(RESERVED_PREFIX):
        raise InvalidArgument(
            f"{topic} is a system topic: archives and nexo.events cannot be bound",
            "read it, or subscribe to it without a group",
        )


def check_deletable(topic: str, queues: dict[str, QueueActor]) -> None:
    """The broker's own go with what feeds them."""
    queue = queues.get(topic.removeprefix(ARCHIVE_PREFIX)) if ARCHIVE_PREFIX in topic else None
    is_fed = queue is not None and queue.settings.archive
    if is_events(topic) or is_fed:
        raise InvalidArgument(
            f"{topic} is a system topic and is in use",
            "first switch off the setting `archive` or `events` of the queues that write to it",
        )


class Kept:
    """What a topic keeps from a start on, chosen for a binding: looked at chunk by chunk, which
    may have to wait for the disk, and then handed over in one step."""

    def __init__(self, actor: TopicActor, where: dict[str, str] | None) -> None:
        self._actor = actor
        self._topic = actor.topic
        self._where = where
        self._offset = 0
        self._chosen: Selection = {}

    async def choose(self, start: Start) -> None:
        """Look at all of it, also at what comes or changes while something is read back."""
        self._offset = await self._actor.offset_of(start)
        self._topic = self._actor.topic
        unseen = True
        while unseen:
            unseen = False
            for chunk in self._chunks():
                if not self._is_known(chunk):
                    unseen = True
                    if chunk.content is None:
                        await self._actor.read_back(chunk)
                    self._look(chunk)
            if self._actor.topic is not self._topic:
                raise ReadOnly("the broker reloaded its data during the binding", "try again")

    def hand_over(self, queue: QueueActor, share: Callable[[int], None]) -> None:
        """Everything arrives, in the step that binds. What was dropped since was not kept."""
        for chunk in self._chunks():
            if not self._is_known(chunk):
                self._look(chunk)
            for piece in rules.pieces_of(chunk, self._chosen[chunk][1]):
                for row in piece.rows:
                    share(row)
                queue.arrive_kept(piece)

    def _chunks(self) -> Iterator[Chunk]:
        """Not the one that ends where it begins, if nothing has come since."""
        start = max(self._offset, self._topic.start)
        return (chunk for chunk in chunks_from(self._topic, start) if chunk.end > start)

    def _is_known(self, chunk: Chunk) -> bool:
        return chunk in self._chosen and self._chosen[chunk][0] == chunk.end

    def _look(self, chunk: Chunk) -> None:
        if chunk.content is not None:
            runs = rules.runs_of(chunk, self._offset, self._where)
            self._chosen[chunk] = (chunk.end, runs)
