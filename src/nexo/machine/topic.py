"""The state and the rules of a topic: a retained sequence of batches with offsets.

Reading never removes. What is beyond the retention (by count, age or bytes) goes, the oldest
first: at once for readers, and from the disk when its whole chunk is beyond it. Publishing follows
the same way as pushing: numbers at once, visible when on disk.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from nexo.machine.chunk import Chunk
from nexo.machine.deduplication import keys_of, recent_of
from nexo.machine.log import Flushed, Log
from nexo.machine.pop import Part
from nexo.machine.producers import Producers, check_number
from nexo.machine.span import History
from nexo.vocabulary import limits
from nexo.vocabulary.batch import concatenate, fitting, largest_message, size_of
from nexo.vocabulary.changes import Produced, Published, Remembered, Trimmed
from nexo.vocabulary.errors import InvalidArgument, MessageTooLarge, OffsetExpired
from nexo.vocabulary.names import is_events

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from nexo.machine.deduplication import Recent
    from nexo.machine.log import Place
    from nexo.vocabulary.batch import Batch
    from nexo.vocabulary.changes import TopicChange
    from nexo.vocabulary.settings import TopicSettings

_UNREAD = History(0, 0)


class Reading(msgspec.Struct, frozen=True, gc=False):
    """What a read found; `next` is where to go on. `missing` has to be read back first."""

    parts: list[Part]
    next: int
    missing: Chunk | None = None


class TopicCollected(NamedTuple):
    changes: list[TopicChange]
    rows: list[tuple[int, Batch]]
    dropped_rows: list[int]
    end: int


class Topic:
    __slots__ = (
        "changes",
        "dropped_rows",
        "firsts",
        "kept_bytes",
        "log",
        "name",
        "new_rows",
        "now_ms",
        "producers",
        "recent",
        "row_numbers",
        "settings",
        "start",
    )

    def __init__(self, name: str, settings: TopicSettings, row_numbers: Iterator[int]) -> None:
        self.name = name
        self.settings = settings
        self.row_numbers = row_numbers
        # Most readers are near the end; and events come in small batches, for ever.
        self.log = Log(0, evicts_oldest=True, copies_many=is_events(name))
        self.start = 0  # the oldest offset that can be read
        self.kept_bytes = 0  # payload of the chunks that are kept
        self.now_ms = 0
        self.firsts: list[int] = []  # of the chunks, to look them up; see `_firsts`
        self.producers: Producers | None = None
        self.recent: Recent | None = None
        self.changes: list[TopicChange] = []
        self.new_rows: list[tuple[int, Batch]] = []
        self.dropped_rows: list[int] = []

    def advance(self, now_ms: int) -> int:
        if now_ms > self.now_ms:
            self.now_ms = now_ms
        return self.now_ms


def publish(
    topic: Topic,
    batch: Batch,
    now_ms: int,
    producer: str = "",
    number: int = 0,
    checksum: int = 0,
) -> tuple[int, int]:
    """Add a batch; returns the range of its offsets. A producer's repeated number adds nothing, nor
    does a message that repeats another: if all of them do, the range is that of the first one's."""
    now_ms = topic.advance(now_ms)
    if producer:
        check_number(number)
        producers = topic.producers
        known = None if producers is None else producers.answer(producer, number, checksum)
        if known is not None:
            return (known[0], known[1]) if known else (0, 0)
    _check(topic, batch)
    keys = keys_of(topic.settings, batch, now_ms)
    if keys is None:
        first, end = _append(topic, batch, now_ms)
    else:
        first, end = _append_new(topic, batch, keys, now_ms)
    if producer:
        if topic.producers is None:
            topic.producers = Producers()
        answer = [first, end]
        topic.producers.remember(producer, number, now_ms, answer, checksum)
        topic.changes.append(Produced(producer, number, now_ms, answer, checksum))
    return first, end


def _append(topic: Topic, batch: Batch, now_ms: int) -> tuple[int, int]:
    first = topic.log.end
    topic.log.append(batch, now_ms)
    topic.kept_bytes += batch.size
    return first, topic.log.end


def _append_new(topic: Topic, batch: Batch, keys: list[str | None], now_ms: int) -> tuple[int, int]:
    """Of a batch what repeats nothing of the last minutes."""
    recent = recent_of(topic)
    recent.forget(now_ms, limits.DEDUPLICATION_KEYS_FORGOTTEN + 2 * batch.count)
    indexes, repeated = recent.sift(keys, now_ms)
    if not indexes:
        offset = recent.seq(keys[repeated[0]] or "")
        return offset, offset + 1
    noted = [(index, key) for index in indexes if (key := keys[index]) is not None]
    recent.check_room(len(noted), topic.name)
    fresh = batch.select(indexes) if repeated else batch
    first, end = _append(topic, fresh, now_ms)
    if noted:
        offsets = {index: first + place for place, index in enumerate(indexes)}
        until_ms = now_ms + limits.TOPIC_DEDUPLICATION_MS
        remembered = Remembered(
            until_ms, [key for _, key in noted], [offsets[index] for index, _ in noted]
        )
        recent.add(until_ms, remembered.keys, remembered.seqs)
        topic.changes.append(remembered)
    return first, end


def archive(topic: Topic, batch: Batch, place: Place, now_ms: int) -> None:
    """Messages of an archived queue, whose row the queue writes."""
    now_ms = topic.advance(now_ms)
    latest_ms = _latest_ms(topic)
    chunk = topic.log.gather(batch, place, now_ms)
    first = chunk.end - batch.count
    topic.kept_bytes += batch.size
    if batch.created:  # what the queue knows better than this commit
        if first == chunk.first:
            chunk.created_first_ms = batch.created[0]
        # A commit brings one priority after the other; chunks are looked up by their last times,
        # so those never go back.
        chunk.created_last_ms = max(latest_ms, batch.created[-1])
    topic.changes.append(
        Published(
            row=place.row,
            row_start=place.row_start,
            chunk=chunk.first,
            first=first,
            end=chunk.end,
            created_first_ms=chunk.created_first_ms,
            created_last_ms=chunk.created_last_ms,
            payload_bytes=batch.size,
        )
    )


def read(
    topic: Topic,
    offset: int,
    count: int,
    bytes_max: int = limits.POP_BYTES_MAX,
    strict: bool = False,
) -> Reading:
    """Up to `count` messages from `offset` on. Below what is kept it goes on at the oldest, or
    is refused if `strict`."""
    if offset < 0 or count < 1:
        raise InvalidArgument("a read takes an offset from 0 on and at least one message")
    if offset < topic.start:
        if strict:
            raise OffsetExpired(
                f"offset {offset} of topic {topic.name!r} is gone: the oldest is {topic.start}",
                "read from the oldest, or raise the topic's retention",
            )
        offset = topic.start
    parts: list[Part] = []
    settled = topic.log.settled
    for chunk in chunks_from(topic, offset):
        if count <= 0 or bytes_max <= 0 or offset >= settled:
            break
        content = chunk.content
        if content is None:
            return Reading(parts, offset, chunk)
        start = offset - chunk.first
        stop = min(chunk.end, settled, offset + count) - chunk.first
        stop = start + max(fitting(content, start, stop, bytes_max), 0 if parts else 1)
        if stop == start:
            break
        bytes_max -= size_of(content, start, stop)
        created_ms = chunk.created_first_ms
        parts.append(Part(offset, stop - start, content, start, created_ms, _UNREAD))
        offset += stop - start
        count -= stop - start
        if offset < chunk.end:
            break  # the next message does not fit, though some bytes may be left
    return Reading(parts, offset)


def read_around(
    chunk: Chunk, batches: list[Batch | None], offset: int, count: int, bytes_max: int
) -> Reading:
    """The same of a chunk of which some rows cannot be read: `batches` has None for those. How many
    messages such a row has is not known, so it is what lies between those before the first of them
    and those behind the last. Where `offset` is one of these, nothing is found, and `next` is
    behind them."""
    before = _readable(batches)
    # The last row of what came from another topic may have more messages than the chunk.
    is_exact = not chunk.arrived_ms and len(before) < len(batches)
    behind = _readable(reversed(batches))[::-1] if is_exact else []
    lost_end = chunk.end - sum(batch.count for batch in behind)
    for first, readable in ((chunk.first - chunk.row_start, before), (lost_end, behind)):
        content = concatenate(readable) if readable else None
        if content is None or not first <= offset < first + content.count:
            continue
        start, stop = offset - first, min(content.count, chunk.end - first, offset - first + count)
        stop = start + max(1, fitting(content, start, stop, bytes_max))
        part = Part(offset, stop - start, content, start, chunk.created_first_ms, _UNREAD)
        return Reading([part], offset + stop - start)
    return Reading([], max(offset, lost_end))


def _readable(batches: Iterable[Batch | None]) -> list[Batch]:
    """Those before the first that could not be read."""
    found = []
    for batch in batches:
        if batch is None:
            break
        found.append(batch)
    return found


def offset_at(topic: Topic, time_ms: int) -> int:
    """The first offset that was published at or after a time. Where the content is not in memory,
    where its chunk begins: see `chunk_at`."""
    chunk = chunk_at(topic, time_ms)
    if chunk is None:
        return topic.log.end
    return max(chunk.first + _count_before(chunk, topic.start, time_ms), topic.start)


def chunk_at(topic: Topic, time_ms: int) -> Chunk | None:
    """The chunk in which the first message lies that was published at or after a time. Of one whose
    content is not in memory that is not certain: times in an archive may go back, and the last time
    of a chunk is the latest until then."""
    firsts, chunks = _firsts(topic), topic.log.chunks
    at = bisect_left(firsts, time_ms, key=lambda first: chunks[first].created_last_ms)
    while at < len(firsts):
        chunk = chunks[firsts[at]]
        if chunk.first + _count_before(chunk, topic.start, time_ms) < chunk.end:
            return chunk
        at += 1
    return None


def flush_topic(topic: Topic) -> list[Flushed]:
    """Give rows to the messages that came since the last time, and tell of them."""
    flushed = topic.log.flush(topic.row_numbers)
    for each in flushed:
        topic.new_rows.append((each.row, each.batch))
        topic.changes.append(_published(each))
    return flushed


def collect_topic(topic: Topic) -> TopicCollected:
    """Everything that the next commit has to write for this topic, once it is flushed."""
    collected = TopicCollected(topic.changes, topic.new_rows, topic.dropped_rows, topic.log.end)
    topic.changes, topic.new_rows, topic.dropped_rows = [], [], []
    return collected


def settle_topic(topic: Topic, end: int) -> None:
    """The commit is on disk: readers see what it brought."""
    topic.log.settled = end


def trim(topic: Topic, now_ms: int) -> None:
    """Apply the retention. Only what is on disk is trimmed, so it can be told in order."""
    now_ms = topic.advance(now_ms)
    if topic.recent is not None:
        topic.recent.forget(now_ms)
    settings, log = topic.settings, topic.log
    start = topic.start
    if settings.retention_messages is not None:
        start = max(start, log.settled - settings.retention_messages)
    if settings.retention_ms is not None:
        start = max(start, min(log.settled, _first_after(topic, now_ms - settings.retention_ms)))
    kept_bytes = topic.kept_bytes
    for first in _firsts(topic):
        chunk = log.chunks[first]
        beyond = (
            settings.retention_bytes is not None
            and kept_bytes > settings.retention_bytes
            and chunk.end <= log.settled
            and chunk.end < log.end
        )
        if beyond:
            start = max(start, chunk.end)
        if chunk.end > start:
            break
        kept_bytes -= chunk.payload_bytes
    if start > topic.start:
        topic.changes.append(Trimmed(start))
        drop_before(topic, start)


def drop_before(topic: Topic, start: int) -> None:
    """Offsets below `start` are gone, and with them the chunks that lie wholly below it."""
    topic.start = start
    chunks = topic.log.chunks
    for first in _firsts(topic):
        chunk = chunks[first]
        if chunk.end > start:
            break
        topic.kept_bytes -= chunk.payload_bytes
        topic.dropped_rows += topic.log.drop(chunk)


def next_trim_ms(topic: Topic) -> int | None:
    """When the oldest message passes the age limit."""
    retention_ms = topic.settings.retention_ms
    if retention_ms is None or topic.start >= topic.log.settled:
        return None
    chunk = topic.log.chunks[_firsts(topic)[0]]
    came_ms = max(chunk.created_ms(max(chunk.first, topic.start)), chunk.arrived_ms)
    return came_ms + retention_ms + 1


def chunks_from(topic: Topic, offset: int) -> Iterator[Chunk]:
    """The chunks from the one that holds `offset`, also those that come while one goes on."""
    chunks = topic.log.chunks
    chunk = chunks.get(offset)
    if chunk is None and chunks:
        firsts = _firsts(topic)
        chunk = chunks[firsts[max(bisect_right(firsts, offset) - 1, 0)]]
    while chunk is not None:
        yield chunk
        chunk = chunks.get(chunk.end)


def _firsts(topic: Topic) -> list[int]:
    """Where the chunks begin, in order. They come at the end and go at the beginning, so the list
    of the last time is brought up to date: a look costs the same however many there are."""
    chunks, firsts = topic.log.chunks, topic.firsts
    if not firsts or firsts[-1] not in chunks:
        topic.firsts = list(chunks)
        return topic.firsts
    following = chunks.get(chunks[firsts[-1]].end)
    while following is not None:
        firsts.append(following.first)
        following = chunks.get(following.end)
    gone = len(firsts) - len(chunks)
    if gone:
        del firsts[:gone]
    return firsts


def _count_before(chunk: Chunk, start: int, time_ms: int) -> int:
    """How many of its messages lie before the first one from `start` on that was published at or
    after a time. An archive has the priorities of a commit one after the other, so times may go
    back in between; retention looks only at what it has not passed yet."""
    content = chunk.content
    if content is None or content.created is None or chunk.arrived_ms:
        return 0  # one time for all of them, or none that is known
    if chunk.created_first_ms >= time_ms:
        return 0
    times, skipped = content.created, max(0, start - chunk.first)
    return next((at for at in range(skipped, len(times)) if times[at] >= time_ms), len(times))


def _latest_ms(topic: Topic) -> int:
    chunks = topic.log.chunks
    return chunks[next(reversed(chunks))].created_last_ms if chunks else 0


def _first_after(topic: Topic, cutoff_ms: int) -> int:
    """The first offset that was published after a time."""
    firsts, chunks = _firsts(topic), topic.log.chunks
    at = bisect_right(firsts, cutoff_ms, key=lambda first: chunks[first].created_last_ms)
    if at == len(firsts):
        return topic.log.end
    return firsts[at] + _count_before(chunks[firsts[at]], topic.start, cutoff_ms + 1)


def _published(flushed: Flushed) -> Published:
    row, chunk, first, end, batch = flushed
    created_first_ms, created_last_ms = flushed.times()
    return Published(
        row=row,
        row_start=0,
        chunk=chunk.first,
        first=first,
        end=end,
        created_first_ms=created_first_ms,
        created_last_ms=created_last_ms,
        payload_bytes=batch.size,
    )


def _check(topic: Topic, batch: Batch) -> None:
    count, size = batch.count, batch.size
    if count < 1:
        raise InvalidArgument("the batch holds no message", "publish at least one message")
    if count > limits.BATCH_MESSAGES_MAX or size > limits.BATCH_BYTES_MAX:
        raise MessageTooLarge(f"a batch of {count} messages and {size} bytes is too large")
    if size > topic.settings.max_message_bytes:
        largest = largest_message(batch, topic.settings.max_message_bytes)
        if largest > topic.settings.max_message_bytes:
            raise MessageTooLarge(
                f"a message of {largest} bytes is larger than topic {topic.name!r} takes "
                f"({topic.settings.max_message_bytes})"
            )
