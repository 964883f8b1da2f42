"""Queues and topics of one journal into others, state for state: of a broker that does not run
into the shards of a cluster.

What a journal holds of a queue is its snapshot, the records since, and the rows of its payloads.
Here all of it is loaded as at a start, the numbers of owners and rows are changed to free ones of
the target, and a snapshot of each is written: ids, order, attempts, delays, leases, deduplication
and totals are what they were. Payloads are copied as they are, and before anything refers to them;
the commit that does so is for the caller to write, together with those of the other targets.

Lease numbers carry the boot epoch of a journal. So that none ever stands for two deliveries, the
epoch of a target must be beyond that of the source.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

import msgspec

from nexo.engine.recovery import Recovered, recover, rows_of
from nexo.engine.transfers import TRANSFER_SETTINGS, bound_name
from nexo.journal.port import CATALOG, Commit, Write
from nexo.machine.catalog import CatalogImage
from nexo.machine.chunk import PackedRows
from nexo.machine.snapshot import QueueSnapshot, TopicSnapshot
from nexo.machine.topic import Topic
from nexo.vocabulary.changes import QueueDefined
from nexo.vocabulary.errors import InvalidArgument
from nexo.vocabulary.limits import LEASE_BITS, TRANSPLANT_BYTES, TRANSPLANT_ROWS
from nexo.vocabulary.names import EVENTS_TOPIC, is_events

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from nexo.journal.port import Journal
    from nexo.machine.catalog import Catalog
    from nexo.machine.queue import Queue
    from nexo.vocabulary.batch import Batch
    from nexo.vocabulary.changes import Bound, TokenDefined, TopicDefined

    Defined = QueueDefined | TopicDefined

_STEP_ENTRIES = 100_000
_ENDED = ("COMPLETED", "CANCELLED", "FAILED")


class Source:
    """A journal that nothing else has open. Only its boot epoch is changed."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.epoch = journal.open()
        self._found = load_whole(journal, self.epoch)

    @property
    def catalog(self) -> Catalog:
        return self._found.catalog

    def state_of(self, defined: Defined) -> Queue | Topic:
        known: dict[int, Queue] | dict[int, Topic] = self._found.queues
        return known[defined.owner] if defined.owner in known else self._found.topics[defined.owner]

    def names(self) -> list[str]:
        """Of all that moves. What was told of the life of messages does not: it is another's."""
        catalog = self.catalog
        return [*catalog.queues, *(name for name in catalog.topics if not is_events(name))]

    def tokens_alone(self) -> bytes:
        """A snapshot of a catalog with the same tokens and nothing else."""
        return msgspec.msgpack.encode(CatalogImage(tokens=dict(self.catalog.tokens)))

    def check(self) -> None:
        """Refuse what would be forgotten on the way."""
        moves = self.catalog.moves.values()
        running = [each for each in moves if each.status not in _ENDED]
        if running:
            raise InvalidArgument(
                f"{len(running)} redrives are under way",
                "start the broker and let them end, or cancel them, then stop it and try again",
            )

    def bindings(self) -> Iterator[tuple[TopicDefined, QueueDefined, Bound]]:
        queues = {each.owner: each for each in self.catalog.queues.values()}
        for topic in self.catalog.topics.values():
            for bound in self.catalog.bound_to(topic.owner):
                yield topic, queues[bound.queue], bound


class Transplant:
    """What of a source goes into one journal, which is open."""

    def __init__(
        self,
        source: Source,
        journal: Journal,
        epoch: int,
        names: set[str],
        new_incarnation: Callable[[], int],
    ) -> None:
        self._source, self._journal = source, journal
        self._new_incarnation = new_incarnation
        self._target = load_whole(journal, epoch)
        self._shift = journal.last_row()
        known = source.catalog
        self._queues = [known.queues[name] for name in known.queues if name in names]
        self._topics = [
            known.topics[name] for name in known.topics if name in names and name != EVENTS_TOPIC
        ]
        self._all: list[Defined] = [*self._queues, *self._topics]
        self.tokens: dict[str, TokenDefined] = {}

    def check(self) -> None:
        """Refuse if a name is taken."""
        catalog = self._target.catalog
        taken = [each.name for each in self._queues if each.name in catalog.queues]
        taken += [each.name for each in self._topics if each.name in catalog.topics]
        taken += [
            f"token {name}"
            for name, token in self.tokens.items()
            if catalog.tokens.get(name, token) != token
        ]
        if taken:
            raise InvalidArgument(
                f"the cluster has these already: {', '.join(taken[:10])}"
                + (f" and {len(taken) - 10} more" if len(taken) > 10 else ""),
                "delete them there, or import into another cluster; nothing was changed",
            )

    @property
    def all_tokens(self) -> dict[str, TokenDefined]:
        """Those of the target as well."""
        return {**self._target.catalog.tokens, **self.tokens}

    def held_rows(self) -> set[int]:
        """The rows that the target itself refers to."""
        return {row for rows in self._target.held_rows for row in rows}

    def rows(self) -> list[int]:
        """The rows to copy, by their numbers in the source."""
        states = map(self._source.state_of, self._all)
        return sorted({row for state in states for rows in rows_of(state) for row in rows})

    def copy(self, rows: list[int]) -> Iterator[int]:
        """Write payloads, a part at a time; yields how many rows it were."""
        for at in range(0, len(rows), TRANSPLANT_ROWS):
            some = rows[at : at + TRANSPLANT_ROWS]
            batches = self._source.journal.fetch(some)
            part: list[tuple[int, Batch]] = []
            size = 0
            for row, batch in zip(some, batches, strict=True):
                part.append((row + self._shift, batch))
                size += len(batch.payload)
                if size >= TRANSPLANT_BYTES:
                    self._write(part)
                    yield len(part)
                    part, size = [], 0
            if part:
                self._write(part)
                yield len(part)

    def _write(self, rows: list[tuple[int, Batch]]) -> None:
        self._journal.commit(Commit([], rows, [], []))

    def commit(self) -> Commit:
        """What makes all of it part of the target."""
        image = self._target.catalog.image()
        numbers = count(image.next_owner)
        owners: dict[int, int] = {}
        writes: list[Write] = []
        for defined in self._all:
            state = self._source.state_of(defined)
            self._renumber(state)
            owners[defined.owner] = owner = next(numbers)
            writes.append(Write(owner, b"", _snapshot(state)))
        for queue in self._queues:
            image.queues[queue.name] = msgspec.structs.replace(queue, owner=owners[queue.owner])
        for topic in self._topics:
            image.topics[topic.name] = msgspec.structs.replace(topic, owner=owners[topic.owner])
        for of_topic, of_queue, bound in self._source.bindings():
            if of_topic.owner in owners:
                queue_owner = owners.get(of_queue.owner)
                if queue_owner is None:
                    queue_owner = self._stand_in(of_queue, image, numbers)
                image.bindings.append(
                    msgspec.structs.replace(bound, topic=owners[of_topic.owner], queue=queue_owner)
                )
        image.tokens |= self.tokens
        image.next_owner = next(numbers)
        writes.append(Write(CATALOG, b"", msgspec.msgpack.encode(image)))
        return Commit(writes, [], [], [])

    def _stand_in(
        self, elsewhere: QueueDefined, image: CatalogImage, numbers: Iterator[int]
    ) -> int:
        """The owner number of what stands here for a queue that goes into another journal."""
        name = bound_name(elsewhere.name, elsewhere.incarnation)
        if name not in image.queues:
            image.queues[name] = QueueDefined(
                next(numbers),
                name,
                self._new_incarnation(),
                TRANSFER_SETTINGS,
                elsewhere.created_ms,
                elsewhere.created_ms,
            )
        return image.queues[name].owner

    def retire(self, names: Iterable[str]) -> None:
        """Dead-letter queues that were deleted, and are not to come back by themselves."""
        self._target.catalog.retired |= dict.fromkeys(names)

    @property
    def figures(self) -> tuple[int, int, int]:
        """Queues, topics, and messages in both."""
        messages = 0
        for state in map(self._source.state_of, self._all):
            messages += state.log.end - state.start if isinstance(state, Topic) else state.depth
        return len(self._queues), len(self._topics), messages

    def _renumber(self, state: Queue | Topic) -> None:
        logs = [state.log] if isinstance(state, Topic) else [lane.log for lane in state.lanes]
        for log in logs:
            for chunk in log.chunks.values():
                moved = [row + self._shift for row in chunk.rows]
                chunk.rows = PackedRows(moved) if isinstance(chunk.rows, PackedRows) else moved


def load_whole(journal: Journal, epoch: int) -> Recovered:
    """Everything that an open journal holds but payloads."""
    return recover(journal, count(journal.last_row() + 1), epoch << LEASE_BITS | 1)


def _snapshot(state: Queue | Topic) -> bytes:
    making = TopicSnapshot(state) if isinstance(state, Topic) else QueueSnapshot(state)
    while not making.is_done:
        making.step(_STEP_ENTRIES)
    return bytes(making.encoded)
