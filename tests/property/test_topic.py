"""The rules of a topic against a plain list: offsets, reading, retention, and crashes."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TYPE_CHECKING

import msgspec
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from nexo.machine import bind as binding
from nexo.machine import settle
from nexo.machine import topic as rules
from nexo.machine.apply import apply, apply_to_topic
from nexo.machine.image import image_of, image_of_topic, revive_topic
from nexo.machine.log import Place
from nexo.machine.pop import messages, pop
from nexo.machine.queue import Queue
from nexo.machine.snapshot import TopicSnapshot, read_topic_snapshot
from nexo.vocabulary.attributes import encode_attributes
from nexo.vocabulary.batch import TIME_TYPE, batch_of, concatenate
from nexo.vocabulary.changes import (
    TopicChange,
    decode_queue_changes,
    decode_topic_changes,
    encode_changes,
)
from nexo.vocabulary.errors import OffsetExpired
from nexo.vocabulary.limits import POP_BYTES_MAX
from nexo.vocabulary.settings import QueueSettings, TopicSettings
from tests.property.draws import BODIES, marked
from tests.property.small import PRODUCER_RESULTS_KEPT
from tests.property.test_queue import LIVES, LONG_LIVES, SHRINKING

if TYPE_CHECKING:
    from nexo.machine.chunk import Chunk
    from nexo.machine.log import Log
    from nexo.machine.pop import Part
    from nexo.vocabulary.batch import Batch
    from nexo.vocabulary.changes import TopicChange

SETTINGS = st.builds(
    TopicSettings,
    retention_messages=st.sampled_from([None, 1, 5, 12]),
    retention_ms=st.sampled_from([None, None, 1_000]),
    retention_bytes=st.sampled_from([None, 1, 40, 150]),
)


@dataclass
class Plain:
    """A topic as a list: message N has offset N."""

    messages: list[tuple[bytes, int]] = field(default_factory=list)  # body, published
    start: int = 0
    settled: int = 0
    answers: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)

    def copy(self) -> Plain:
        return replace(self, messages=list(self.messages), answers=dict(self.answers))


@dataclass
class Point:
    """What is on disk after a commit: a snapshot, the records since then, and the rows."""

    snapshot: bytes | None
    records: list[list[TopicChange]]
    rows: dict[int, Batch]
    plain: Plain
    end: int


class TopicSteps(RuleBasedStateMachine):
    @initialize(settings=SETTINGS)
    def begin(self, settings: TopicSettings) -> None:
        self.settings = settings
        self.row_numbers = count(1)
        self.topic = rules.Topic("news", settings, self.row_numbers)
        self.plain = Plain()
        self.on_disk = Point(None, [], {}, Plain(), 0)
        self.making: TopicSnapshot | None = None
        self.under_way: list[Point] = []
        self.now = 1_000
        self.serial = 0
        self.priorities: dict[int, int] = {}  # by offset, of what came from a queue

    # -- Coming in ----------------------------------------------------------------------------

    @rule(
        bodies=st.lists(BODIES, min_size=1, max_size=8),
        producer=st.sampled_from(["", "", "p"]),
        number=st.integers(0, 9),
        durable=st.booleans(),
    )
    def publish(self, bodies: list[bytes], producer: str, number: int, durable: bool) -> None:
        batch = self.batch(bodies)
        got = rules.publish(self.topic, batch, self.now, producer, number)
        known = self.plain.answers.get((producer, number))
        kept = sorted(n for name, n in self.plain.answers if name == producer)
        kept = kept[-PRODUCER_RESULTS_KEPT:]
        if producer and known is not None and number in kept:
            assert got == known, f"the retry was answered {got}, the first time {known}"
        elif producer and len(kept) >= PRODUCER_RESULTS_KEPT and number < kept[0]:
            assert got == (0, 0), f"an old number was answered {got}"
        else:
            first = len(self.plain.messages)
            self.plain.messages += [(body, self.topic.now_ms) for body in batch.bodies()]
            expected = (first, len(self.plain.messages))
            assert got == expected, f"published at {got}, not {expected}"
            if producer:
                self.plain.answers[producer, number] = got
        if durable:
            self.disk("commit")

    @rule(
        bodies=st.lists(BODIES, min_size=1, max_size=8),
        start=st.sampled_from([0, 0, 1]),
        left=st.sampled_from([0, 0, 1]),
        ago=st.sampled_from([None, 0, 1, 3]),
        priority=st.sampled_from([0, 0, 4, 9]),
    )
    def archive(
        self, bodies: list[bytes], start: int, left: int, ago: int | None, priority: int
    ) -> None:
        """From a queue, whose row it shares, or a part of it; the messages keep the times of their
        push, which go back where the next priority begins."""
        latest = max(self.now, self.topic.now_ms)
        times = None
        if ago is not None:
            times = array(TIME_TYPE, [latest - ago] * (len(bodies) - 1) + [latest])
        batch = msgspec.structs.replace(self.batch(bodies), created=times, priority=priority)
        start, stop = (
            (start, batch.count - left) if start + left < batch.count else (0, batch.count)
        )
        row = next(self.row_numbers)
        self.topic.new_rows.append((row, batch))
        part = batch.slice(start, stop)
        place = Place(row, start, part.count == batch.count)
        rules.archive(self.topic, part, place, self.now)
        created = part.created or [self.topic.now_ms] * part.count
        first = len(self.plain.messages)
        self.plain.messages += zip(part.bodies(), created, strict=True)
        self.priorities.update(dict.fromkeys(range(first, first + part.count), priority))

    def batch(self, bodies: list[bytes]) -> Batch:
        """Every third message is red, and its body says so."""
        self.serial += len(bodies)
        reds = [(self.serial + index) % 3 == 0 for index in range(len(bodies))]
        coloured = [b"red" * red + body for red, body in zip(reds, bodies, strict=True)]
        attributes = [encode_attributes({"colour": "red"}) if red else None for red in reds]
        batch = marked(batch_of(coloured), self.serial)
        return msgspec.structs.replace(batch, attributes=attributes if any(reds) else None)

    # -- Reading ------------------------------------------------------------------------------

    @rule(
        back=st.integers(-2, 25),
        wanted=st.sampled_from([1, 3, 100]),
        bytes_max=st.sampled_from([POP_BYTES_MAX, POP_BYTES_MAX, 1, 30]),
        strict=st.booleans(),
    )
    def read(self, back: int, wanted: int, bytes_max: int, strict: bool) -> None:
        plain = self.plain
        offset = max(0, plain.settled - back)
        if strict and offset < plain.start:
            with pytest.raises(OffsetExpired):
                rules.read(self.topic, offset, wanted, bytes_max, strict)
            return
        got = rules.read(self.topic, offset, wanted, bytes_max, strict)
        first = max(offset, plain.start)
        found = [
            (
                part.content.payload[part.content.offsets[at] : part.content.offsets[at + 1]],
                part.content.created[at] if part.content.created is not None else part.created_ms,
            )
            for part in got.parts
            for at in range(part.index, part.index + part.count)
        ]
        expected: list[tuple[bytes, int]] = []
        for message in plain.messages[first : plain.settled][:wanted]:
            size = sum(_size(body) for body, _ in (*expected, message))
            if expected and size > bytes_max:
                break
            expected.append(message)
        if got.missing is not None:
            self.read_back(got.missing)
            expected = expected[: len(found)]
        assert found == expected, f"from {offset}:\n{found}\nexpected:\n{expected}"
        for part in got.parts:
            self.check_priorities(part)
        assert got.next == first + len(found), f"goes on at {got.next}, not {first + len(found)}"

    def check_priorities(self, part: Part) -> None:
        column = part.batch().priority
        shown = [column] * part.count if isinstance(column, int) else list(column)
        offsets = range(part.first, part.first + part.count)
        expected = [self.priorities.get(offset, 0) for offset in offsets]
        assert shown == expected, f"priorities {shown}, not {expected}"

    @rule(ago=st.sampled_from([-5, 0, 1, 50, 400, 2_000]), reads=st.booleans())
    def find_a_time(self, ago: int, reads: bool) -> None:
        """While a content is not in memory, its chunk is all that is known."""
        time = self.now - ago
        times = [published for _, published in self.plain.messages]
        late = [o for o in range(self.plain.start, len(times)) if times[o] >= time]
        exact = late[0] if late else len(times)
        while (chunk := rules.chunk_at(self.topic, time)) is not None and chunk.content is None:
            found = rules.offset_at(self.topic, time)
            assert found == max(chunk.first, self.plain.start) <= exact, f"{time} is at {found}"
            if not reads:
                return
            self.read_back(chunk)
        found = rules.offset_at(self.topic, time)
        assert found == exact, f"{time} is at {found}, not {exact}, and that can be seen"

    # -- Binding ------------------------------------------------------------------------------

    @rule(back=st.integers(0, 25), colour=st.sampled_from([None, "red"]), restarted=st.booleans())
    def bind(self, back: int, colour: str | None, restarted: bool) -> None:
        """A queue gets what is kept from an offset on, in rows that are there already."""
        self.disk("commit")
        where = {"colour": colour} if colour is not None else None
        offset = max(self.plain.settled - back, self.plain.start)
        queue = Queue("bound", QueueSettings(), 1, self.row_numbers, 1)
        for chunk in rules.chunks_from(self.topic, offset):
            if chunk.end > offset:
                if chunk.content is None:
                    self.read_back(chunk)
                runs = binding.runs_of(chunk, offset, where)
                for piece in binding.pieces_of(chunk, runs):
                    binding.push_kept(queue, piece, self.now)
        collected = settle.collect(queue)
        assert not collected.rows, "a payload was written again"
        settle.settle(queue, collected.mark)
        told = [decode_queue_changes(encode_changes(collected.changes))]
        recovered = Queue("bound", QueueSettings(), 1, self.row_numbers, 1)
        apply(recovered, told)
        assert image_of(recovered) == image_of(queue), "the journal tells another story"
        if restarted:
            queue = recovered
        kept = self.plain.messages[offset : self.plain.settled]
        wanted = [(body, at) for body, at in kept if where is None or b"red" in body]
        assert self.taken(queue) == wanted, f"from {offset} with {where}"

    def taken(self, queue: Queue) -> list[tuple[bytes, int]]:
        """Everything that a queue delivers: bodies, and when they were published."""
        found: list[tuple[bytes, int]] = []
        while queue.ready:
            delivery = pop(queue, 100, self.now)
            found += [(each.body, each.created_ms) for each in messages(queue, delivery)]
            if delivery.missing is not None:
                self.read_back(delivery.missing, queue.lane(0).log)
        return found

    # -- Retention ----------------------------------------------------------------------------

    @rule(wait=st.sampled_from([0, 1, 50, 400]), trim=st.booleans())
    def wait(self, wait: int, trim: bool) -> None:
        self.now += wait
        if not trim:
            return
        chunks = [
            (c.first, c.end, c.payload_bytes, c.created_last_ms, c.content is not None)
            for c in self.topic.log.chunks.values()
        ]
        rules.trim(self.topic, self.now)
        least = max(self.plain.start, self.by_count(), self.by_age(chunks))
        start = self.topic.start
        assert least <= start <= self.plain.settled, f"starts at {start}, not {least} or later"
        limit = self.settings.retention_bytes
        if start > least:
            # By bytes whole chunks go, and only while those from there on hold too much.
            kept = [size for first, end, size, _, _ in chunks if end >= start]
            ends = [end for _, end, _, _, _ in chunks]
            assert start in ends, f"{start} lies inside a chunk: {chunks}"
            assert limit is not None, f"starts at {start} although {least} is enough"
            assert sum(kept) > limit, f"{sum(kept)} bytes were no reason to start at {start}"
        self.plain.start = start
        if limit is not None and len(self.topic.log.chunks) > 1:
            oldest = next(iter(self.topic.log.chunks.values()))
            size = self.topic.kept_bytes
            assert size <= limit or oldest.end > self.plain.settled, f"{size} bytes are kept"
        alarm = rules.next_trim_ms(self.topic)
        assert alarm is None or alarm > self.topic.now_ms, f"{alarm} is past"

    def by_count(self) -> int:
        limit = self.settings.retention_messages
        return self.plain.settled - limit if limit is not None else 0

    def by_age(self, chunks: list[tuple[int, int, int, int, bool]]) -> int:
        """Where the first message is that is young enough; a content that is not in memory goes
        or stays as a whole."""
        if self.settings.retention_ms is None:
            return 0
        cutoff = self.topic.now_ms - self.settings.retention_ms
        for first, end, _, created_last, in_memory in chunks:
            if created_last <= cutoff:
                continue
            young = [o for o in range(first, end) if self.plain.messages[o][1] > cutoff]
            return min(self.plain.settled, young[0] if in_memory and young else first)
        return self.plain.settled

    # -- The disk -----------------------------------------------------------------------------

    @rule(
        what=st.sampled_from(["commit", "begin", "end", "crash", "crash", "evict"]),
        entries=st.sampled_from([0, 1, 2, 9]),
    )
    def disk(self, what: str, entries: int = 0) -> None:
        if what in ("commit", "begin"):
            self.begin_commit(entries)
        while self.under_way and what in ("commit", "end"):
            self.on_disk = self.under_way.pop(0)
            rules.settle_topic(self.topic, self.on_disk.end)
            self.plain.settled = self.on_disk.end
            if what == "end":
                break
        if what == "crash":
            self.crash()
        elif what == "evict":
            log = self.topic.log
            for chunk in list(log.chunks.values()):
                if log.evictable(chunk):
                    log.evict(chunk)

    def begin_commit(self, entries: int) -> None:
        """With `entries` a snapshot begins, or goes on by so many; else it goes on by one."""
        rules.flush_topic(self.topic)
        collected = rules.collect_topic(self.topic)
        before = self.under_way[-1] if self.under_way else self.on_disk
        records = [*before.records, decode_topic_changes(encode_changes(collected.changes))]
        self.check_same(self.recovered(before.snapshot, records))
        snapshot, taken = before.snapshot, self.taken_down(collected.changes, entries)
        if taken is not None:
            snapshot, records = taken, []
            self.check_same(self.recovered(snapshot, []))
        rows = before.rows | dict(collected.rows)
        for row in collected.dropped_rows:
            del rows[row]
        needed = {row for chunk in self.topic.log.chunks.values() for row in chunk.rows}
        assert set(rows) == needed, f"rows on disk {sorted(rows)}, needed {sorted(needed)}"
        self.under_way.append(Point(snapshot, records, rows, self.plain.copy(), collected.end))

    def taken_down(self, changes: list[TopicChange], entries: int) -> bytes | None:
        if self.making is not None:
            self.making.note(changes)
        elif entries:
            self.making = TopicSnapshot(self.topic)
        else:
            return None
        self.making.step(entries or 1)
        if not self.making.is_done:
            return None
        taken, self.making = bytes(self.making.encoded), None
        return taken

    def check_same(self, recovered: rules.Topic) -> None:
        live, told = (image_of_topic(each) for each in (self.topic, recovered))
        told.now_ms = live.now_ms
        for name in live.__struct_fields__:
            one, other = getattr(live, name), getattr(told, name)
            assert one == other, f"{name} differs:\n  living: {one}\n  recovered: {other}"

    def recovered(self, snapshot: bytes | None, records: list[list[TopicChange]]) -> rules.Topic:
        """A new topic, brought to what the journal says."""
        topic = rules.Topic("news", self.settings, self.row_numbers)
        if snapshot is not None:
            revive_topic(topic, read_topic_snapshot(snapshot))
        apply_to_topic(topic, records)
        return topic

    def crash(self) -> None:
        point = self.on_disk
        self.making = None
        self.topic = self.recovered(point.snapshot, point.records)
        assert not self.topic.dropped_rows, "a revived topic has dead chunks"
        self.under_way = []
        self.plain = point.plain.copy()
        self.plain.settled = point.end
        self.priorities = {at: each for at, each in self.priorities.items() if at < point.end}
        assert self.topic.log.end == len(self.plain.messages) == point.end
        assert self.topic.start == self.plain.start

    def read_back(self, chunk: Chunk, log: Log | None = None) -> None:
        rows = (self.under_way[-1] if self.under_way else self.on_disk).rows
        content = concatenate([rows[row] for row in chunk.rows])
        if log is None and len(chunk.rows) > 1:
            chunk.note_rows(rows[row].count for row in chunk.rows)
        stop = chunk.row_start + chunk.end - chunk.first
        (log or self.topic.log).restore(chunk, content.slice(chunk.row_start, stop))


def _size(body: bytes) -> int:
    """What a message counts for in a read: red ones have an attribute."""
    return len(body) + (len(encode_attributes({"colour": "red"})) if b"red" in body else 0)


@SHRINKING
def test_rules_agree_with_a_plain_list() -> None:
    run_state_machine_as_test(TopicSteps, settings=LIVES)


@pytest.mark.soak
@pytest.mark.timeout(3 * 3600)
def test_rules_agree_with_a_plain_list_for_long() -> None:
    run_state_machine_as_test(TopicSteps, settings=LONG_LIVES)
