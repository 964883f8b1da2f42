"""The queues of an engine: their actors by name and by owner.

Only the catalog knows which there are for certain. A dead-letter queue is defined here when it is
first needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from nexo.engine.listing import Named
from nexo.engine.queue_actor import QueueActor
from nexo.engine.recovery import new_queue
from nexo.engine.transfers import TransferActor
from nexo.vocabulary.errors import QueueNotFound
from nexo.vocabulary.names import TRANSFER_PREFIX, dead_letter_name
from nexo.vocabulary.settings import QueueSettings

if TYPE_CHECKING:
    from collections.abc import Callable

    from nexo.engine.context import Context
    from nexo.machine.queue import Queue
    from nexo.vocabulary.changes import Bound

_DEAD_LETTERS = QueueSettings(max_attempts=None, retention_ms=14 * 24 * 3_600_000)


class Queues:
    def __init__(self, context: Context, new_incarnation: Callable[[], int]) -> None:
        self._context = context
        self._new_incarnation = new_incarnation
        self.actors: Named[QueueActor] = Named()
        self.transfers: dict[str, TransferActor] = {}  # hidden ones, see there
        self._by_owner: dict[int, QueueActor] = {}

    def define(self, name: str, settings: QueueSettings) -> QueueActor:
        """The actor of a queue, which is created if it is not there."""
        context, now_ms = self._context, self._context.clock.now_ms()
        defined = context.catalog.catalog.define_queue(
            name, settings, self._new_incarnation(), now_ms
        )
        actor = self.actors.get(name)
        if actor is None:
            queue = new_queue(defined, context.row_numbers, context.first_lease)
            actor = QueueActor(context, defined.owner, queue)
            self._add(name, actor)
            context.topics.expect_events()
            actor.begin()
            if settings.archive:
                context.topics.define_archive(actor)
        context.catalog.enlist()
        return actor

    def define_transfer(self, name: str, settings: QueueSettings) -> TransferActor:
        """The same for a hidden one."""
        actor = self.transfers.get(name)
        if actor is None:
            context, now_ms = self._context, self._context.clock.now_ms()
            defined = context.catalog.catalog.define_queue(
                name, settings, self._new_incarnation(), now_ms, system=True
            )
            queue = new_queue(defined, context.row_numbers, context.first_lease)
            actor = TransferActor(context, defined.owner, queue)
            self._add(name, actor)
            actor.begin()
            context.catalog.enlist()
        return actor

    def edit(self, name: str, settings: QueueSettings) -> None:
        """The settings of a queue that the catalog has just been told of."""
        actor = self.actors[name]
        actor.queue.settings = settings
        if settings.archive:
            self._context.topics.define_archive(actor)
        actor.begin()

    def drop(self, name: str) -> None:
        """The queue and all that is in it are gone, in the commit of the catalog."""
        actor = self.actors[name]
        self._context.committer.tie(self._context.catalog, actor)
        actor.flush()
        self._drop(actor, retired=self._context.transfers.has_fed(name))
        del self.actors[name]

    def drop_transfer(self, actor: TransferActor) -> None:
        """The same for a hidden one; its bindings go with it."""
        self._context.committer.tie(self._context.catalog, actor)
        self._drop(actor)
        del self.transfers[actor.queue.name]

    def _drop(self, actor: QueueActor, retired: bool = False) -> None:
        context, name = self._context, actor.queue.name
        owner = context.catalog.catalog.drop_queue(name, retired)
        del self._by_owner[owner]
        context.out_of_service.pop(owner, None)
        actor.clear_out()
        # A queue of the same name must not take the receipts of this one for its own.
        context.first_lease = max(context.first_lease, actor.queue.next_lease)
        context.committer.enlist(actor)
        context.catalog.enlist()
        actor.close(QueueNotFound(f"queue {actor.name!r} was deleted"))
        context.memory.forget(actor)

    def dead_letters_of(self, source: QueueActor) -> QueueActor | None:
        """The dead-letter queue of a queue, created on first need. None if it was deleted: it
        would come back with other settings."""
        settings = source.settings
        name = dead_letter_name(source.name, settings.dead_letter)
        actor = self.actors.get(name)
        if actor is None and self._context.transfers.is_elsewhere(name):
            return self._context.transfers.dead_letters(name)
        if actor is None:
            if name in self._context.catalog.catalog.retired:
                return None
            wanted = msgspec.structs.replace(_DEAD_LETTERS, fifo=settings.fifo)
            actor = self.define(name, wanted)
        return actor

    def bound_to(self, topic: int) -> list[tuple[QueueActor, Bound]]:
        """The queues that are bound to a topic, each with how it is."""
        return [
            (self._by_owner[bound.queue], bound)
            for bound in self._context.catalog.catalog.bound_to(topic)
        ]

    def load(self, queues: dict[int, Queue]) -> None:
        """Queues as the journal has them; actors that exist stay, with new state."""
        known, self.actors, self._by_owner = self._by_owner, Named(), {}
        self.transfers = {}
        for owner, queue in queues.items():
            actor = known.pop(owner, None)
            if actor is None:
                is_hidden = queue.name.startswith(TRANSFER_PREFIX)
                kind = TransferActor if is_hidden else QueueActor
                actor = kind(self._context, owner, queue)
                actor.begin()
            else:
                actor.adopt(queue)
            self._add(queue.name, actor)
        self.actors.sort()
        for actor in known.values():  # they were created in a commit that failed
            actor.close(QueueNotFound(f"queue {actor.name!r} could not be created"))

    def _add(self, name: str, actor: QueueActor) -> None:
        if isinstance(actor, TransferActor):
            self.transfers[name] = actor
        else:
            self.actors[name] = actor
        self._by_owner[actor.owner] = actor

    def all(self) -> list[QueueActor]:
        """Those of users, and the hidden ones."""
        return list(self._by_owner.values())
