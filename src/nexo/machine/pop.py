"""Pop: messages go out on a lease.

The highest priority first, in order inside it. What one pop takes is one lease with one
deadline, however many messages that are; each message keeps its own way from there. Only messages
that are on disk are seen.
"""

from __future__ import annotations

from heapq import heappush
from typing import TYPE_CHECKING

import msgspec

from nexo.machine.chunk import Chunk, Content
from nexo.machine.events import add_event
from nexo.machine.span import History, attempted, by_first, ranges_of
from nexo.vocabulary import limits
from nexo.vocabulary.batch import Batch, fitting, size_of
from nexo.vocabulary.changes import Delivered
from nexo.vocabulary.errors import InvalidArgument
from nexo.vocabulary.fields import check_allowed
from nexo.vocabulary.identity import message_id, priority_of
from nexo.vocabulary.limits import PIECE_BITS, PIECE_LEASES_MAX
from nexo.vocabulary.message import Message
from nexo.vocabulary.states import EventKind, State

if TYPE_CHECKING:
    from nexo.machine.queue import Queue
    from nexo.machine.span import Span
    from nexo.vocabulary.changes import Ranges

SENT, RECEIVED = State.SENT, State.RECEIVED


class Part(msgspec.Struct, frozen=True, gc=False):
    """Messages of a delivery that lie side by side: `content` from message `index` on."""

    first: int
    count: int
    content: Content
    index: int
    created_ms: int  # of all, unless the content has a column for it
    history: History

    def batch(self) -> Batch:
        """These messages as a batch; not copied if they are all of their content."""
        content, stop = self.content, self.index + self.count
        if isinstance(content, Batch):
            return content.slice(self.index, stop)
        return content.cut(self.index, stop)


class Delivery(msgspec.Struct, frozen=True, gc=False):
    """What a pop got. `missing` is a chunk that has to be read back before a pop finds more."""

    lease: int
    deadline_ms: int
    state: State
    parts: list[Part]
    missing: Chunk | None = None

    @property
    def count(self) -> int:
        return sum([part.count for part in self.parts])


def pop(
    queue: Queue,
    count: int,
    now_ms: int,
    *,
    bytes_max: int = limits.POP_BYTES_MAX,
    consumer: str = "",
    visibility_ms: int | None = None,
    one_ack: bool = False,
) -> Delivery:
    """Up to `count` messages and about `bytes_max` bytes, but at least one if any is ready; fewer
    where they lie in very many runs, since a pop is one step."""
    if now_ms < queue.now_ms:
        now_ms = queue.now_ms
    else:
        queue.now_ms = now_ms
    settings = queue.settings
    if not 0 < count <= limits.POP_MESSAGES_MAX:
        raise InvalidArgument(f"a pop takes 1 to {limits.POP_MESSAGES_MAX} messages, not {count}")
    if visibility_ms is not None:
        check_allowed("visibility_ms", visibility_ms, 0, limits.TIMEOUT_MS_MAX)
    if settings.max_receive_rate is not None:
        count = min(count, queue.rate.allowed(settings.max_receive_rate, now_ms))
    if queue.paused or count <= 0:
        return _NOTHING
    if count == 1 and queue.busy is None:
        spans, missing = _select_one(queue)
    else:
        spans, missing = select(queue, count, bytes_max)
    if not spans:
        return _NOTHING if missing is None else Delivery(0, 0, State.READY, [], missing)
    wait_ms = settings.visibility_timeout_ms if visibility_ms is None else visibility_ms
    if one_ack:
        state, deadline_ms = RECEIVED, now_ms + wait_ms
    else:
        state, deadline_ms = SENT, now_ms + settings.retransmit_timeout_ms
    lease = lease_out(queue, spans, state, deadline_ms, now_ms, consumer, wait_ms)
    parts = [part_of(spans[0])] if len(spans) == 1 else [part_of(span) for span in spans]
    return Delivery(lease, deadline_ms, state, parts, missing)


def _select_one(queue: Queue) -> tuple[list[Span], Chunk | None]:
    """The same as `select` for one message, without its arithmetic."""
    for lane in queue.awake:
        line, settled = lane.line, lane.log.settled
        head = line.head(settled)
        if head is None:
            break
        if head.chunk.content is None:
            return [], head.chunk
        return [line.take(1, settled)], None
    return select(queue, 1, limits.POP_BYTES_MAX)  # the first lane has nothing: look further


def select(queue: Queue, count: int, bytes_max: int) -> tuple[list[Span], Chunk | None]:
    """Take messages out of the line, in the order in which they are due to consumers."""
    spans: list[Span] = []
    while queue.awake:
        lane = queue.awake[0]
        line, settled = lane.line, lane.log.settled
        while line.count:
            head = line.head(settled)
            if head is None:
                break
            chunk = head.chunk
            content = chunk.content
            if content is None:
                return spans, chunk
            take = count
            if chunk.payload_bytes > bytes_max:
                start = head.first - chunk.first if chunk.seqs is None else chunk.index(head.first)
                fits = fitting(content, start, start + head.end - head.first, bytes_max)
                if fits < 1:
                    if spans:
                        return spans, None
                    fits = 1  # a message larger than the limit still goes out, alone
                if fits < take:
                    take = fits
            span = line.take(take, settled)
            spans.append(span)
            taken = span.end - span.first
            count -= taken
            start = chunk.index(span.first)
            bytes_max -= size_of(content, start, start + taken)
            if count <= 0 or bytes_max <= 0 or len(spans) >= limits.POP_RUNS_MAX:
                return spans, None
        queue.sleep(lane)
    return spans, None


def lease_out(
    queue: Queue,
    spans: list[Span],
    state: State,
    deadline_ms: int,
    now_ms: int,
    consumer: str,
    visibility_ms: int,
) -> int:
    """Put messages that were in line on a lease of their own."""
    lease = queue.next_lease
    queue.next_lease = lease + 1
    ranges = put_on_lease(queue, lease, spans, state, deadline_ms, now_ms, consumer, visibility_ms)
    if queue.events is not None:
        for span in spans:
            add_event(queue, EventKind.DELIVERED, span, now_ms)
    if queue.settings.max_receive_rate is not None:
        queue.rate.spend(sum(span.end - span.first for span in spans))
    queue.changes.append(
        Delivered(
            lease=lease,
            state=state,
            at_ms=now_ms,
            deadline_ms=deadline_ms,
            visibility_ms=visibility_ms,
            consumer=consumer,
            ranges=ranges,
        )
    )
    return lease


def put_on_lease(
    queue: Queue,
    lease: int,
    spans: list[Span],
    state: State,
    deadline_ms: int,
    now_ms: int,
    consumer: str,
    visibility_ms: int,
) -> Ranges:
    """A delivery, which counts as an attempt. Returns which messages those are."""
    first_time = queue.first_time
    if first_time.first_delivered_ms != now_ms:
        first_time = queue.first_time = History(1, now_ms)
    taken = 0
    for span in spans:
        history = span.history
        span.history = first_time if history is None else attempted(history)
        span.state = state
        span.deadline_ms = deadline_ms
        span.delivered_ms = now_ms
        span.visibility_ms = visibility_ms
        span.consumer = consumer
        span.timed_out_lease = 0
        first, end = span.first, span.end
        taken += end - first
        # The same as `note_lease`, for a piece of a chunk that is known already.
        chunk = span.chunk
        leases, base = chunk.leases, chunk.first
        piece = first - base >> PIECE_BITS
        if end - 1 - base >> PIECE_BITS != piece:
            queue.note_lease(span, lease)
        elif leases is None:
            chunk.leases = {piece: [lease]}
        else:
            known = leases.get(piece)
            if known is not None and len(known) < PIECE_LEASES_MAX:
                known.append(lease)
            else:
                queue.note_lease(span, lease)
    if len(spans) == 1:
        low, high = spans[0].first, spans[0].end
        ranges: Ranges = (low, high)
        queue.leases[lease] = spans
    else:  # in order, whatever the turns of groups and priorities: see `ack.index_of`
        queue.leases[lease] = held = sorted(spans, key=by_first)
        low, high = held[0].first, held[-1].end
        ranges = ranges_of(spans)
    if queue.busy is not None:
        for span in spans:
            queue.busy.add_in_flight(span)
    heappush(queue.deadlines, (deadline_ms, lease, low, high))  # the same as `watch`
    if len(queue.deadlines) > queue.deadlines_max:
        queue.sweep()
    queue.in_flight += taken
    queue.totals.delivered += taken
    return ranges


def part_of(span: Span) -> Part:
    """The messages of a span as a consumer gets them; their content is in memory."""
    chunk = span.chunk
    content = chunk.content
    assert content is not None
    first = span.first
    return Part(
        first,
        span.end - first,
        content,
        first - chunk.first if chunk.seqs is None else chunk.index(first),
        chunk.created_first_ms,
        span.history,  # type: ignore[arg-type]
    )


def messages(queue: Queue, delivery: Delivery) -> list[Message]:
    """The messages of a delivery one by one, for those who need them so."""
    found = []
    for part in delivery.parts:
        content, history = part.content, part.history
        for offset in range(part.count):
            seq, index = part.first + offset, part.index + offset
            found.append(
                message_at(
                    queue.incarnation,
                    content,
                    index,
                    seq,
                    part.created_ms if content.created is None else content.created[index],
                    delivery.state,
                    history,
                    delivery.deadline_ms,
                    delivery.lease,
                )
            )
    return found


def message_at(
    incarnation: int,
    content: Content,
    index: int,
    seq: int,
    created_ms: int,
    state: State,
    history: History | None,
    visible_ms: int = 0,
    lease: int = 0,
    delayed_until_ms: int = 0,
) -> Message:
    """One message out of its columns."""
    origin = content.origins[index] if content.origins else None
    attributes = content.attributes
    groups = content.groups
    return Message(
        id=origin.id if origin else message_id(incarnation, seq),
        seq=seq,
        body=bytes(content.payload[content.offsets[index] : content.offsets[index + 1]]),
        priority=priority_of(seq),
        attempts=history.attempts if history else 0,
        created_ms=origin.created_ms if origin else created_ms,
        visible_ms=visible_ms,
        state=state,
        lease=lease,
        delayed_until_ms=delayed_until_ms,
        first_delivered_ms=history.first_delivered_ms if history else 0,
        group_id=groups[index] if isinstance(groups, list) else groups,
        deduplication_id=content.deduplication_ids[index] if content.deduplication_ids else None,
        attributes=attributes[index] if isinstance(attributes, list) else attributes,
        dead_letter=origin.dead_letter if origin else None,
    )


_NOTHING = Delivery(0, 0, State.READY, [])
