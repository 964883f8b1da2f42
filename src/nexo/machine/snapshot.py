"""A snapshot: the image of a queue or topic, taken down piece by piece while that lives on.

A large state is too much for one step. So a snapshot is made in several, each of them right after
a `collect`, in order of sequence number. What is behind the pen goes on changing: those changes
are kept, cut to what is behind it, and applied to the pieces when the snapshot is loaded. What is
ahead of the pen is taken down as it is when the pen gets there. So all of it is one moment: that
of the last step, which also takes down what is small.

    0 ────────── taken down ──────────┤ pen ├────────── not yet ────────── ends
      its changes are kept in `since`          its changes are in the state

Nothing but a purge changes messages in another way than by their numbers, and a purge leaves
little to take down: the snapshot begins anew.
"""

from __future__ import annotations

import struct
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import msgspec

from nexo.machine.apply import apply
from nexo.machine.chunk import as_packed
from nexo.machine.image import (
    ChunkImage,
    Free,
    Image,
    Leased,
    TopicImage,
    chunk_image,
    claims_image,
    leased_image,
    merged_free,
    merged_leased,
    producer_image,
    revive,
    revive_totals,
    totals_image,
)
from nexo.machine.line import Line
from nexo.vocabulary import changes as c
from nexo.vocabulary.identity import first_seq
from nexo.vocabulary.limits import PIECE_BITS, SEQUENCE_BITS
from nexo.vocabulary.states import State

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from nexo.machine.chunk import Chunk
    from nexo.machine.producers import Producer
    from nexo.machine.queue import Lane, Queue
    from nexo.machine.span import Span
    from nexo.machine.topic import Topic

LEAST_ENTRIES = 16  # what any step counts for: it has a cost of its own
_ANSWERS_AN_ENTRY = 4  # of a producer

_MAP, _ARRAY = 0xDF, 0xDD  # of msgpack, with 32 bits for the length
_HEAD = struct.Struct(">BI")

_first = attrgetter("first")
_encode = msgspec.msgpack.Encoder(enc_hook=as_packed).encode


class Piece(msgspec.Struct, array_like=True):
    """A part of an image: what one step took down."""

    chunks: list[ChunkImage] = []
    free: list[Free] = []
    leases: dict[int, list[Leased]] = {}
    recent: dict[str, tuple[int, int]] = {}


class StoredSnapshot(Image):
    """An image whose larger parts are in pieces, with what changed in them since."""

    pieces: list[Piece] = msgspec.field(default_factory=list)
    since: list[bytes] = msgspec.field(default_factory=list)  # records


class StoredTopicSnapshot(TopicImage):
    """The same of a topic, whose chunks are its only larger part."""

    pieces: list[list[ChunkImage]] = msgspec.field(default_factory=list)  # chunks, in order


_decode = msgspec.msgpack.Decoder(StoredSnapshot).decode
_decode_topic = msgspec.msgpack.Decoder(StoredTopicSnapshot).decode


def load_snapshot(queue: Queue, encoded: bytes) -> None:
    """Bring an empty queue to the state that a snapshot stands for."""
    read = _decode(encoded)
    image = Image(**{field: getattr(read, field) for field in Image.__struct_fields__})
    for piece in read.pieces:
        image.chunks += piece.chunks
        image.free += piece.free
        image.recent.update(piece.recent)
        for lease, spans in piece.leases.items():
            image.leases.setdefault(lease, []).extend(spans)
    revive(queue, image)
    if read.since:
        apply(queue, map(c.decode_queue_changes, read.since))
        revive_totals(queue, read.totals)  # those of the last step count these changes already


def read_topic_snapshot(encoded: bytes) -> TopicImage:
    """The image that a snapshot stands for."""
    read = _decode_topic(encoded)
    chunks = [chunk for piece in read.pieces for chunk in piece if chunk.end > read.start]
    return TopicImage(
        read.now_ms, read.start, read.end, read.chunks + chunks, read.producers, read.recent
    )


class SnapshotInSteps:
    """A snapshot in the making; `QueueSnapshot` and `TopicSnapshot` say what is in it."""

    def __init__(self, owner: Queue | Topic) -> None:
        self._producers = _EncodedProducers(owner)
        # It grows without being copied. How many pieces there are stands in front of them.
        self.encoded = bytearray(_HEAD.pack(_MAP, 0) + _encode("pieces") + _HEAD.pack(_ARRAY, 0))
        self._head_bytes = len(self.encoded)
        self._pieces = 0
        self._left = 0  # entries that this step may still take down
        self._work = self._entries()
        self.is_done = False

    def note(self, changes: Sequence[Any]) -> None:
        """What the commit brings that the next step is part of."""
        self._producers.changed(
            {change.producer for change in changes if isinstance(change, c.Produced)}
        )

    def step(self, entries: int) -> int:
        """Take down about so many entries, right after a `collect`; returns how many it were."""
        self._left = entries
        for took in self._work:
            self._left -= took
            if self._left <= 0:
                break
        else:
            self.is_done = True
        self._add_piece()
        if self.is_done:
            self._finish()
        return max(LEAST_ENTRIES, entries - self._left)

    def _entries(self) -> Iterator[int]:
        """Take down what is large, about `_left` entries at a time; yields how many it were."""
        raise NotImplementedError

    def _add_piece(self) -> None:
        """Encode what this step has taken down."""
        raise NotImplementedError

    def _small(self) -> dict[str, Any]:
        """What the last step takes down at once."""
        raise NotImplementedError

    def _encoded(self) -> dict[str, bytes | bytearray]:
        """What earlier steps have encoded."""
        return {"producers": self._producers.encoded()}

    def _append(self, piece: Any) -> None:
        self.encoded += _encode(piece)
        self._pieces += 1

    def _finish(self) -> None:
        small = {name: _encode(value) for name, value in self._small().items()}
        parts = {**small, **self._encoded()}
        for name, encoded in parts.items():
            self.encoded += _encode(name)
            self.encoded += encoded
        _HEAD.pack_into(self.encoded, 0, _MAP, 1 + len(parts))
        _HEAD.pack_into(self.encoded, self._head_bytes - _HEAD.size, _ARRAY, self._pieces)


class QueueSnapshot(SnapshotInSteps):
    def __init__(self, queue: Queue) -> None:
        super().__init__(queue)
        self._queue = queue
        self._begin()

    def _begin(self) -> None:
        self._piece = Piece()
        self._pen = 0  # the messages below this are taken down …
        self._chunk_pen = 0  # … and so are the chunks that begin below this
        self._begun: Chunk | None = None  # the one that the pen is in
        self._since: list[bytes] = []

    def note(self, changes: Sequence[c.QueueChange]) -> None:
        if any(isinstance(change, c.Purged) for change in changes):
            super().__init__(self._queue)
            self._begin()
            return
        super().note(changes)
        kept = [behind for change in changes if (behind := self._behind(change)) is not None]
        if kept:
            self._since.append(c.encode_changes(kept))

    def _behind(self, change: c.QueueChange) -> c.QueueChange | None:
        """What of a change is about what is taken down already."""
        match change:
            case c.Pushed():
                return change if change.chunk < self._chunk_pen else None
            case c.Rewritten():
                return change if change.first < self._chunk_pen else None
            case c.Delivered() | c.DeadlineSet() | c.Removed() | c.Returned():
                kept = self._ranges_behind(change.ranges)
                return msgspec.structs.replace(change, ranges=kept) if kept else None
            case c.Remembered():
                return change
            case _:
                return None  # the last step takes it down

    def _ranges_behind(self, ranges: c.Ranges) -> c.Ranges:
        pen = self._pen
        if all(end <= pen for end in ranges[1::2]):
            return ranges
        pairs = zip(ranges[::2], ranges[1::2], strict=True)
        return tuple(bound for low, high in pairs if low < pen for bound in (low, min(high, pen)))

    def _entries(self) -> Iterator[int]:
        yield from self._producers.entries()
        yield from self._take_keys()
        while (lane := self._lane()) is not None:
            chunk = next(lane.log.chunks_from(self._pen), None)
            if self._begun is not None and self._begun is not chunk:
                self._end_chunk(self._begun)
                yield 1
            elif chunk is None:
                self._leave(lane)
                yield 1
            else:
                yield self._take_messages(lane, chunk)

    def _add_piece(self) -> None:
        piece = self._piece
        if piece.chunks or piece.free or piece.leases or piece.recent:
            piece.free = merged_free(piece.free)
            for lease, spans in piece.leases.items():
                if len(spans) > 1:
                    piece.leases[lease] = merged_leased(spans)
            self._append(piece)
            self._piece = Piece()

    def _small(self) -> dict[str, Any]:
        queue = self._queue
        return {
            "now_ms": queue.now_ms,
            "paused": queue.paused,
            "ends": {lane.priority: lane.log.end for lane in queue.lanes},
            "claims": claims_image(queue),
            "totals": totals_image(queue),
            "since": self._since,
        }

    def _take_keys(self) -> Iterator[int]:
        """The deduplication keys. What comes meanwhile is in `since`; what is over meanwhile is
        wanted no more."""
        recent = self._queue.recent
        if recent is None:
            return
        for turn in recent.turns():
            at = 0
            while keys := recent.keys_of(turn, at, self._left):
                for key in keys:
                    entry = recent.entry(key)
                    if entry is not None:
                        self._piece.recent[key] = entry
                at += len(keys)
                yield len(keys)

    def _lane(self) -> Lane | None:
        """The one that the pen is in, or comes to next."""
        lanes, priority = self._queue.lanes_by_priority, self._pen >> SEQUENCE_BITS
        if priority not in lanes:
            later = [each for each in lanes if each > priority]
            if not later:
                return None
            priority = min(later)
            self._pen = self._chunk_pen = first_seq(priority)
        return lanes[priority]

    def _take_messages(self, lane: Lane, chunk: Chunk) -> int:
        """The messages of a chunk from the pen on, about as many spans as are left to this step.
        The chunk itself follows with the last of them: until then it may still grow."""
        low, end, most = max(self._pen, chunk.first), chunk.end, self._left
        if isinstance(lane.line, Line):
            ready, end = _some(lane.line.between(low, end), end, most)
        else:
            end = min(end, low + most)
            ready = list(lane.line.in_chunk(chunk, low, end))
        scheduled, end = _some(lane.scheduled.between(low, end), end, most)
        leased, looked, end = self._leased(chunk, low, end, most)
        free = [
            Free(max(low, span.first), min(end, span.end), span.history, span.deadline_ms)
            for span in scheduled
            if span.first < end
        ]
        free += [
            Free(max(low, span.first), min(end, span.end), span.history, 0)
            for span in (*ready, *self._queue.aside.get(chunk, ()))
            if span.first < end and span.end > low
        ]
        for lease, span, first, stop in leased:
            if span.state is State.MOVING:
                free.append(Free(first, stop, span.history, 0))
            else:
                self._piece.leases.setdefault(lease, []).append(leased_image(span, first, stop))
        if len(free) > 1:
            free.sort(key=_first)
        self._piece.free += free
        self._pen, self._chunk_pen, self._begun = end, chunk.first, chunk
        if end == chunk.end:
            self._end_chunk(chunk)
            if end == lane.log.end:
                self._leave(lane)
        return 1 + len(ready) + len(scheduled) + looked

    def _end_chunk(self, chunk: Chunk) -> None:
        """The chunk itself, also of one that has died with the pen in it: the messages of it that
        are taken down need a place until `since` removes them."""
        self._piece.chunks.append(chunk_image(chunk))
        self._pen = self._chunk_pen = chunk.end
        self._begun = None

    def _leave(self, lane: Lane) -> None:
        """The pen is through with a lane: whatever comes to it now, also to its last chunk, is
        behind the pen."""
        self._pen = self._chunk_pen = first_seq(lane.priority + 1)

    def _leased(
        self, chunk: Chunk, low: int, end: int, most: int
    ) -> tuple[list[tuple[int, Span, int, int]], int, int]:
        """What is on leases (lease, span, first and end), how much was looked at for it, and up to
        where. A chunk knows its leases by parts of it."""
        found: list[tuple[int, Span, int, int]] = []
        looked = 0
        for part in range(chunk.piece(low), chunk.piece(end - 1) + 1) if chunk.leases else ():
            leases = chunk.leases.get(part) if chunk.leases else None
            if leases is None:
                continue
            start = chunk.first + (part << PIECE_BITS)
            first, last = max(low, start), min(end, start + (1 << PIECE_BITS))
            stop = min(last, first + most)
            for lease in dict.fromkeys(leases):
                found += [
                    (lease, span, max(first, span.first), min(stop, span.end))
                    for span in self._queue.on_lease(lease, first, stop)
                ]
            looked += len(leases)
            if stop < last or looked + len(found) >= most:
                return found, looked + len(found), stop
        return found, looked + len(found), end


class TopicSnapshot(SnapshotInSteps):
    """A snapshot in the making. A topic grows at the end and goes from the front, so chunks that
    were taken down change no more: the last one, which may, comes with the last step."""

    def __init__(self, topic: Topic) -> None:
        super().__init__(topic)
        self._topic = topic
        self._piece: list[ChunkImage] = []
        self._keys = bytearray()  # of deduplication, as the inside of a map
        self._key_count = 0

    def note(self, changes: Sequence[c.TopicChange]) -> None:
        super().note(changes)
        for change in changes:
            if isinstance(change, c.Remembered):
                for key, seq in zip(change.keys, change.seqs, strict=True):
                    self._add_key(key, (change.until_ms, seq))

    def _add_key(self, key: str, entry: tuple[int, int]) -> None:
        self._keys += _encode(key) + _encode(entry)
        self._key_count += 1

    def _encoded(self) -> dict[str, bytes | bytearray]:
        if not self._key_count:
            return super()._encoded()
        keys = _HEAD.pack(_MAP, self._key_count) + self._keys
        return {**super()._encoded(), "recent": keys}

    def _take_keys(self) -> Iterator[int]:
        """As of a queue; what comes meanwhile is noted."""
        recent = self._topic.recent
        if recent is None:
            return
        for turn in recent.turns():
            at = 0
            while keys := recent.keys_of(turn, at, self._left):
                for key in keys:
                    entry = recent.entry(key)
                    if entry is not None:
                        self._add_key(key, entry)
                at += len(keys)
                yield len(keys)

    def _entries(self) -> Iterator[int]:
        yield from self._producers.entries()
        yield from self._take_keys()
        log, pen = self._topic.log, 0
        while (chunk := next(log.chunks_from(pen), None)) is not None:
            self._piece.append(chunk_image(chunk))
            pen = chunk.end
            if pen < log.end:
                yield 1

    def _add_piece(self) -> None:
        if self._piece:
            self._append(self._piece)
            self._piece = []

    def _small(self) -> dict[str, Any]:
        topic = self._topic
        return {"now_ms": topic.now_ms, "start": topic.start, "end": topic.log.end}


def _some(spans: Iterator[Span], end: int, most: int) -> tuple[list[Span], int]:
    """The first of these spans, and up to where there is no other."""
    some = list(islice(spans, most + 1))
    return (some, end) if len(some) <= most else (some[:most], some[most].first)


class _EncodedProducers:
    """The producers of a queue or topic, encoded one by one, and again when they change."""

    def __init__(self, owner: Queue | Topic) -> None:
        self._owner = owner
        self._by_name: dict[str, bytes] = {}

    def entries(self) -> Iterator[int]:
        for name in list(self._known()):
            if name not in self._by_name:
                yield self._encode(name)

    def changed(self, names: set[str]) -> None:
        for name in names:
            self._encode(name)

    def encoded(self) -> bytes:
        """All that are still known, the longest silent first."""
        known = self._known()
        return _HEAD.pack(_MAP, len(known)) + b"".join(map(self._by_name.__getitem__, known))

    def _known(self) -> dict[str, Producer]:
        producers = self._owner.producers
        return producers.by_name if producers is not None else {}

    def _encode(self, name: str) -> int:
        producer = self._known().get(name)
        if producer is None:  # forgotten meanwhile
            return 1
        image = producer_image(producer)
        self._by_name[name] = _encode(name) + _encode(image)
        return 1 + len(image.answers) // _ANSWERS_AN_ENTRY
