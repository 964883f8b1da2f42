"""A queue of the rules and the model of it, side by side, with a journal that keeps both lives.

`both` runs a command on each and compares the answers; `check` compares everything that is known
of every message. A commit compares the image of the living queue with the image that the journal's
records fold to, and a snapshot that is finished with both; it may have taken several commits. A
crash throws the living queue away and goes on with the revived one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING, Any

import msgspec

from nexo.machine import invariants
from nexo.machine.fold import fold
from nexo.machine.image import Image, decode_image, encode_image, image_of, revive
from nexo.machine.queue import Queue
from nexo.machine.settle import collect, settle
from nexo.machine.snapshot import QueueSnapshot, read_snapshot
from nexo.vocabulary.batch import concatenate
from nexo.vocabulary.changes import decode_queue_changes, encode_changes
from nexo.vocabulary.errors import NexoError
from nexo.vocabulary.limits import LEASE_BITS
from nexo.vocabulary.states import State
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
        live = encode_image(image_of(self.queue))
        folded = fold(read_snapshot(before.snapshot), records)
        assert folded.now_ms <= self.queue.now_ms, "the journal is ahead of the queue"
        _check_same(decode_image(live), folded)
        rows = before.rows | dict(collected.rows)
        for row in collected.dropped_rows:
            assert row in rows, f"row {row} is dropped and was never written"
            del rows[row]
        lanes = self.queue.lanes
        needed = {r for lane in lanes for chunk in lane.log.chunks.values() for r in chunk.rows}
        assert set(rows) == needed, f"rows on disk {sorted(rows)}, needed {sorted(needed)}"
        taken = self._snapshot(record, entries)
        if taken is not None:
            _check_same(decode_image(live), read_snapshot(taken))
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
        self.queue = Queue(
            NAME, self.model.settings, INCARNATION, self.row_numbers, self.boots << LEASE_BITS
        )
        revive(self.queue, fold(read_snapshot(point.snapshot), point.records))
        assert not self.queue.dropped_rows, "a revived queue has dead chunks"
        self.model = point.model.copy()
        self.model.restart(self.queue.now_ms)
        self.under_way = []
        self.on_disk = replace(point, model=self.model.copy(), mark=None)
        # Folding the same records once more must find what was revived, whatever it has dropped.
        revived = decode_image(encode_image(image_of(self.queue)))
        _check_same(revived, fold(read_snapshot(point.snapshot), point.records))

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


def _check_same(live: Image, folded: Image) -> None:
    """Two images say the same. What is due by now and what is forgotten by now depends on when
    the queue last looked at its clock, so both are brought to the same time first."""
    folded.now_ms = live.now_ms
    one, other = (_normal(fold(image, [])) for image in (live, folded))
    for name in one:
        assert one[name] == other[name], (
            f"{name} differs:\n  living: {one[name]}\n  folded: {other[name]}"
        )


def _normal(image: Image) -> dict[str, Any]:
    """An image without the freedom of its encoding: columns written out, chunks in order."""
    image.chunks.sort(key=lambda chunk: chunk.first)
    for chunk in image.chunks:
        size = chunk.end - chunk.first
        if not isinstance(chunk.groups, list):
            chunk.groups = [chunk.groups] * size
    fields: dict[str, Any] = msgspec.to_builtins(image)
    return fields
