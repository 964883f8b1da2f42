"""Views: all messages of a queue at one moment, to be read slice by slice. The calls that clients
make for them say snapshot; in the broker that word means the state of an owner in the journal.

A view takes nothing. It keeps hold of the contents that are in memory when it is made, so what
is acked, moved or expires meanwhile can still be read. Of contents that are on disk alone it only
knows the place: what is gone from there before it is read is missing, and is counted. A view
ends when nobody has read it for a while; it does not outlive the broker.

The tasks of a query of Spark run on many machines and all want the same moment: whoever comes first
names the scan and opens its view, and the others get that one. A scan never gets a second view:
some of its tasks have read the first.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from nexo.engine.actor import PartOf
from nexo.machine.peek import everything
from nexo.machine.pop import Part
from nexo.machine.span import History
from nexo.vocabulary.batch import fitting, size_of
from nexo.vocabulary.errors import InvalidArgument, LeaseLost
from nexo.vocabulary.identity import priority_of
from nexo.vocabulary.limits import (
    READ_RUNS_MAX,
    VIEW_IDLE_MS,
    VIEW_READ_IDLE_MS,
    VIEW_SCANS_ENDED,
    VIEWS_MAX,
)
from nexo.vocabulary.states import State

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nexo.engine.queue_actor import QueueActor
    from nexo.machine.chunk import Chunk, Content
    from nexo.machine.peek import Glance
    from nexo.machine.queue import Queue

_UNDELIVERED = History(0, 0)


class Wanted(msgspec.Struct, frozen=True):
    """Which messages are of interest; what is ruled out by whole runs is left out."""

    priority: tuple[int, int] = (0, 255)  # the lowest and the highest
    attempts: tuple[int, int] = (0, 2**62)
    created_ms: tuple[int, int] = (-(2**62), 2**62)


class ViewInfo(msgspec.Struct, frozen=True):
    snapshot: str  # its name
    count: int
    payload_bytes: int  # roughly
    incarnation: int
    at_ms: int


class ViewReading(msgspec.Struct, frozen=True):
    """`states` has one for each part; `missing` are messages that are gone from the disk."""

    parts: list[Part]
    states: list[State]
    next: int
    missing: int


class _Run(NamedTuple):
    """Messages that lay side by side and had lived through the same."""

    first: int
    end: int
    chunk: Chunk
    content: Content | None
    place: int  # of the first one in the content
    created_ms: int
    state: State
    history: History


class View:
    def __init__(self, queue: Queue, runs: list[_Run], at_ms: int, scan: str) -> None:
        self.queue = queue
        self.at_ms = at_ms
        self.scan = scan
        self.runs = runs
        self.starts = [0]  # the place of each run in the whole, and the end
        for run in runs:
            self.starts.append(self.starts[-1] + run.end - run.first)
        self.read = 0  # how many messages were read, one that is read again counted again
        self.expiry: asyncio.TimerHandle | None = None

    @property
    def count(self) -> int:
        return self.starts[-1]

    def expected(self, start: int, stop: int, bytes_max: int) -> list[_Run]:
        """The runs that a read from place `start` on is likely to take, by their mean sizes."""
        number = bisect_right(self.starts, start) - 1
        first = last = number
        while last < len(self.runs) and last < first + READ_RUNS_MAX:
            if self.starts[last] >= stop or bytes_max <= 0:
                break
            bytes_max -= _payload_bytes(self.runs[last])
            last += 1
        return self.runs[first:last]


class Views(PartOf["QueueActor"]):
    """The views of one queue."""

    def __init__(self, actor: QueueActor) -> None:
        super().__init__(actor)
        self._views: dict[str, View] = {}  # the longest unread first
        self._opened = 0
        self._scans: dict[str, str] = {}  # the views of scans, by their name
        self._ended: dict[str, None] = {}  # scans that had one, the longest ago first

    def open(self, wanted: Wanted, scan: str = "") -> ViewInfo:
        """A new view, or the one that this scan has already."""
        if scan in self._ended:
            raise self._over(f"for {scan!r:.80}")
        name = self._scans.get(scan, "")
        view = self._views.get(name)
        if view is None or view.queue is not self._actor.queue:
            name, view = self._open(wanted, scan)
        self._touch(name, view)
        size = sum(_payload_bytes(run) for run in view.runs)
        return ViewInfo(name, view.count, size, view.queue.incarnation, view.at_ms)

    def _open(self, wanted: Wanted, scan: str) -> tuple[str, View]:
        actor = self._actor
        queue = actor.queue
        runs = [_run(each) for each in everything(queue) if _matches(each, wanted)]
        view = View(queue, runs, actor.now_ms(), scan)
        # The lease counter carries the boot, so a name is never given again after a restart.
        self._opened += 1
        name = f"{queue.next_lease:x}.{self._opened}"
        if len(self._views) >= VIEWS_MAX:
            self.close(next(iter(self._views)))
        self._views[name] = view
        if scan:
            self._scans[scan] = name
        return name, view

    def close(self, name: str) -> None:
        """It may be gone already."""
        view = self._views.pop(name, None)
        if view is None:
            return
        if view.expiry is not None:
            view.expiry.cancel()
        if view.scan:
            self._end_scan(view.scan)

    def _end_scan(self, scan: str) -> None:
        self._views.pop(self._scans.pop(scan, ""), None)
        self._ended[scan] = None
        if len(self._ended) > VIEW_SCANS_ENDED:
            del self._ended[next(iter(self._ended))]

    def _over(self, which: str) -> LeaseLost:
        return LeaseLost(
            f"snapshot {which} of queue {self._actor.name!r} no longer exists",
            "it was unused for too long, or the broker restarted: run the query again",
        )

    async def read(
        self, name: str, start: int, count: int, bytes_max: int, scan: str = ""
    ) -> ViewReading:
        """Messages from place `start` of the view on: up to `count` and about `bytes_max`
        bytes, but at least one if there is any. `next` is where to go on."""
        if start < 0 or count < 1:
            raise InvalidArgument("a read takes a start from 0 on and at least one message")
        actor = self._actor
        view = self._views.get(name)
        if view is None or view.queue is not actor.queue:
            if scan:  # before a restart: what others of this scan opened since is another moment
                self._end_scan(scan)
            raise self._over(f"{name!r:.40}")
        self._touch(name, view)
        stop = min(start + count, view.count)
        with actor.contents.pins() as pins:
            runs = view.expected(start, stop, bytes_max)
            await actor.contents.read_all_back(_unread(runs), pins)
            reading = _assembled(view, start, runs, stop, bytes_max)
        view.read += reading.next - start
        self._touch(name, view)
        return reading

    def _touch(self, name: str, view: View) -> None:
        self._views[name] = self._views.pop(name)
        if view.expiry is not None:
            view.expiry.cancel()
        idle_ms = VIEW_READ_IDLE_MS if view.read >= view.count else VIEW_IDLE_MS
        loop = asyncio.get_running_loop()
        view.expiry = loop.call_later(idle_ms / 1000, self.close, name)


def _assembled(view: View, start: int, runs: list[_Run], stop: int, bytes_max: int) -> ViewReading:
    """What a read takes of these runs, the first of which holds place `start`."""
    parts: list[Part] = []
    states: list[State] = []
    at, missing = start, 0
    skipped = start - view.starts[bisect_right(view.starts, start) - 1]
    for run in runs:
        if at >= stop or bytes_max <= 0:
            break
        wanted = min(run.end - run.first - skipped, stop - at)
        found = _parts(run, run.first + skipped, wanted)
        kept = _fitting(found, bytes_max, bool(parts))
        parts += kept
        states += [run.state] * len(kept)
        bytes_max -= sum(_size(part) for part in kept)
        came = sum(part.count for part in kept)
        is_cut = came < sum(part.count for part in found)
        if is_cut:
            wanted = kept[-1].first + kept[-1].count - run.first - skipped if kept else 0
        missing += wanted - came
        at += wanted
        skipped = 0
        if is_cut:
            break
    return ViewReading(parts, states, at, missing)


def _unread(runs: list[_Run]) -> Iterator[Chunk]:
    """What has to be read back for these; of what is gone from the disk nothing comes."""
    return (
        run.chunk
        for run in runs
        if run.content is None and run.chunk.content is None and run.chunk.live
    )


def _parts(run: _Run, first: int, count: int) -> list[Part]:
    """Messages of a run, of which some may be gone if its content was not in memory."""
    if run.content is not None:
        index = run.place + first - run.first
        return [Part(first, count, run.content, index, run.created_ms, run.history)]
    chunk, content = run.chunk, run.chunk.content
    if content is None:
        return []
    return [
        Part(low, high - low, content, chunk.index(low), run.created_ms, run.history)
        for low, high in _present(chunk, first, first + count)
    ]


def _matches(seen: Glance, wanted: Wanted) -> bool:
    attempts = seen.span.history.attempts if seen.span.history is not None else 0
    return (
        wanted.priority[0] <= priority_of(seen.first) <= wanted.priority[1]
        and wanted.attempts[0] <= attempts <= wanted.attempts[1]
        and seen.chunk.created_first_ms <= wanted.created_ms[1]
        and (seen.chunk.created_last_ms >= wanted.created_ms[0])
    )


def _run(seen: Glance) -> _Run:
    chunk = seen.chunk
    return _Run(
        seen.first,
        seen.end,
        chunk,
        chunk.content,
        chunk.index(seen.first),
        chunk.created_first_ms,
        seen.state,
        seen.span.history or _UNDELIVERED,
    )


def _payload_bytes(run: _Run) -> int:
    chunk = run.chunk
    return chunk.payload_bytes * (run.end - run.first) // max(1, chunk.end - chunk.first)


def _present(chunk: Chunk, first: int, end: int) -> Iterator[tuple[int, int]]:
    """The runs of messages `first` to `end` that a chunk still has."""
    if chunk.seqs is None:
        yield first, end
        return
    low = high = first
    for seq in chunk.seqs:
        if not first <= seq < end:
            continue
        if seq != high:
            if high > low:
                yield low, high
            low = seq
        high = seq + 1
    if high > low:
        yield low, high


def _size(part: Part) -> int:
    return size_of(part.content, part.index, part.index + part.count)


def _fitting(parts: list[Part], bytes_max: int, has_some: bool) -> list[Part]:
    """The first of these that take about so many bytes, but at least one message if none is
    taken yet."""
    taken: list[Part] = []
    for part in parts:
        fits = fitting(part.content, part.index, part.index + part.count, bytes_max)
        if fits < 1 and not has_some and not taken:
            fits = 1
        if fits:
            taken.append(msgspec.structs.replace(part, count=fits))
            bytes_max -= _size(taken[-1])
        if fits < part.count:
            break
    return taken
