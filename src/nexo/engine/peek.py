"""Peeking into a queue: single messages, many by the beginnings of their bodies, what a consumer
holds, and its counts. Nothing is taken, and the queue is not copied."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

import msgspec

from nexo.machine import peek as rules
from nexo.vocabulary.batch import OFFSET_TYPE, Batch
from nexo.vocabulary.errors import InvalidArgument
from nexo.vocabulary.identity import message_id, parse_message_id
from nexo.vocabulary.limits import PEEK_HEAD_BYTES
from nexo.vocabulary.message import Message

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nexo.engine.queue_actor import QueueActor
    from nexo.machine.chunk import Content
    from nexo.machine.peek import Glance
    from nexo.machine.queue import Queue
    from nexo.machine.span import Span

    Held = tuple[int, int]  # lease and sequence number


class Glimpse(msgspec.Struct, frozen=True):
    """A message of which the body is only the beginning; `size` is that of all of it. `own_id` is
    its id if it had begun in this queue: it never stands for another message of it."""

    message: Message
    size: int
    own_id: str


async def first_messages(actor: QueueActor, limit: int) -> list[Message]:
    """The first messages of a queue, their contents read back if need be."""
    with actor.contents.pins() as pins:
        while True:
            glances = rules.glance(actor.queue, limit)
            missing = [each.chunk for each in glances if each.chunk.content is None]
            if not missing:
                return rules.show(actor.queue, glances)
            await actor.contents.read_back(missing[0])
            pins.add(missing[0])


async def glimpses(
    actor: QueueActor, limit: int, bytes_max: int, after: int | None = None
) -> list[Glimpse]:
    """The first messages, or those behind number `after`: up to `limit`, and about as many as
    have `bytes_max` bytes together, since contents may have to be read back for it."""
    with actor.contents.pins() as pins:
        while True:
            queue = actor.queue
            chosen = _chosen(queue, limit, bytes_max, after)
            missing = [each.chunk for each in chosen if each.chunk.content is None]
            if not missing:
                return [
                    glimpse_of(queue, each, seq)
                    for each in chosen
                    for seq in range(each.first, each.end)
                ]
            await actor.contents.read_all_back(missing, pins)


async def find(actor: QueueActor, seq: int) -> Message | None:
    """The message with this number, if it is in the queue."""
    while True:
        queue = actor.queue
        seen = rules.find(queue, seq)
        if seen is None:
            return None
        if seen.chunk.content is not None:
            (found,) = rules.show(queue, [msgspec.structs.replace(seen, first=seq, end=seq + 1)])
            return found
        await actor.contents.read_back(seen.chunk)


def _chosen(queue: Queue, limit: int, bytes_max: int, after: int | None) -> list[Glance]:
    chosen: list[Glance] = []
    for each in rules.everything(queue, after):
        first, chunk = each.first, each.chunk
        size = max(1, chunk.payload_bytes // max(1, chunk.end - chunk.first))
        fits = max(bytes_max // size, 0 if chosen else 1)
        end = min(each.end, first + limit, first + fits)
        if first < end:
            chosen.append(msgspec.structs.replace(each, first=first, end=end))
            limit -= end - first
            bytes_max -= size * (end - first)
        if first < each.end and end < each.end:
            break
    return chosen


def glimpse_of(queue: Queue, seen: Glance, seq: int) -> Glimpse:
    """One message of a run whose content is in memory."""
    content = seen.chunk.content
    assert content is not None
    index = seen.chunk.index(seq)
    message = rules.shown(queue, seen, seq, _head(content, index))
    size = content.offsets[index + 1] - content.offsets[index]
    return Glimpse(message, size, message_id(queue.incarnation, seq))


def _head(content: Content, index: int) -> Batch:
    """One message as a batch, with the beginning of its body."""
    low, high = content.offsets[index], content.offsets[index + 1]
    payload = bytes(content.payload[low : min(high, low + PEEK_HEAD_BYTES)])
    groups, attributes = content.groups, content.attributes
    ids, origins = content.deduplication_ids, content.origins
    return Batch(
        payload=payload,
        offsets=array(OFFSET_TYPE, [0, len(payload)]),
        groups=groups[index] if isinstance(groups, list) else groups,
        attributes=attributes[index] if isinstance(attributes, list) else attributes,
        deduplication_ids=[ids[index]] if ids else None,
        origins=[origins[index]] if origins else None,
    )


def held_by(actor: QueueActor, consumer: str, ids: Iterable[str]) -> dict[str, Held]:
    """The lease and number of each of these messages that the consumer holds, for those who speak
    of messages by their ids alone.

    A receipt names a delivery, so that an outdated one is refused. Where only an id is said, the
    delivery is the one that the consumer holds the message on now. Of what others hold it may not
    speak. The newest leases are looked at first: that is what most ask for."""
    queue = actor.queue
    wanted = dict.fromkeys(ids)
    seqs = _seqs(queue.incarnation, wanted)
    found: dict[str, Held] = {}
    for lease in reversed(queue.leases):
        if len(found) == len(wanted):
            break
        for span in actor.spans_on(lease):
            if span.consumer == consumer:
                for seq in _near(span, seqs):
                    found.setdefault(seqs[seq], (lease, seq))
                for moved_id, seq in _moved(span, wanted):
                    found.setdefault(moved_id, (lease, seq))
    return found


def _seqs(incarnation: int, ids: Iterable[str]) -> dict[int, str]:
    """The numbers that ids of this queue stand for."""
    seqs = {}
    for each in ids:
        try:
            drawn, seq = parse_message_id(each)
        except InvalidArgument:
            continue
        if drawn == incarnation and message_id(drawn, seq) == each:
            seqs[seq] = each
    return seqs


def _near(span: Span, seqs: dict[int, str]) -> list[int]:
    """Those of the numbers that lie in a span and stand for the id that they were made from."""
    if len(seqs) < span.end - span.first:
        near = [seq for seq in seqs if span.first <= seq < span.end]
    else:
        near = [seq for seq in range(span.first, span.end) if seq in seqs]
    content = span.chunk.content
    if content is None or not content.origins:
        return near
    return [seq for seq in near if content.origins[span.chunk.index(seq)] is None]


def _moved(span: Span, wanted: dict[str, None]) -> Iterable[tuple[str, int]]:
    """Messages that moved here from another queue keep the id that they had there."""
    content = span.chunk.content
    if content is None or not content.origins:
        return
    for seq in range(span.first, span.end):
        origin = content.origins[span.chunk.index(seq)]
        if origin is not None and origin.id in wanted:
            yield origin.id, seq


# -- Counts -----------------------------------------------------------------------------------


class Counts(msgspec.Struct, frozen=True, gc=False):
    """What `info` tells of a queue that costs nothing to look up: lists of very many queues ask for
    no more. The totals count since the queue was created."""

    depth: int
    ready: int
    scheduled: int
    in_flight: int
    consumers: int
    pushed: int
    delivered: int
    acked: int
    nacked: int
    timed_out: int
    expired: int
    dead_lettered: int


def counts(actor: QueueActor) -> Counts:
    queue, totals = actor.queue, actor.queue.totals
    return Counts(
        depth=queue.depth,
        ready=queue.ready,
        scheduled=queue.scheduled_count,
        in_flight=queue.in_flight,
        consumers=actor.room.consumers,
        pushed=totals.pushed,
        delivered=totals.delivered,
        acked=totals.acked,
        nacked=totals.nacked,
        timed_out=totals.timed_out,
        expired=totals.expired,
        dead_lettered=totals.dead_lettered,
    )


class Traffic(msgspec.Struct, frozen=True, gc=False):
    """Four of the counts: enough to see whether a queue has changed. Thousands of queues are asked
    for them every second while a page of the console is open."""

    depth: int
    in_flight: int
    pushed: int
    acked: int


def traffic(actor: QueueActor) -> Traffic:
    queue, totals = actor.queue, actor.queue.totals
    return Traffic(
        depth=queue.depth, in_flight=queue.in_flight, pushed=totals.pushed, acked=totals.acked
    )
