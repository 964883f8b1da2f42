"""The image of a queue or topic: its whole state as plain values, without the machinery.

`snapshot` takes one from a living queue, in steps, and encodes it; `image_of` takes it in one step.
`revive` makes a living queue of it, and `apply` brings that forward by the changes of the journal.
That the image is the same then as that of the queue that lived on is the test that the journal
misses nothing.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from heapq import heapify
from typing import TYPE_CHECKING

import msgspec

from nexo.machine.chunk import Chunk, PackedRows, as_packed, packed
from nexo.machine.claims import ClaimedBatch, Consumer
from nexo.machine.deadlines import oldest_in_line_ms
from nexo.machine.deduplication import Recent
from nexo.machine.life import TIMED
from nexo.machine.producers import Producers
from nexo.machine.span import History, Span
from nexo.machine.topic import drop_before
from nexo.vocabulary.batch import TIME_TYPE
from nexo.vocabulary.errors import DataCorrupt
from nexo.vocabulary.limits import SEQUENCE_BITS
from nexo.vocabulary.states import State

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nexo.machine.producers import Producer
    from nexo.machine.queue import Queue
    from nexo.machine.topic import Topic


class ChunkImage(msgspec.Struct, array_like=True, gc=False):
    first: int
    end: int
    rows: list[int]  # or `PackedRows`, until they are encoded
    row_start: int
    created_first_ms: int
    created_last_ms: int
    groups: str | list[str | None] | None
    payload_bytes: int
    seqs: bytes | None = None
    arrived_ms: int = 0


class Free(msgspec.Struct, array_like=True, gc=False):
    """Messages in line or scheduled."""

    first: int
    end: int
    history: History | None
    due_ms: int


class Leased(msgspec.Struct, array_like=True, gc=False):
    """Messages in flight."""

    first: int
    end: int
    history: History
    state: State
    deadline_ms: int
    visibility_ms: int
    consumer: str
    delivered_ms: int = 0  # 0 in snapshots of earlier versions


class ClaimImage(msgspec.Struct, array_like=True):
    epoch: int
    acked_through: int
    batches: dict[int, tuple[int, bool, bool]]  # number → lease, sealed, lapsed
    seen_ms: int = 0
    since_ms: dict[int, int] = {}  # when each batch was claimed


class ProducerImage(msgspec.Struct, array_like=True):
    seen_ms: int
    answers: dict[int, list[int]]
    checksums: dict[int, int] = {}  # of the pushes that had one


class TotalsImage(msgspec.Struct, array_like=True):
    pushed: int = 0
    delivered: int = 0
    acked: int = 0
    nacked: int = 0
    expired: int = 0
    dead_lettered: int = 0
    timed_out: int = 0  # snapshots of earlier versions count these as expired


class Image(msgspec.Struct):
    now_ms: int = 0
    paused: bool = False
    ends: dict[int, int] = {}  # priority → the next number of its lane
    chunks: list[ChunkImage] = []
    free: list[Free] = []
    leases: dict[int, list[Leased]] = {}
    recent: dict[str, tuple[int, int]] = {}  # key → until_ms, seq
    producers: dict[str, ProducerImage] = {}
    claims: dict[str, ClaimImage] = {}
    totals: TotalsImage = msgspec.field(default_factory=TotalsImage)


class TopicImage(msgspec.Struct):
    now_ms: int = 0
    start: int = 0
    end: int = 0
    chunks: list[ChunkImage] = []
    producers: dict[str, ProducerImage] = {}
    recent: dict[str, tuple[int, int]] = {}  # as of a queue


encode_image = msgspec.msgpack.Encoder(enc_hook=as_packed).encode
decode_image = msgspec.msgpack.Decoder(Image).decode


def image_of(queue: Queue) -> Image:
    """Everything about the queue that a restart must bring back, in one step: for looking at it in
    tests and simulations. Call it after `collect`."""
    free: list[Free] = []
    leases: dict[int, list[Leased]] = {}
    for lane in queue.lanes:
        free += [Free(s.first, s.end, s.history, 0) for s in lane.line.spans()]
    free += [
        Free(s.first, s.end, s.history, due_ms)
        for due_ms, _, s in queue.scheduled
        if s.first < s.end
    ]
    free += [Free(s.first, s.end, s.history, 0) for aside in queue.aside.values() for s in aside]
    for lease, held in queue.leases.items():
        for span in held:
            if span.state is State.MOVING:
                free.append(Free(span.first, span.end, span.history, 0))
                continue
            leases.setdefault(lease, []).append(leased_image(span, span.first, span.end))
    return Image(
        now_ms=queue.now_ms,
        paused=queue.paused,
        ends={lane.priority: lane.log.end for lane in queue.lanes},
        chunks=[chunk_image(chunk) for lane in queue.lanes for chunk in lane.log.chunks.values()],
        free=merged_free(sorted(free, key=lambda each: each.first)),
        leases={lease: merged_leased(spans) for lease, spans in leases.items()},
        recent=queue.recent.entries() if queue.recent is not None else {},
        producers=_producers_image(queue.producers),
        claims=claims_image(queue),
        totals=totals_image(queue),
    )


def image_of_topic(topic: Topic) -> TopicImage:
    """Everything about the topic that a restart must bring back, in one step: for looking at it
    in tests. Call it after `collect`."""
    return TopicImage(
        topic.now_ms,
        topic.start,
        topic.log.end,
        [chunk_image(chunk) for chunk in topic.log.chunks.values()],
        _producers_image(topic.producers),
        topic.recent.entries() if topic.recent is not None else {},
    )


def _producers_image(producers: Producers | None) -> dict[str, ProducerImage]:
    known = producers.by_name if producers is not None else {}
    return {name: producer_image(producer) for name, producer in known.items()}


def producer_image(producer: Producer) -> ProducerImage:
    return ProducerImage(producer.seen_ms, producer.answers(), producer.checksums())


def leased_image(span: Span, first: int, end: int) -> Leased:
    """Some messages of a span that is on a lease."""
    assert span.history is not None
    return Leased(
        first,
        end,
        span.history,
        State.RECEIVED if span.state is State.DOOMED else span.state,
        span.deadline_ms,
        span.visibility_ms,
        span.consumer,
        span.delivered_ms,
    )


def claims_image(queue: Queue) -> dict[str, ClaimImage]:
    return {
        name: ClaimImage(
            consumer.epoch,
            consumer.acked_through,
            {n: (b.lease, b.sealed, b.lapsed) for n, b in consumer.batches.items()},
            consumer.seen_ms,
            {number: batch.since_ms for number, batch in consumer.batches.items()},
        )
        for name, consumer in queue.claims.items()
    }


def totals_image(queue: Queue) -> TotalsImage:
    totals = queue.totals
    return TotalsImage(
        totals.pushed,
        totals.delivered,
        totals.acked,
        totals.nacked,
        totals.expired,
        totals.dead_lettered,
        totals.timed_out,
    )


def merged_free(spans: Iterable[Free]) -> list[Free]:
    """Neighbours that have lived through the same become one. They come in order, and are used."""
    merged: list[Free] = []
    last: Free | None = None
    for span in spans:
        if (
            last is not None
            and last.end == span.first
            and last.due_ms == span.due_ms
            and last.history == span.history
            and _same_lane(last.first, span.first)
        ):
            last.end = span.end
        else:
            merged.append(span)
            last = span
    return merged


def merged_leased(spans: Iterable[Leased]) -> list[Leased]:
    merged: list[Leased] = []
    for span in sorted(spans, key=lambda each: each.first):
        last = merged[-1] if merged else None
        if (
            last is not None
            and last.end == span.first
            and _same_lane(last.first, span.first)
            and msgspec.structs.astuple(last)[2:] == msgspec.structs.astuple(span)[2:]
        ):
            last.end = span.end
        else:
            merged.append(msgspec.structs.replace(span))
    return merged


def revive(queue: Queue, image: Image) -> None:
    """Bring an empty queue to the state of an image. No content is in memory afterwards."""
    queue.now_ms = image.now_ms
    queue.paused = image.paused
    chunks = [revived_chunk(chunk) for chunk in image.chunks]
    if queue.busy is None and any(chunk.groups is not None for chunk in chunks):
        queue.begin_groups()
    own: dict[int, list[Chunk]] = {priority: [] for priority in image.ends}
    for chunk in chunks:
        own[chunk.first >> SEQUENCE_BITS].append(chunk)
    for priority, end in image.ends.items():
        queue.lane(priority).log.recover(own[priority], end)
    finder = _Finder(chunks)
    is_grouped, now_ms = queue.busy is not None, queue.now_ms
    for free in image.free:
        spans = finder.spans(free.first, free.end, free.history, is_grouped)
        queue.depth += free.end - free.first
        if free.due_ms <= now_ms:
            for span in spans:
                queue.enter(span)
        elif is_grouped:
            for span in spans:
                queue.schedule(span, free.due_ms)
        else:  # as `schedule` does, but for the order of the heap, which comes at the end
            scheduled = queue.lane_of(free.first).scheduled
            for span in spans:
                span.state, span.deadline_ms = State.SCHEDULED, free.due_ms
                queue.scheduled.append((free.due_ms, span.first, span))
                scheduled.add(span)
            queue.scheduled_count += free.end - free.first
    heapify(queue.scheduled)
    for lease, leased in image.leases.items():
        _revive_lease(queue, finder, lease, leased)
    _revive_memory(queue, image)
    queue.oldest_ms = oldest_in_line_ms(queue)  # part of the start, not of the first step


def revive_topic(topic: Topic, image: TopicImage) -> None:
    """Bring an empty topic to the state of an image. No content is in memory afterwards."""
    topic.now_ms = image.now_ms
    topic.log.recover([revived_chunk(chunk) for chunk in image.chunks], image.end)
    topic.kept_bytes = sum(chunk.payload_bytes for chunk in image.chunks)
    drop_before(topic, image.start)
    if image.producers:
        topic.producers = Producers()
        for name, known in image.producers.items():
            topic.producers.recall(name, known.seen_ms, known.answers, known.checksums)
    topic.recent = _revived_keys(image.recent)


def _revive_lease(queue: Queue, finder: _Finder, lease: int, leased: list[Leased]) -> None:
    spans = []
    for each in leased:
        for span in finder.spans(each.first, each.end, each.history, queue.busy is not None):
            span.state = each.state
            span.deadline_ms = each.deadline_ms
            span.visibility_ms = each.visibility_ms
            span.consumer = each.consumer
            span.delivered_ms = each.delivered_ms
            spans.append(span)
            count = span.end - span.first
            queue.depth += count
            queue.in_flight += count
            if queue.busy is not None:
                queue.busy.add_in_flight(span)
    queue.leases[lease] = spans
    for span in spans:
        queue.note_lease(span, lease)
    for deadline_ms in {span.deadline_ms for span in spans if span.state in TIMED}:
        queue.watch(lease, deadline_ms)


def _revived_keys(entries: dict[str, tuple[int, int]]) -> Recent | None:
    if not entries:
        return None
    recent = Recent()
    by_until: dict[int, tuple[list[str], list[int]]] = {}
    for key, (until_ms, seq) in entries.items():
        keys, seqs = by_until.setdefault(until_ms, ([], []))
        keys.append(key)
        seqs.append(seq)
    for until_ms in sorted(by_until):
        recent.add(until_ms, *by_until[until_ms])
    return recent


def _revive_memory(queue: Queue, image: Image) -> None:
    """What the queue remembers of messages that may be gone: keys, producers, claims, totals."""
    queue.recent = _revived_keys(image.recent)
    if image.producers:
        queue.producers = Producers()
        for name, known in image.producers.items():
            queue.producers.recall(name, known.seen_ms, known.answers, known.checksums)
    for name, claim in image.claims.items():
        queue.claims[name] = consumer = Consumer()
        consumer.epoch, consumer.acked_through = claim.epoch, claim.acked_through
        consumer.seen_ms = claim.seen_ms or image.now_ms  # an older image does not say it
        for number, (lease, sealed, lapsed) in claim.batches.items():
            since_ms = claim.since_ms.get(number, image.now_ms)
            consumer.batches[number] = batch = ClaimedBatch(lease, since_ms)
            batch.sealed, batch.lapsed = sealed, lapsed
    revive_totals(queue, image.totals)


def revive_totals(queue: Queue, totals: TotalsImage) -> None:
    for field in totals.__struct_fields__:
        setattr(queue.totals, field, getattr(totals, field))


_NO_CHUNK = Chunk(0, 0, None, 0)


class _Finder:
    """Finds the chunks of a range of numbers, and counts the live messages of each."""

    def __init__(self, chunks: list[Chunk]) -> None:
        self._chunks = sorted(chunks, key=lambda chunk: chunk.first)
        self._firsts = [chunk.first for chunk in self._chunks]
        self._last = _NO_CHUNK
        for chunk in chunks:
            chunk.live = 0

    def spans(self, first: int, end: int, history: History | None, grouped: bool) -> list[Span]:
        chunk = self._last  # most of what is asked for lies side by side
        if not (chunk.first <= first and end <= chunk.end) or grouped:
            return self._spans(first, end, history, grouped)
        chunk.live += end - first
        return [Span(chunk, first, end, history, None)]

    def _spans(self, first: int, end: int, history: History | None, grouped: bool) -> list[Span]:
        spans = []
        at = bisect_right(self._firsts, first) - 1
        while first < end:
            chunk = self._last = self._chunks[at] if 0 <= at < len(self._chunks) else _NO_CHUNK
            stop = min(end, chunk.end)
            if not chunk.first <= first < stop:
                raise DataCorrupt(
                    f"the journal tells of messages {first} to {end} and not where they lie",
                    "restore a backup, or run the verifier to see what else is wrong",
                )
            chunk.live += stop - first
            while grouped and first < stop:
                run = first + 1
                while run < stop and chunk.group(run) == chunk.group(first):
                    run += 1
                spans.append(Span(chunk, first, run, history, chunk.group(first)))
                first = run
            if first < stop:
                spans.append(Span(chunk, first, stop, history, None))
            first, at = stop, at + 1
        return spans


def chunk_image(chunk: Chunk) -> ChunkImage:
    return ChunkImage(
        chunk.first,
        chunk.end,
        chunk.rows if isinstance(chunk.rows, PackedRows) else list(chunk.rows),  # type: ignore[arg-type]
        chunk.row_start,
        chunk.created_first_ms,
        chunk.created_last_ms,
        chunk.groups,
        chunk.payload_bytes,
        chunk.seqs.tobytes() if chunk.seqs is not None else None,
        chunk.arrived_ms,
    )


def revived_chunk(image: ChunkImage) -> Chunk:
    chunk = Chunk(image.first, image.end, None, image.created_first_ms)
    chunk.created_last_ms = image.created_last_ms
    chunk.rows = packed(image.rows)
    chunk.row_start = image.row_start
    chunk.groups = image.groups
    chunk.payload_bytes = image.payload_bytes
    chunk.flushed = chunk.end
    chunk.arrived_ms = image.arrived_ms
    if image.seqs is not None:
        chunk.seqs = array(TIME_TYPE)
        chunk.seqs.frombytes(image.seqs)
    return chunk


def _same_lane(one: int, other: int) -> bool:
    return one >> SEQUENCE_BITS == other >> SEQUENCE_BITS
