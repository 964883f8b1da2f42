"""A transfer: messages leave for a queue in another shard of a cluster.

Shards have no common commit. So what has to go to another one lies in a queue of its own shard in
between, and is pushed to its target from there. The target remembers up to which number it has what
came from that queue: what is pushed again, because an answer was lost or another node has taken
over, is dropped there, however it is divided into pushes. That works because the messages of a
priority are pushed in the order of their numbers, and none before the one in front of it is stored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nexo.machine.move import lease_for_move
from nexo.machine.producers import Producers
from nexo.machine.push import push_moved
from nexo.vocabulary.changes import Produced
from nexo.vocabulary.errors import InvalidArgument
from nexo.vocabulary.identity import first_seq, priority_of
from nexo.vocabulary.names import TRANSFER_PREFIX

if TYPE_CHECKING:
    from nexo.machine.queue import Queue
    from nexo.machine.span import Span
    from nexo.vocabulary.batch import Batch


def take(queue: Queue, count: int, runs_max: int) -> list[tuple[int, Span]]:
    """Take the first messages of a priority aside: (lease, span) pairs in the order of numbers."""
    picked: list[tuple[int, Span]] = []
    lane = queue.next_lane()
    if lane is None:
        return picked
    settled = lane.log.settled
    while count > 0 and len(picked) < runs_max and lane.line.head(settled) is not None:
        span = lane.line.take(count, settled)
        picked.append((lease_for_move(queue, span), span))
        count -= span.end - span.first
    return picked


def producer_of(queue: Queue, span: Span) -> str:
    """Under which name its messages are pushed: nobody else ever has it."""
    kind = queue.name.removeprefix(TRANSFER_PREFIX).partition(".")[0]
    return f"{TRANSFER_PREFIX}{kind}.{queue.incarnation:x}.{priority_of(span.first)}"


def ranges_of(spans: list[Span]) -> list[int]:
    """Their numbers among those of their priority, as flat ranges."""
    base = first_seq(priority_of(spans[0].first))
    return [bound - base for span in spans for bound in (span.first, span.end)]


def push_transferred(
    queue: Queue, batch: Batch, producer: str, ranges: list[int], now_ms: int
) -> int:
    """Messages from another shard arrive, those of them that have not been here. As in
    `push_moved` nothing may refuse them. Returns how many are new."""
    pairs = list(zip(ranges[::2], ranges[1::2], strict=True))
    if not ranges or sorted(ranges) != ranges or batch.count != sum(end - at for at, end in pairs):
        raise InvalidArgument("the numbers of a transfer are not those of its messages")
    producers = queue.producers
    through = 0 if producers is None else producers.highest(producer)
    known = sum(max(0, min(end, through) - at) for at, end in pairs)
    if known == batch.count:
        return 0
    if producers is None:
        producers = queue.producers = Producers()
    now_ms = queue.advance(now_ms)
    accepted = push_moved(queue, batch.slice(known, batch.count), now_ms)
    producers.remember(producer, ranges[-1], now_ms, accepted.ranges)
    queue.changes.append(Produced(producer, ranges[-1], now_ms, accepted.ranges))
    return batch.count - known
