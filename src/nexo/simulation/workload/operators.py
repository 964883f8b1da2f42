"""The operator: pauses, purges, redrives, edits, creates and deletes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from nexo.simulation.plan import COLOURS
from nexo.vocabulary.errors import NexoError
from nexo.vocabulary.names import dead_letter_name
from nexo.vocabulary.settings import QueueSettings
from nexo.vocabulary.start import EARLIEST, Start

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from nexo.engine.moves import MoveTask
    from nexo.simulation.workload.stage import Stage

_SCRATCH = "scratch"  # a queue that comes and goes


class Operator:
    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.pace_ms = stage.random.choice([150, 400, 1_000])
        self._purges = stage.chance(0.15)
        self._deletes = stage.chance(0.3)
        self._binds = stage.chance(0.4)
        self.moves: list[MoveTask] = []

    async def act(self) -> None:
        random = self.stage.random
        name = random.choice(list(self.stage.queues))
        actions = [self._pause, self._redrive, self._redrive, self._edit, self._peek]
        if self._purges:
            actions.append(self._purge)
        if self._deletes:
            actions.append(self._come_and_go)
        if self._binds:
            actions.append(self._rebind)
        if self.stage.late_bindings:
            actions.append(self._bind_late)
        await random.choice(actions)(name)

    async def _pause(self, name: str) -> None:
        stage, actor = self.stage, self.stage.witness.queue(name)
        await self._sure("pause", name, actor.set_paused(True))
        await stage.nap(300)
        await self._sure("resume", name, actor.set_paused(False))

    async def _peek(self, name: str) -> None:
        actor = self.stage.witness.queue(name)
        limit = self.stage.random.choice([1, 10, 100])
        for message in await actor.peek(limit):
            self.stage.witness.ledger.identify(actor.queue, message)
        actor.info()

    async def _purge(self, name: str) -> None:
        witness = self.stage.witness
        actor = witness.queue(name)
        book = witness.ledger.book_of(actor.queue)
        future = actor.purge()
        index = self.stage.history.add("purge", name)
        book.cleared.append(index)
        if await self._sure("purged", name, future, index):
            book.emptied_index = index

    async def _redrive(self, name: str) -> None:
        """From the dead letters of a queue, at a rate or at once, perhaps cut short."""
        stage, random = self.stage, self.stage.random
        ledger = stage.witness.ledger
        source = dead_letter_name(name, stage.queues[name].dead_letter)
        if source not in stage.witness.engine.queues:
            return
        to = random.choice([None, None, random.choice(list(stage.queues))])
        if to is not None and stage.queues[to].fifo != stage.queues[name].fifo:
            to = None
        book = ledger.book_of(stage.witness.queue(source).queue)
        targets = [each for each in ledger.books.values() if source in each.dead_letter_names]
        book.feeds |= {to} if to is not None else {each.name for each in targets}
        rate = random.choice([None, None, 5.0, 50.0])
        stage.history.add("redrive", source, to, rate)
        task = await stage.witness.engine.redrive(source, to, rate)
        self.moves.append(task)
        if stage.chance(0.3):
            await stage.nap(200)
            task.cancel()
        try:
            moved = await task.finished
        except NexoError as error:
            stage.history.add("redrive", source, "failed:", error.code)
            return
        stage.history.add("redriven", source, moved)

    async def _edit(self, name: str) -> None:
        stage, random = self.stage, self.stage.random
        known = stage.queues[name]
        settings = msgspec.structs.replace(
            known,
            visibility_timeout_ms=random.choice([200, 800, 2_000]),
            max_attempts=random.choice([None, 1, 2, 4]),
        )
        stage.witness.ledger.book_of(stage.witness.queue(name).queue).learn(settings)
        stage.history.add("edit", name, settings.max_attempts)
        await self._sure("edited", name, stage.witness.engine.edit_queue(name, settings))
        stage.queues[name] = settings

    async def _come_and_go(self, name: str) -> None:
        """A queue is created, used and deleted, whatever the name that was drawn."""
        stage, engine = self.stage, self.stage.witness.engine
        settings = QueueSettings(max_attempts=None)
        if _SCRATCH not in engine.queues:
            await self._sure("create", _SCRATCH, engine.create_queue(_SCRATCH, settings))
        if _SCRATCH not in stage.queues and _SCRATCH in engine.queues:
            stage.queues[_SCRATCH] = settings
        for _ in range(3):
            await stage.witness.push(_SCRATCH, [stage.letter(_SCRATCH), stage.letter(_SCRATCH)])
        if stage.chance(0.5):
            stage.queues.pop(_SCRATCH, None)
            book = stage.witness.ledger.book_of(stage.witness.queue(_SCRATCH).queue)
            stage.topics.dropped(_SCRATCH)
            deletion = engine.delete_queue(_SCRATCH)
            index = stage.history.add("delete", _SCRATCH)
            book.cleared.append(index)
            await self._sure("deleted", _SCRATCH, deletion, index)
            book.is_deleted = True

    async def _rebind(self, name: str) -> None:
        stage, random = self.stage, self.stage.random
        if not stage.topic_settings:
            return
        topic = random.choice(list(stage.topic_settings))
        where = random.choice([None, {"colour": random.choice(COLOURS)}])
        if stage.chance(0.5):
            await stage.topics.bind(topic, name, where)
        else:
            await stage.topics.unbind(topic, name)

    async def _bind_late(self, name: str) -> None:
        """A queue gets what a topic has kept, whatever the name that was drawn. If it was bound
        before, it would rightly get messages a second time."""
        stage, random = self.stage, self.stage.random
        topic, queue, where = stage.late_bindings.pop()
        start = random.choice([EARLIEST, EARLIEST, Start(offset=random.randrange(30))])
        is_there = queue in stage.witness.engine.queues and topic in stage.witness.engine.topics
        if is_there and not stage.topics.was_bound(topic, queue):
            await stage.topics.bind(topic, queue, where, start)

    async def _sure(
        self, what: str, name: str, answer: Awaitable[Any], index: int | None = None
    ) -> bool:
        """Wait for the answer; a failure is part of life."""
        history = self.stage.history
        called = index if index is not None else history.add("call", what, name)
        try:
            await answer
        except NexoError as error:
            history.add("unknown", what, name, error.code)
            return False
        self.stage.witness.ledger.confirmed(called)
        history.add(what, name)
        return True
