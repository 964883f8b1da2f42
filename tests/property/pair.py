"""A queue of the rules and the model of it, side by side, with a journal that keeps both lives.

`both` runs a command on each and compares the answers; `check` compares everything that is known
of every message. A commit compares the living queue with the one that the journal's records bring
back, and with a snapshot that is finished; that may have taken several commits. A crash throws the
living queue away and goes on with the one that was brought back.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING, Any

import msgspec

from nexo.machine import invariants
from nexo.machine.apply import apply
from nexo.machine.groups import END
from nexo.machine.image import Image, decode_image, encode_image, image_of
from nexo.machine.queue import Queue
from nexo.machine.settle import collect, settle, sort_groups
from nexo.machine.snapshot import QueueSnapshot, load_snapshot
from nexo.vocabulary.batch import concatenate
from nexo.vocabulary.changes import decode_queue_changes, encode_changes
from nexo.vocabulary.errors import NexoError
from nexo.vocabulary.limits import LEASE_BITS
from nexo.vocabulary.states import State
from tests.engine.rig import comparable
from tests.property.model.state import Model
from tests.property.plain import differences, plain, seen

if TYPE_CHECKING:
    from collections.abc import Callable

    from nexo.machine.chunk import Chunk
    from nexo.machine.settle import Mark
    from nexo.vocabulary.batch import Batch
    from nexo.vocabulary.changes import QueueChange
    from nexo.vocabulary.settings import QueueSettings

INCARNATION = 0x0123_4567_89AB_CDEF
NAME = "orders"


@dataclass
class Point:
    """What is on disk after a commit: a snapshot, the records since then, and the rows."""

    snapshot: bytes
    records: list[list[QueueChange]]
    rows: dict[int, Batch]
    model: Model
    mark: Mark | None


class Pair:
    def __init__(self, settings: QueueSettings) -> None:
        self.row_numbers = count(1)
        self.boots = 1
        self.queue = Queue(NAME, settings, INCARNATION, self.row_numbers, 1 << LEASE_BITS)
        self.model = Model(settings)
        self.on_disk = Point(encode_image(Image()), [], {}, self.model.copy(), None)
        self.under_way: list[Point] = []
        self.making: QueueSnapshot | None = None

    # -- Comparing ----------------------------------------------------------------------------

    def both(self, act: Callable[[], Any], expect: Callable[[], Any]) -> tuple[Any, Any]:
        """Run a command on both. A refusal must be the same on both: then the answers are None."""
        answers: list[Any] = []
        refusals: list[type[NexoError] | None] = []
        for command in (act, expect):
            try:
                answers.append(command())
                refusals.append(None)
            except NexoError as error:
                answers.append(None)
                refusals.append(type(error))
        names = [refusal.__name__ if refusal else "no refusal" for refusal in refusals]
        assert refusals[0] == refusals[1], f"the rules say {names[0]}, the model {names[1]}"
        if refusals[0] is not None:  # whether a refused command counts as seeing the time is free
            assert self.queue.now_ms <= self.model.now
            self.model.now = self.queue.now_ms
        return answers[0], answers[1]

    def check(self) -> None:
        queue, model = self.queue, self.model
        invariants.check(queue)
        found = seen(queue)
        self._adopt_jitter(found)
        expected = {seq: plain(item) for seq, item in model.items.items()}
        assert found == expected, differences(found, expected)
        states = [item.state for item in model.items.values()]
        counts = {
            "depth": len(states),
            "ready": states.count(State.READY),
            "scheduled": states.count(State.SCHEDULED),
            "in_flight": len(states) - states.count(State.READY) - states.count(State.SCHEDULED),
        }
        counted = {
            "depth": queue.depth,
            "ready": queue.ready,
            "scheduled": queue.scheduled_count,
            "in_flight": queue.in_flight,
        }
        assert counted == counts, differences(counted, counts)
        totals = {name: getattr(queue.totals, name) for name in queue.totals.__slots__}
        wanted = {name: model.totals[name] for name in totals}
        assert totals == wanted, differences(totals, wanted)
        assert queue.now_ms == model.now, f"the queue's time is {queue.now_ms}, not {model.now}"

    def _adopt_jitter(self, found: dict[int, dict[str, Any]]) -> None:
        """A backoff with jitter may end anywhere in its window; the model takes what was chosen."""
        for item in self.model.items.values():
            if not item.due_latest:
                continue
            got = found.get(item.seq, {}).get("due", 0)
            if not got and item.due <= self.model.now:
                item.state, item.due = State.READY, 0  # the shortest wait was none
            else:
                window = f"{item.due} to {item.due_latest}"
                assert item.due <= got <= item.due_latest, f"{item.seq} is due {got}, not {window}"
                item.due = got
            item.due_latest = 0

    # -- Commits and crashes ------------------------------------------------------------------

    @property
    def newest(self) -> Point:
        return self.under_way[-1] if self.under_way else self.on_disk

    def begin_commit(self, entries: int = 0) -> None:
        """Collect what changed, as the journal gets it, and see that it tells the whole story.
        With `entries` a snapshot begins, or goes on by so many; else it goes on by a few."""
        collected = collect(self.queue)
        self.model.collect()
        before = self.newest
        record = decode_queue_changes(encode_changes(collected.changes))
        records = [*before.records, record]
        recovered = self._recovered(before.snapshot, records)
        assert recovered.now_ms <= self.queue.now_ms, "the journal is ahead of the queue"
        _check_same(self.queue, recovered)
        rows = before.rows | dict(collected.rows)
        for row in collected.dropped_rows:
            assert row in rows, f"row {row} is dropped and was never written"
            del rows[row]
        lanes = self.queue.lanes
        needed = {r for lane in lanes for chunk in lane.log.chunks.values() for r in chunk.rows}
        assert set(rows) == needed, f"rows on disk {sorted(rows)}, needed {sorted(needed)}"
        taken = self._snapshot(record, entries)
        if taken is not None:
            _check_same(self.queue, self._recovered(taken, []))
        base, records = (taken, []) if taken is not None else (before.snapshot, records)
        self.under_way.append(Point(base, records, rows, self.model.copy(), collected.mark))

    def _snapshot(self, record: list[QueueChange], entries: int) -> bytes | None:
        if self.making is not None:
            self.making.note(record)
        elif entries:
            self.making = QueueSnapshot(self.queue)
        else:
            return None
        self.making.step(entries or 3)
        if not self.making.is_done:
            return None
        taken, self.making = bytes(self.making.encoded), None
        return taken

    def end_commit(self) -> None:
        """The oldest commit under way is on disk."""
        self.on_disk = self.under_way.pop(0)
        assert self.on_disk.mark is not None
        settle(self.queue, self.on_disk.mark)
        self.model.settle()

    def sort(self) -> None:
        """What came in goes to its groups, as the engine sees to before it says that nothing is
        there."""
        while sort_groups(self.queue):
            pass

    def commit(self, entries: int = 0) -> None:
        self.begin_commit(entries)
        while self.under_way:
            self.end_commit()

    def crash(self, commits_lost: int) -> None:
        """Go on with what is on disk. The last commits under way may have got there or not."""
        reached = [self.on_disk, *self.under_way]
        point = reached[max(0, len(reached) - 1 - commits_lost)]
        self.boots += 1
        self.making = None
        self.queue = self._recovered(point.snapshot, point.records)
        assert not self.queue.dropped_rows, "a revived queue has dead chunks"
        self.model = point.model.copy()
        self.model.restart(self.queue.now_ms)
        self.under_way = []
        self.on_disk = replace(point, model=self.model.copy(), mark=None)
        # A snapshot of what was recovered must say the same as what it was recovered from.
        _check_same(self.queue, self._recovered(encode_image(image_of(self.queue)), []))

    def _recovered(self, snapshot: bytes, records: list[list[QueueChange]]) -> Queue:
        """A new queue, brought to what the journal says."""
        settings, first_lease = self.queue.settings, self.boots << LEASE_BITS
        queue = Queue(NAME, settings, INCARNATION, self.row_numbers, first_lease)
        load_snapshot(queue, snapshot)
        apply(queue, records)
        invariants.check(queue)
        if queue.busy is not None:  # no commit is under way that could hold a group
            held = [queue.on_lease(lease, 0, END) for lease in queue.leases]
            flying: Counter[str | None] = Counter()
            for span in (span for spans in held for span in spans):
                flying[span.group] += span.end - span.first
            assert queue.busy.counts == flying, "a group is locked for nothing"
        return queue

    # -- Content that leaves memory -----------------------------------------------------------

    def times(self) -> dict[int, int]:
        """From when retention counts for each message."""
        found = {seq: item.arrived for seq, item in self.model.items.items()}
        for lane in self.queue.lanes:
            for chunk in lane.log.chunks.values():
                for seq in range(chunk.first, chunk.end) if chunk.content is None else ():
                    assert chunk.created_last_ms >= found.get(seq, 0), f"{seq} came later"
                    found[seq] = chunk.created_last_ms
        return found

    def evict(self) -> None:
        """Drop every content from memory that is on disk."""
        for lane in self.queue.lanes:
            for chunk in lane.log.chunks.values():
                if lane.log.evictable(chunk) and set(chunk.rows) <= set(self.newest.rows):
                    lane.log.evict(chunk)

    def read_back(self, chunk: Chunk) -> None:
        """The content of a chunk from its rows, as the journal returns it."""
        content = concatenate([self.newest.rows[row] for row in chunk.rows])
        held = chunk.end - chunk.first if chunk.seqs is None else len(chunk.seqs)
        log = self.queue.lane_of(chunk.first).log
        log.restore(chunk, content.slice(chunk.row_start, chunk.row_start + held))


def _check_same(living: Queue, recovered: Queue) -> None:
    """Two queues say the same, but for what depends on when a queue last looked at its clock."""
    one, other = (_normal(queue, living.now_ms) for queue in (living, recovered))
    for name in one:
        assert one[name] == other[name], (
            f"{name} differs:\n  living: {one[name]}\n  recovered: {other[name]}"
        )


def _normal(queue: Queue, now_ms: int) -> dict[str, Any]:
    """An image without the freedom of its encoding: columns written out, chunks in order."""
    image = decode_image(encode_image(image_of(queue)))
    for chunk in image.chunks:
        if not isinstance(chunk.groups, list):
            chunk.groups = [chunk.groups] * (chunk.end - chunk.first)
    fields: dict[str, Any] = msgspec.to_builtins(comparable(image, now_ms))
    return fields
