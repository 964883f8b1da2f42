"""What a consumer holds, by message id: for those who speak of messages by their ids alone.

A receipt names a delivery, so that an outdated one is refused. Where only an id is said, the
delivery is the one that the consumer holds the message on now. Of what others hold it may not
speak.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nexo.vocabulary.errors import InvalidArgument
from nexo.vocabulary.identity import message_id, parse_message_id

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nexo.engine.queue_actor import QueueActor
    from nexo.machine.span import Span

    Holding = tuple[int, int]  # lease and sequence number


def holdings(actor: QueueActor, consumer: str, ids: Iterable[str]) -> dict[str, Holding]:
    """The lease and number of each of these messages that the consumer holds. The newest leases
    are looked at first: that is what most ask for."""
    queue = actor.queue
    wanted = dict.fromkeys(ids)
    seqs = _seqs(queue.incarnation, wanted)
    found: dict[str, Holding] = {}
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
