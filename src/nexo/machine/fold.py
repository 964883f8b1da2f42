"""Fold: bring an image forward by what the journal says happened. No rule is run here."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from nexo.machine.fail import TIMED_OUT, history_after
from nexo.machine.image import (
    ChunkImage,
    ClaimImage,
    Free,
    Image,
    Leased,
    ProducerImage,
    merged_free,
    merged_leased,
)
from nexo.machine.span import History, attempted
from nexo.vocabulary import changes as c
from nexo.vocabulary.batch import TIME_TYPE
from nexo.vocabulary.errors import DataCorrupt
from nexo.vocabulary.limits import (
    PRODUCER_IDLE_MS,
    PRODUCER_RESULTS_KEPT,
    PRODUCERS_MAX,
    SEQUENCE_BITS,
)
from nexo.vocabulary.states import Cause

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence


_first = attrgetter("first")


def fold(image: Image, records: Iterable[Sequence[c.QueueChange]]) -> Image:
    """The image after these records; the one given is used up."""
    folding = _Folding(image)
    for record in records:
        for change in record:
            try:
                step = _STEPS[type(change)]
            except KeyError:
                raise _unknown(change) from None
            step(folding, change)
    return folding.image()


class _Folding:
    """An image being brought forward: free spans sorted by number, chunks by their first one."""

    def __init__(self, image: Image) -> None:
        self._image = image
        self._free = image.free
        self._firsts = [span.first for span in self._free]
        if self._firsts != sorted(self._firsts):
            self._free.sort(key=_first)
            self._firsts.sort()
        self._leases = image.leases
        self._chunks = {chunk.first: chunk for chunk in image.chunks}

    def image(self) -> Image:
        image = self._image
        now_ms = image.now_ms
        for span in self._free:
            if 0 < span.due_ms <= now_ms:
                span.due_ms = 0
        image.free = merged_free(self._free)
        image.leases = {lease: merged_leased(s) for lease, s in self._leases.items()}
        image.chunks = self._live_chunks()
        image.recent = {k: v for k, v in image.recent.items() if v[0] > now_ms}
        return image

    def _live_chunks(self) -> list[ChunkImage]:
        """Those that hold a message. Numbers are never used twice, so a dead one stays dead."""
        image = self._image
        leased = sorted([s for spans in image.leases.values() for s in spans], key=_first)
        places: tuple[Sequence[Free] | Sequence[Leased], ...] = (image.free, leased)
        firsts = [[span.first for span in spans] for spans in places]
        live = []
        for first in sorted(self._chunks):
            chunk = self._chunks[first]
            for spans, begin in zip(places, firsts, strict=True):
                at = bisect_left(begin, chunk.end) - 1  # the last one that begins before its end
                if at >= 0 and spans[at].end > first:
                    live.append(chunk)
                    break
        return live

    def pushed(self, change: c.Pushed) -> None:
        self._at(max(change.created_last_ms, change.arrived_ms))
        self._grow_chunk(change)
        dues = change.due_ms
        if isinstance(dues, int):
            self._insert(Free(change.first, change.end, None, dues))
        else:
            for seq, due_ms in enumerate(dues, change.first):
                self._insert(Free(seq, seq + 1, None, due_ms))
        # What a topic shares is told at once, before earlier pushes of the same commit.
        lane, ends = change.first >> SEQUENCE_BITS, self._image.ends
        ends[lane] = max(change.end, ends.get(lane, 0))
        self._image.totals.pushed += change.end - change.first

    def delivered(self, change: c.Delivered) -> None:
        self._at(change.at_ms)
        spans = self._leases.setdefault(change.lease, [])
        for first, end in _pairs(change.ranges):
            for free in self._carve(first, end):
                history = free.history
                spans.append(
                    Leased(
                        free.first,
                        free.end,
                        History(1, change.at_ms) if history is None else attempted(history),
                        change.state,
                        change.deadline_ms,
                        change.visibility_ms,
                        change.consumer,
                    )
                )
            self._image.totals.delivered += end - first

    def moved(self, change: c.Moved) -> None:
        for first, end in _pairs(change.ranges):
            for leased in self._carve_lease(change.lease, first, end):
                leased.state = change.state
                leased.deadline_ms = change.deadline_ms
                if change.attempt:
                    leased.history = attempted(leased.history)
                self._leases.setdefault(change.lease, []).append(leased)
            self._count(change.failed, end - first)

    def removed(self, change: c.Removed) -> None:
        totals = self._image.totals
        for first, end in _pairs(change.ranges):
            if change.lease:
                self._carve_lease(change.lease, first, end)
            else:
                self._carve(first, end)
            if change.cause is Cause.ACKED:
                totals.acked += end - first
            elif change.cause is Cause.RETENTION:
                totals.expired += end - first
            elif change.cause is Cause.DEAD_LETTERED:
                totals.dead_lettered += end - first

    def returned(self, change: c.Returned) -> None:
        self._at(change.at_ms)
        for first, end in _pairs(change.ranges):
            for leased in self._carve_lease(change.lease, first, end):
                history = history_after(leased.history, change.cause, change.at_ms)
                self._insert(Free(leased.first, leased.end, history, change.due_ms))
            self._count(change.cause, end - first)

    def purged(self, change: c.Purged) -> None:
        self._at(change.at_ms)
        for store in (self._free, self._firsts, self._leases, self._chunks):
            store.clear()
        self._image.recent.clear()
        for claim in self._image.claims.values():
            claim.batches = {n: (0, s, lapsed) for n, (_, s, lapsed) in claim.batches.items()}

    def rewritten(self, change: c.Rewritten) -> None:
        chunk = self._chunks[change.first]
        chunk.rows, chunk.row_start = [change.row], 0
        chunk.payload_bytes = change.payload_bytes
        chunk.seqs = array(TIME_TYPE, change.seqs).tobytes()

    def remembered(self, change: c.Remembered) -> None:
        for key, seq in zip(change.keys, change.seqs, strict=True):
            self._image.recent[key] = (change.until_ms, seq)

    def produced(self, change: c.Produced) -> None:
        fold_produced(self._image.producers, change)

    def claim_opened(self, change: c.ClaimOpened) -> None:
        claim = self._image.claims.setdefault(change.consumer, ClaimImage(0, 0, {}))
        claim.epoch = change.epoch

    def claimed(self, change: c.Claimed) -> None:
        claim = self._image.claims[change.consumer]
        claim.batches[change.number] = (change.lease, False, False)

    def sealed(self, change: c.Sealed) -> None:
        claim = self._image.claims[change.consumer]
        claim.batches[change.number] = (claim.batches[change.number][0], True, False)

    def claim_acked(self, change: c.ClaimAcked) -> None:
        claim = self._image.claims[change.consumer]
        claim.acked_through = change.through
        claim.batches = {n: b for n, b in claim.batches.items() if n > change.through}

    def claim_emptied(self, change: c.ClaimEmptied) -> None:
        claim = self._image.claims[change.consumer]
        _, sealed, _ = claim.batches[change.number]
        claim.batches[change.number] = (0, sealed, change.lapsed)

    def claim_forgotten(self, change: c.ClaimForgotten) -> None:
        del self._image.claims[change.consumer]

    def pause_set(self, change: c.PauseSet) -> None:
        self._image.paused = change.paused

    def _count(self, failed: Cause | None, count: int) -> None:
        totals = self._image.totals
        totals.nacked += count if failed is Cause.NACKED else 0
        totals.expired += count if failed in TIMED_OUT else 0

    def _at(self, at_ms: int) -> None:
        self._image.now_ms = max(self._image.now_ms, at_ms)

    def _grow_chunk(self, change: c.Pushed) -> None:
        chunk = self._chunks.get(change.chunk)
        if chunk is None:
            self._chunks[change.chunk] = ChunkImage(
                change.first,
                change.end,
                [change.row, *change.more_rows],
                change.row_start,
                change.created_first_ms,
                change.created_last_ms,
                change.groups,
                change.payload_bytes,
                arrived_ms=change.arrived_ms,
            )
        else:
            extend_chunk(chunk, change)

    def _insert(self, span: Free) -> None:
        at = bisect_right(self._firsts, span.first)
        self._firsts.insert(at, span.first)
        self._free.insert(at, span)

    def _carve(self, first: int, end: int) -> list[Free]:
        """Take a range out of the free spans."""
        at = max(0, bisect_right(self._firsts, first) - 1)
        if at < len(self._free) and self._free[at].first == first and self._free[at].end == end:
            del self._firsts[at]  # all of one: the usual case
            return [self._free.pop(at)]
        carved, found = [], 0
        while at < len(self._free) and self._free[at].first < end:
            span = self._free[at]
            low, high = max(first, span.first), min(end, span.end)
            if low >= high:
                at += 1
                continue
            carved.append(Free(low, high, span.history, span.due_ms))
            found += high - low
            rest = [
                Free(start, stop, span.history, span.due_ms)
                for start, stop in ((span.first, low), (high, span.end))
                if start < stop
            ]
            self._free[at : at + 1] = rest
            self._firsts[at : at + 1] = [each.first for each in rest]
            at += sum(1 for each in rest if each.first < first)
        _check(found == end - first, first, end)
        return carved

    def _carve_lease(self, lease: int, first: int, end: int) -> list[Leased]:
        """Take a range off a lease."""
        held = self._leases.get(lease, [])
        if len(held) == 1 and held[0].first == first and held[0].end == end:
            return self._leases.pop(lease)
        carved: list[Leased] = []
        left: list[Leased] = []
        for span in held:
            low, high = max(first, span.first), min(end, span.end)
            if low >= high:
                left.append(span)
                continue
            for start, stop in ((span.first, low), (high, span.end)):
                if start < stop:
                    left.append(_part(span, start, stop))
            carved.append(_part(span, low, high))
        if left:
            self._leases[lease] = left
        else:
            self._leases.pop(lease, None)
        _check(sum(span.end - span.first for span in carved) == end - first, first, end)
        return carved


_STEPS: dict[type[Any], Callable[[_Folding, Any], None]] = {
    c.Pushed: _Folding.pushed,
    c.Delivered: _Folding.delivered,
    c.Moved: _Folding.moved,
    c.Removed: _Folding.removed,
    c.Returned: _Folding.returned,
    c.Purged: _Folding.purged,
    c.Rewritten: _Folding.rewritten,
    c.Remembered: _Folding.remembered,
    c.Produced: _Folding.produced,
    c.ClaimOpened: _Folding.claim_opened,
    c.Claimed: _Folding.claimed,
    c.Sealed: _Folding.sealed,
    c.ClaimAcked: _Folding.claim_acked,
    c.ClaimEmptied: _Folding.claim_emptied,
    c.ClaimForgotten: _Folding.claim_forgotten,
    c.PauseSet: _Folding.pause_set,
}


def fold_produced(producers: dict[str, ProducerImage], change: c.Produced) -> None:
    """The same bookkeeping as `producers.Producers.remember`, on an image."""
    known = producers.pop(change.producer, None) or ProducerImage(0, {})
    producers[change.producer] = known
    known.seen_ms = change.at_ms
    known.answers[change.number] = change.seqs
    if len(known.answers) > PRODUCER_RESULTS_KEPT:
        del known.answers[min(known.answers)]
    oldest = next(iter(producers))
    idle = producers[oldest].seen_ms <= change.at_ms - PRODUCER_IDLE_MS
    if len(producers) > PRODUCERS_MAX or idle:
        del producers[oldest]


def extend_chunk(chunk: ChunkImage, change: c.Pushed | c.Published) -> None:
    """A chunk that small pushes fill grew by a row."""
    before, added = chunk.end - chunk.first, change.end - change.first
    chunk.created_last_ms = change.created_last_ms
    groups = change.groups if isinstance(change, c.Pushed) else None
    if chunk.groups is not None or groups is not None:
        old = chunk.groups if isinstance(chunk.groups, list) else [chunk.groups] * before
        new = groups if isinstance(groups, list) else [groups] * added
        chunk.groups = old + new
    chunk.rows.append(change.row)
    chunk.end = change.end
    chunk.payload_bytes += change.payload_bytes


def _unknown(change: object) -> DataCorrupt:
    return DataCorrupt(f"the journal has a change that this version does not know: {change}")


def _part(span: Leased, first: int, end: int) -> Leased:
    return Leased(
        first,
        end,
        span.history,
        span.state,
        span.deadline_ms,
        span.visibility_ms,
        span.consumer,
    )


def _pairs(ranges: c.Ranges) -> Iterator[tuple[int, int]]:
    return zip(ranges[::2], ranges[1::2], strict=True)


def _check(holds: bool, first: int, end: int) -> None:
    if not holds:
        raise DataCorrupt(
            f"the journal tells of messages {first} to {end}, which are not where it says",
            "restore a backup, or run the verifier to see what else is wrong",
        )
