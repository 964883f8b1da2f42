"""Push: messages come in.

A push is checked whole before anything changes: it is accepted or refused as one. Accepted
messages get their numbers at once. With the next commit they get a row and a change in the journal
(`flush`), and they stay invisible until that is on disk (`settle`).
"""

from __future__ import annotations

from bisect import bisect_right
from operator import itemgetter
from typing import TYPE_CHECKING

import msgspec

from nexo.machine import deduplication
from nexo.machine.events import add_pushed
from nexo.machine.producers import Producers, check_number, check_producer
from nexo.machine.span import Span, ranges_of_seqs
from nexo.vocabulary import limits
from nexo.vocabulary.batch import batch_of, largest_message
from nexo.vocabulary.changes import Produced, Pushed
from nexo.vocabulary.errors import InvalidArgument, MessageTooLarge, QueueFull

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nexo.machine.chunk import Chunk
    from nexo.machine.log import Flushed, Place
    from nexo.machine.queue import Queue
    from nexo.vocabulary.batch import Batch


class Accepted(msgspec.Struct, frozen=True, gc=False):
    """The answer to a push: the numbers of its messages, in the order of the batch. `ranges` is
    flat: first, end, first, end …; a duplicate has the number of the message it repeats."""

    ranges: list[int]
    duplicates: int = 0

    def seqs(self) -> list[int]:
        seqs: list[int] = []
        for first, end in zip(self.ranges[::2], self.ranges[1::2], strict=True):
            seqs += range(first, end)
        return seqs


def push_one(queue: Queue, body: bytes, now_ms: int, priority: int = 0) -> int:
    """One message that is nothing but a body: the lean path. Returns its number."""
    settings = queue.settings
    if settings.delay_ms or settings.deduplication != "off" or (priority and settings.fifo):
        batch = msgspec.structs.replace(batch_of([body]), priority=priority)
        return push(queue, batch, now_ms).ranges[0]
    lane = queue.lanes_by_priority.get(priority)
    if lane is None:
        _check_priority(priority)
    if len(body) > settings.max_message_bytes:
        raise _too_large(queue, len(body))
    if settings.max_depth is not None and queue.depth >= settings.max_depth:
        raise _full(queue, 1)
    if now_ms < queue.now_ms:
        now_ms = queue.now_ms
    else:
        queue.now_ms = now_ms
    if lane is None:
        lane = queue.lane(priority)
    log = lane.log
    seq = log.end
    lane.line.append(log.append_one(body, now_ms), seq, seq + 1)
    if not lane.has_news:
        lane.has_news = True
        queue.news.append(lane)
    queue.depth += 1
    queue.totals.pushed += 1
    return seq


def push(
    queue: Queue,
    batch: Batch,
    now_ms: int,
    producer: str = "",
    number: int = 0,
    checksum: int = 0,
) -> Accepted:
    """A batch. With a producer, a number that was accepted before gets the same answer again; with
    a checksum too, only if it was accepted with the same one."""
    now_ms = queue.advance(now_ms)
    if producer:
        check_producer(producer)
        check_number(number)
        producers = queue.producers
        known = None if producers is None else producers.answer(producer, number, checksum)
        if known is not None:
            return Accepted(known, batch.count)
    _check(queue, batch)
    fresh, repeated = batch, None
    keys = deduplication.keys_of(queue.settings, batch, now_ms)
    if keys is not None:
        recent = deduplication.recent_of(queue)
        recent.forget(now_ms, limits.DEDUPLICATION_KEYS_FORGOTTEN + 2 * batch.count)
        indexes, repeated = recent.sift(keys, now_ms)
        recent.check_room(len(indexes) - keys.count(None), queue.name)
        if len(indexes) < batch.count:
            fresh = batch.select(indexes) if indexes else batch.slice(0, 0)
    if queue.settings.max_depth is not None:
        _check_room(queue, fresh.count)
    ranges = _append(queue, fresh, now_ms) if fresh.count else []
    accepted = Accepted(ranges)
    if keys is not None:
        repeated = repeated or []
        seqs = deduplication.remember(queue, keys, repeated, accepted.seqs(), now_ms)
        if repeated:
            accepted = Accepted(ranges_of_seqs(seqs), len(repeated))
    if producer:
        if queue.producers is None:
            queue.producers = Producers()
        queue.producers.remember(producer, number, now_ms, accepted.ranges, checksum)
        queue.changes.append(Produced(producer, number, now_ms, accepted.ranges, checksum))
    return accepted


def push_shared(queue: Queue, batch: Batch, at: Place, now_ms: int) -> None:
    """Messages of a topic arrive through a binding. Their row is the topic's: nothing is written
    again.

    Priorities, deduplication and depth are not asked: the topic has accepted them already."""
    now_ms = queue.advance(now_ms)
    if batch.groups is not None and queue.busy is None:
        queue.begin_groups()
    chunk = queue.lane(0).log.gather(batch, at, now_ms, limits.SHARED_CHUNK_ROWS_MAX)
    first = chunk.end - batch.count
    due_ms = now_ms + queue.settings.delay_ms if queue.settings.delay_ms else 0
    place(queue, chunk, first, chunk.end, due_ms)
    if queue.events is not None:
        add_pushed(queue, first, chunk.end, now_ms, now_ms)
    queue.changes.append(
        Pushed(
            row=at.row,
            row_start=at.row_start,
            chunk=chunk.first,
            first=first,
            end=chunk.end,
            created_first_ms=now_ms,
            created_last_ms=now_ms,
            due_ms=due_ms,
            groups=batch.groups,
            payload_bytes=batch.size,
        )
    )


def push_moved(queue: Queue, batch: Batch, now_ms: int) -> Accepted:
    """Messages from another queue: accepted there long ago, so nothing here may refuse them."""
    now_ms = queue.advance(now_ms)
    if queue.settings.fifo:
        batch = msgspec.structs.replace(batch, priority=0)
    return Accepted(_append(queue, batch, now_ms))


def _append(queue: Queue, batch: Batch, now_ms: int) -> list[int]:
    """Number the messages and put them in line, or aside until they are due."""
    if batch.groups is not None and queue.busy is None:
        queue.begin_groups()
    priority = batch.priority
    if isinstance(priority, bytes):
        return _append_mixed(queue, batch, priority, now_ms)
    log = queue.lane(priority).log
    first = log.end
    chunk = log.append(batch, now_ms)
    delay_ms = queue.settings.delay_ms if batch.delay_ms is None else batch.delay_ms
    if isinstance(delay_ms, int):
        place(queue, chunk, first, log.end, now_ms + delay_ms if delay_ms else 0)
    else:
        dues = [now_ms + each if each else 0 for each in delay_ms]
        _place_apart(queue, chunk, first, dues)
    return [first, log.end]


def _append_mixed(queue: Queue, batch: Batch, priority: bytes, now_ms: int) -> list[int]:
    """Each priority has a lane of its own, so a mixed batch is taken apart."""
    indexes_by_priority: dict[int, list[int]] = {}
    for index, each in enumerate(priority):
        indexes_by_priority.setdefault(each, []).append(index)
    seqs = [0] * batch.count
    for each, indexes in indexes_by_priority.items():
        part = msgspec.structs.replace(batch.select(indexes), priority=each)
        first = _append(queue, part, now_ms)[0]
        for seq, index in enumerate(indexes, first):
            seqs[index] = seq
    return ranges_of_seqs(seqs)


def place(queue: Queue, chunk: Chunk, first: int, end: int, due_ms: int) -> None:
    """Messages that have their numbers go in line, or aside until they are due."""
    if due_ms:
        queue.unflushed_due.append((first, end, due_ms))
    _put(queue, chunk, first, end, due_ms)


def _place_apart(queue: Queue, chunk: Chunk, first: int, dues: list[int]) -> None:
    """The same for messages that are not due together: those that are and stand side by side stay
    one span."""
    start, count = 0, len(dues)
    if dues.count(dues[0]) == count:
        place(queue, chunk, first, first + count, dues[0])
        return
    # As one entry, however many they are: a commit looks at each entry.
    queue.unflushed_due.append((first, first + count, dues))
    while start < count:
        due_ms, stop = dues[start], start + 1
        while stop < count and dues[stop] == due_ms:
            stop += 1
        _put(queue, chunk, first + start, first + stop, due_ms)
        start = stop


def _put(queue: Queue, chunk: Chunk, first: int, end: int, due_ms: int) -> None:
    queue.depth += end - first
    queue.totals.pushed += end - first
    lane = queue.lane_of(first)
    if not lane.has_news:
        lane.has_news = True
        queue.news.append(lane)
    if not due_ms:
        lane.line.append(chunk, first, end)
        return
    if queue.busy is None:
        queue.schedule(Span(chunk, first, end, None, None), due_ms)
        return
    for seq in range(first, end):
        queue.schedule(Span(chunk, seq, seq + 1, None, chunk.group(seq)), due_ms)


def flush(queue: Queue) -> list[Flushed]:
    """The other half of a push: give rows to the messages that came since the last commit, and add
    to the changes that they came. Small pushes side by side share a row and a change."""
    flushed: list[Flushed] = []
    for lane in queue.news:
        came = lane.log.flush(queue.row_numbers)
        if lane.priority and queue.settings.archive:
            came = [_with_priority(each, lane.priority) for each in came]
        flushed += came
    dues = sorted(queue.unflushed_due, key=itemgetter(0))
    for each in flushed:
        row, chunk, first, end, batch = each
        queue.new_rows.append((row, batch))
        created_first_ms, created_last_ms = each.times()
        queue.changes.append(
            Pushed(
                row=row,
                row_start=0,
                chunk=chunk.first,
                first=first,
                end=end,
                created_first_ms=created_first_ms,
                created_last_ms=created_last_ms,
                due_ms=_due(dues, first, end),
                groups=batch.groups,
                payload_bytes=batch.size,
            )
        )
        if queue.events is not None:
            add_pushed(queue, first, end, created_last_ms, created_first_ms)
    queue.unflushed_due.clear()
    return flushed


def _with_priority(flushed: Flushed, priority: int) -> Flushed:
    """Here the number of a message tells its priority; the archive has numbers of its own."""
    batch = msgspec.structs.replace(flushed.batch, priority=priority)
    return flushed._replace(batch=batch)


def _due(dues: list[tuple[int, int, int | list[int]]], first: int, end: int) -> int | list[int]:
    """When each of the messages is due: one number if they agree, 0 for now. `dues` is in order."""
    at = max(0, bisect_right(dues, first, key=itemgetter(0)) - 1)
    by_message: list[int] | None = None
    while at < len(dues) and dues[at][0] < end:
        start, stop, due_ms = dues[at]
        at += 1
        if stop <= first:
            continue
        low, high = max(start, first), min(stop, end)
        cut = due_ms if isinstance(due_ms, int) else due_ms[low - start : high - start]
        if low == first and high == end:
            return cut
        if by_message is None:
            by_message = [0] * (end - first)
        if isinstance(cut, int):
            cut = [cut] * (high - low)
        by_message[low - first : high - first] = cut
    return 0 if by_message is None else by_message


def _check(queue: Queue, batch: Batch) -> None:
    settings, count, size = queue.settings, batch.count, batch.size
    if count < 1:
        raise InvalidArgument("the batch holds no message", "push at least one message")
    if count > limits.BATCH_MESSAGES_MAX or size > limits.BATCH_BYTES_MAX:
        raise MessageTooLarge(
            f"a batch of {count} messages and {size} bytes is too large",
            f"push at most {limits.BATCH_MESSAGES_MAX} messages and "
            f"{limits.BATCH_BYTES_MAX} bytes at once",
        )
    if size > settings.max_message_bytes:
        largest = largest_message(batch, settings.max_message_bytes)
        if largest > settings.max_message_bytes:
            raise _too_large(queue, largest)
    if isinstance(batch.priority, int):
        _check_priority(batch.priority)
    prioritised = batch.priority if isinstance(batch.priority, int) else any(batch.priority)
    if settings.fifo and prioritised:
        raise InvalidArgument(
            f"queue {queue.name!r} is FIFO: it keeps the order of each group, not priorities",
            "push without a priority, or use a standard queue",
        )
    _check_delay(queue, batch)
    _check_ids(batch)


def _check_delay(queue: Queue, batch: Batch) -> None:
    if batch.delay_ms is None:
        return
    delays = (batch.delay_ms,) if isinstance(batch.delay_ms, int) else batch.delay_ms
    if min(delays) < 0 or max(delays) > limits.DELAY_MS_MAX:
        raise InvalidArgument(f"a delay must be between 0 and {limits.DELAY_MS_MAX} ms")
    if max(delays) >= queue.settings.retention_ms:
        raise InvalidArgument(
            f"the delay must be shorter than the retention of queue {queue.name!r}",
            "lower the delay or raise retention, or the message expires before delivery",
        )


def _check_ids(batch: Batch) -> None:
    groups, keys = batch.groups, batch.deduplication_ids
    if groups is not None:
        of_all = groups if isinstance(groups, list) else [groups]
        _check_chars("group id", of_all, limits.GROUP_ID_CHARS_MAX)
    if keys is not None:
        _check_chars("deduplication id", keys, limits.DEDUPLICATION_ID_CHARS_MAX)


def _check_chars(what: str, texts: Sequence[str | None], most: int) -> None:
    """Without a look at each by itself: a push may have very many."""
    longest = max(map(len, filter(None, texts)), default=0)
    if longest > most or "" in texts:
        wrong = longest if longest > most else 0
        raise InvalidArgument(f"a {what} has 1 to {most} characters, not {wrong}")


def _check_priority(priority: int) -> None:
    if not 0 <= priority <= limits.PRIORITY_MAX:
        raise InvalidArgument(f"priority is {priority}, allowed is 0 to {limits.PRIORITY_MAX}")


def _check_room(queue: Queue, count: int) -> None:
    if queue.settings.max_depth is not None and queue.depth + count > queue.settings.max_depth:
        raise _full(queue, count)


def _full(queue: Queue, count: int) -> QueueFull:
    return QueueFull(
        f"queue {queue.name!r} holds {queue.depth} of at most {queue.settings.max_depth} "
        f"messages: {count} more do not fit",
        "try again when consumers have caught up, or raise max_depth",
    )


def _too_large(queue: Queue, size: int) -> MessageTooLarge:
    return MessageTooLarge(
        f"a message of {size} bytes is larger than queue {queue.name!r} takes "
        f"({queue.settings.max_message_bytes})",
        "body and attributes count: store the data elsewhere and push a reference, "
        "or raise max_message_bytes",
    )
