"""The actor of `nexo.events`: what the queues tell of a commit is published in that same commit.

It is collected after all queues, has no bound queues, and tells nothing of itself, so there is no
end to wait for. Nothing is told that is not on disk. A broker with thousands of commits a second
tells of several at once: events wait a few milliseconds if others were told just now, since each
publication costs a row and a record. They also wait, up to a limit, while the disk takes no
payloads. What waits in memory is lost in a crash, and what is beyond a limit is dropped and
counted: then a change is not told of, never the other way round.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from nexo.engine.clock import Timer
from nexo.engine.committer import EVENTS_RANK
from nexo.engine.topic_actor import TopicActor
from nexo.machine import topic as rules
from nexo.vocabulary import limits
from nexo.vocabulary.events import batch_of_events
from nexo.vocabulary.limits import (
    EVENTS_PENDING_MAX,
    EVENTS_PUBLISHED_MAX,
    EVENTS_RESIDENT_BYTES,
    EVENTS_SHARD_DUE_MS,
    EVENTS_SHARD_PAUSE_MS,
    LAZY_COMMIT_MS,
)
from nexo.vocabulary.names import events_shard

if TYPE_CHECKING:
    from nexo.engine.committer import Draft
    from nexo.engine.context import Context
    from nexo.engine.topics import Topics
    from nexo.machine.queue import Queue
    from nexo.vocabulary.errors import NexoError
    from nexo.vocabulary.events import Event


class _Mark(NamedTuple):
    end: int
    paid: int  # how many of the owed events are in this commit


class EventsActor(TopicActor):
    def __init__(self, context: Context, owner: int, topic: rules.Topic) -> None:
        super().__init__(context, owner, topic, EVENTS_RANK)
        self._is_of_shard = events_shard(topic.name) is not None
        self._due_ms = EVENTS_SHARD_DUE_MS if self._is_of_shard else LAZY_COMMIT_MS
        self._told: list[Event] = []  # of the commit that is being collected or written
        self._late: list[Event] = []  # of the next one
        self._owed: list[Event] = []  # of earlier commits: true, and not told yet
        self._paying = (0, 0)  # the offset and the number of those owed that are being written
        self._published_ms = 0
        self._is_due = False  # those that are owed are not to wait any longer
        self._reminder = Timer(context.clock, self.hurry)

    def tell(self, events: list[Event]) -> None:
        """A queue has done this since the last commit."""
        self._told += events
        self._committer.teller = self
        if not self._must_wait(self._now_ms()):
            self._committer.enlist(self)

    def tell_late(self, events: list[Event]) -> None:
        """The same from outside of a commit: one may be running that these are not part of."""
        self._late += events
        self._is_due = True
        self._committer.enlist(self)

    def landed(self) -> None:
        """A commit is on disk, and what it did and did not tell is owed from now on."""
        if self._told:
            self._owed += self._told
            self._told = []
            if len(self._owed) > EVENTS_PENDING_MAX:
                self._drop_oldest()
            if self._context.refusal is None:
                self._reminder.at(self._published_ms + self._due_ms)

    def _drop_oldest(self) -> None:
        """Those who follow have the least use for them."""
        beyond = len(self._owed) - EVENTS_PENDING_MAX
        del self._owed[:beyond]
        self._context.meters.events_dropped += beyond

    @property
    def waiting(self) -> int:
        """How many events wait in memory; a crash loses them."""
        return len(self._told) + len(self._late) + len(self._owed)

    @property
    def is_behind(self) -> bool:
        """Whether something is on disk and not told."""
        return bool(self._owed or self._late)

    def hurry(self) -> None:
        """Tell now what has waited."""
        if self.is_behind:
            self._is_due = True
            self._committer.enlist(self)

    def collect(self, draft: Draft) -> _Mark:
        now_ms = self._now_ms()
        if self._must_wait(now_ms):
            return _Mark(super().collect(draft), 0)
        # What is too much for one step is told with the next commits, the oldest first.
        paid = self._owed[:EVENTS_PUBLISHED_MAX]
        late, self._late = _cut(self._late, EVENTS_PUBLISHED_MAX - len(paid))
        told, self._told = _cut(self._told, EVENTS_PUBLISHED_MAX - len(paid) - len(late))
        self._paying = (self.topic.log.end, len(paid))
        if events := paid + late + told:
            rules.publish(self.topic, batch_of_events(events), now_ms)
        self._published_ms, self._is_due = now_ms, False
        self._reminder.cancel()  # else it would call for a commit of a few events
        return _Mark(super().collect(draft), len(paid))

    def settle(self, mark: Any) -> None:
        del self._owed[: mark.paid]
        self._paying = (self.topic.log.end, 0)
        super().settle(mark.end)
        self._forget_old()
        if self.is_behind and self._context.refusal is None:
            self._reminder.at(self._published_ms + self._pause_ms)

    def adopt(self, topic: rules.Topic) -> None:
        """What was told of a state that was given up did not happen. What is owed still is, unless
        the commit that failed turns out to have happened."""
        offset, paid = self._paying
        if topic.log.end > offset:
            del self._owed[:paid]
        self._told, self._late, self._paying = [], [], (topic.log.end, 0)
        super().adopt(topic)

    def suspend(self, error: NexoError) -> None:
        self._reminder.cancel()
        super().suspend(error)

    def close(self, gone: NexoError) -> None:
        self._reminder.cancel()
        super().close(gone)

    @property
    def _pause_ms(self) -> int:
        return EVENTS_SHARD_PAUSE_MS if self._is_of_shard else limits.EVENTS_PAUSE_MS

    def _must_wait(self, now_ms: int) -> bool:
        """For a disk that takes no payloads, or because others were told just now. Not for a node
        to renew its lease: nothing is given out here, and every commit has its fence."""
        if self._context.refusal is not None or self._gone is not None:
            return True
        is_soon = now_ms < self._published_ms + self._pause_ms and not self._is_due
        return is_soon and len(self._owed) + len(self._told) < EVENTS_PUBLISHED_MAX

    def _forget_old(self) -> None:
        """Most of it is read once, by those who follow it; the rest is read back from the disk."""
        log = self.topic.log
        if log.resident_bytes > EVENTS_RESIDENT_BYTES:
            for chunk in list(log.resident.values()):
                if log.evictable(chunk):
                    log.evict(chunk)
                if log.resident_bytes <= EVENTS_RESIDENT_BYTES:
                    break


def _cut(events: list[Event], count: int) -> tuple[list[Event], list[Event]]:
    """The first of these, and the others."""
    return events[:count], events[count:]


def tell_or_not(queue: Queue, topics: Topics) -> None:
    """Begin or end to tell the life of a queue's messages, as its settings say."""
    if topics.tells_events and queue.settings.events:
        queue.events = [] if queue.events is None else queue.events
    elif queue.events is not None:
        if queue.events and topics.tells_events:  # what happened before it was switched off
            topics.publish_events(queue.events, late=True)
        queue.events = None
