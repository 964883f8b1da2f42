"""A queue as anyone would first write it: a record a message, and every command a loop over them.

Nothing here is clever, and nothing is shared with the rules but the words: that is what makes it
worth comparing with them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from nexo.vocabulary.states import State

if TYPE_CHECKING:
    from fractions import Fraction

    from nexo.vocabulary.batch import Origin
    from nexo.vocabulary.settings import QueueSettings

IN_FLIGHT = (
    State.SENT,
    State.RECEIVED,
    State.CLAIMED,
    State.SEALED,
    State.DOOMED,
    State.MOVING,
)
LANE = 1 << 48  # a sequence number is the priority times this, plus a counter


@dataclass
class Item:
    """One message, and everything that is known of it."""

    seq: int
    body: bytes
    created: int
    arrived: int  # a shared message was created when it was published, and arrives later
    group: str | None
    deduplication_id: str | None
    attributes: bytes | None
    origin: Origin | None
    state: State = State.READY
    settled: bool = False
    due: int = 0
    was_due: int = 0  # that its time came is not journaled: a restart may not know it yet
    due_latest: int = 0  # a backoff with jitter promises a window, not a time
    attempts: int = 0
    first_delivered: int = 0
    first_failed: int = 0
    lease: int = 0
    deadline: int = 0
    visibility: int = 0
    consumer: str = ""
    reason: str = ""

    @property
    def priority(self) -> int:
        return self.seq // LANE

    @property
    def size(self) -> int:
        """What it counts for where a number of bytes is asked for."""
        ids = sum(len(each.encode()) for each in (self.group, self.deduplication_id) if each)
        origin = 0
        if self.origin is not None:
            fate = self.origin.dead_letter
            origin = 100 + (len(fate.reason.encode()) if fate is not None else 0)
        return len(self.body) + len(self.attributes or b"") + ids + origin


@dataclass
class ClaimedBatch:
    lease: int
    sealed: bool = False
    lapsed: bool = False


@dataclass
class Consumer:
    epoch: int = 0
    acked_through: int = 0
    batches: dict[int, ClaimedBatch] = field(default_factory=dict)


@dataclass
class Commit:
    """What a commit on its way to the disk will make visible, and which groups it opens."""

    ends: dict[int, int]
    landed: set[tuple[str | None, int]]


@dataclass
class Model:
    settings: QueueSettings
    now: int = 0
    paused: bool = False
    items: dict[int, Item] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)  # priority → next number
    keys: dict[str, tuple[int, int]] = field(default_factory=dict)  # → end of window, seq
    producers: dict[str, dict[int, list[int]]] = field(default_factory=dict)
    consumers: dict[str, Consumer] = field(default_factory=dict)
    landed: set[tuple[str | None, int]] = field(default_factory=set)  # since the last commit
    commits: list[Commit] = field(default_factory=list)
    totals: Counter[str] = field(default_factory=Counter)
    tokens: Fraction | None = None  # None: nothing was ever asked for
    tokens_at: int = 0

    def copy(self) -> Model:
        return replace(
            self,
            items={seq: replace(item) for seq, item in self.items.items()},
            ends=dict(self.ends),
            keys=dict(self.keys),
            producers={name: dict(answers) for name, answers in self.producers.items()},
            consumers={
                name: replace(c, batches={n: replace(b) for n, b in c.batches.items()})
                for name, c in self.consumers.items()
            },
            landed=set(self.landed),
            commits=[Commit(dict(c.ends), set(c.landed)) for c in self.commits],
            totals=Counter(self.totals),
        )

    def advance(self, now: int) -> int:
        self.now = max(self.now, now)
        return self.now

    def of_lease(self, lease: int) -> list[Item]:
        return [item for item in self.items.values() if lease and item.lease == lease]

    def in_state(self, *states: State) -> list[Item]:
        return [item for item in self.items.values() if item.state in states]

    def land(self, item: Item) -> None:
        """No longer in flight; a FIFO group stays locked until that is on disk."""
        item.lease = item.deadline = 0
        item.consumer = ""
        if self.settings.fifo:
            self.landed.add((item.group, item.seq))

    def remove(self, item: Item) -> None:
        del self.items[item.seq]

    # -- Commits ------------------------------------------------------------------------------

    def collect(self) -> None:
        self.commits.append(Commit(dict(self.ends), self.landed))
        self.landed = set()

    def settle(self) -> None:
        commit = self.commits.pop(0)
        for item in self.items.values():
            if item.seq < commit.ends.get(item.priority, 0):
                item.settled = True

    def locked(self) -> dict[str | None, int]:
        """The groups of a FIFO queue of which something is in flight, as far as the disk knows,
        and the first of that: nothing from it on may be delivered now."""
        flying = {(item.group, item.seq) for item in self.in_state(*IN_FLIGHT)}
        flying = flying.union(self.landed, *(commit.landed for commit in self.commits))
        first: dict[str | None, int] = {}
        for group, seq in flying:
            first[group] = min(seq, first.get(group, seq))
        return first

    def restart(self, now: int) -> None:
        """What a crash leaves of a state that was on disk: an image and a revival of it."""
        self.now = now
        self.commits, self.landed, self.tokens = [], set(), None
        for item in self.items.values():
            item.settled = True
            if item.state is State.MOVING:
                item.state, item.lease = State.READY, 0
            elif item.state is State.DOOMED:
                item.state = State.RECEIVED  # overdue, so it is doomed again
            if item.state is State.READY and item.was_due > now:
                item.state, item.due, item.was_due = State.SCHEDULED, item.was_due, 0
            elif item.state is State.SCHEDULED and item.due <= now:
                item.state, item.due, item.was_due = State.READY, 0, item.due

    # -- An operator --------------------------------------------------------------------------

    def purge(self, now: int) -> int:
        self.advance(now)
        count = len(self.items)
        self.items.clear()
        self.landed.clear()
        self.keys.clear()
        for commit in self.commits:
            commit.landed.clear()
        for consumer in self.consumers.values():
            for batch in consumer.batches.values():
                batch.lease = 0
        return count
