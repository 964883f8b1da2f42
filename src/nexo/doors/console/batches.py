"""The batches that Spark's queries have finished, as the events of a broker tell."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

import msgspec

from nexo.vocabulary.events import decode_event
from nexo.vocabulary.limits import (
    CONSOLE_BATCHES_KEPT,
    CONSOLE_EVENTS_READ,
    CONSOLE_RATE_OVER_MS,
    CONSOLE_RATE_OVER_MS_MIN,
)
from nexo.vocabulary.names import EVENTS_TOPIC
from nexo.vocabulary.states import EventKind

if TYPE_CHECKING:
    from nexo.engine.engine import Engine
    from nexo.vocabulary.events import Event


class Batch(msgspec.Struct, frozen=True):
    """Rows of a queue that a query has finished together."""

    at_ms: int
    queue: str
    consumer: str
    rows: int
    took_ms: int


class Finished(Protocol):
    """The batches that queries have finished, for all open pages together."""

    async def read(self) -> None:
        """Everything that was told since the last time."""

    def last(self, most: int) -> list[Batch]:
        """The newest first."""

    def rate(self, queue: str, consumer: str) -> float | None:
        """Rows a second over the last minute, or over as much of it as was read."""


class Batches:
    """Followed in the topic of the events of an engine: each is read once, however many look."""

    def __init__(self, engine: Engine, events: str = EVENTS_TOPIC) -> None:
        self._engine, self._events = engine, events
        self._offset = 0  # of the next event to be read
        self._since_ms = 0  # from then on no event was passed over
        self._found: dict[tuple[str, str, int], Batch] = {}  # the oldest first
        self.queries: set[tuple[str, str]] = set()  # the queue and the name of each
        self._reading = asyncio.Lock()

    async def read(self) -> None:
        engine = self._engine
        known = self.queries = {
            (name, each.consumer)
            for name, actor in engine.queues.items()
            for each in actor.claims.claimants()
        }
        if not known or self._events not in engine.topics:
            return
        async with self._reading:
            topic = engine.topic(self._events)
            start = max(topic.info().start, topic.info().end - CONSOLE_EVENTS_READ)
            if not self._offset or self._offset < start:
                self._offset, self._since_ms = start, 0
            while (reading := await topic.read(self._offset, CONSOLE_EVENTS_READ)).parts:
                self._offset = reading.next
                for part in reading.parts:
                    batch = part.batch()
                    first_ms = part.created_ms if batch.created is None else batch.created[0]
                    self._since_ms = self._since_ms or first_ms
                    for index in range(part.count):
                        body = batch.body(index)
                        if b'"kind":"acked"' in body:
                            self._count(decode_event(body), known)
            self._since_ms = self._since_ms or engine.now_ms()

    def last(self, most: int) -> list[Batch]:
        found = sorted(self._found.values(), key=lambda each: -each.at_ms)
        return found[:most]

    def rate(self, queue: str, consumer: str) -> float | None:
        now_ms = self._engine.now_ms()
        begin_ms = max(self._since_ms, now_ms - CONSOLE_RATE_OVER_MS)
        if not self._since_ms or now_ms - begin_ms < CONSOLE_RATE_OVER_MS_MIN:
            return None
        rows = sum(
            each.rows
            for each in self._found.values()
            if each.queue == queue and each.consumer == consumer and each.at_ms >= begin_ms
        )
        return rows * 1000 / (now_ms - begin_ms)

    def _count(self, event: Event, known: set[tuple[str, str]]) -> None:
        if event.kind is not EventKind.ACKED or (event.queue, event.consumer) not in known:
            return
        self._since_ms = min(self._since_ms, event.at_ms)  # events are told a moment later
        key = (event.queue, event.consumer, event.at_ms)
        took_ms = event.at_ms - event.delivered_ms if event.delivered_ms else 0
        before = self._found.get(key)
        rows = event.count + (before.rows if before is not None else 0)
        self._found[key] = Batch(event.at_ms, event.queue, event.consumer, rows, took_ms)
        if len(self._found) > CONSOLE_BATCHES_KEPT:
            del self._found[next(iter(self._found))]
