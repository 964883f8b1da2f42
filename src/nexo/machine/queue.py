"""The state of one queue. The rules that change it are one file each: `push`, `pop`, `settle`,
`ack`, `fail`, `deadlines`, `claims`, `purge`, `move`, `late_receipts`.

Every message is in exactly one place: in a lane's line (ready), in `scheduled`, in `leases`, or in
`aside` while the disk cannot give it.
Everything a rule does is added to `changes` (for the journal) and, if wanted, to `events`.
Times never go back: `advance` keeps the latest one seen.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any

from nexo.machine.chunk import CHUNK_BYTES
from nexo.machine.fifo import FifoLine
from nexo.machine.groups import END, Busy, GroupedLine
from nexo.machine.life import TIMED
from nexo.machine.line import Line, Row
from nexo.machine.log import Log, Restored
from nexo.machine.rate import Rate
from nexo.machine.span import History, by_first
from nexo.vocabulary.changes import PauseSet
from nexo.vocabulary.identity import first_seq
from nexo.vocabulary.limits import (
    DEADLINES_SWEPT,
    PIECE_BITS,
    PIECE_LEASES_MAX,
    SEQUENCE_BITS,
    SWEPT_AT_ONCE,
)
from nexo.vocabulary.names import TRANSFER_PREFIX
from nexo.vocabulary.states import State

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nexo.machine.chunk import Chunk
    from nexo.machine.claims import Consumer
    from nexo.machine.deduplication import Recent
    from nexo.machine.producers import Producers
    from nexo.machine.span import Span
    from nexo.vocabulary.batch import Batch
    from nexo.vocabulary.changes import QueueChange
    from nexo.vocabulary.events import Event
    from nexo.vocabulary.settings import QueueSettings


# What entries take, measured, with what refers to them; names and keys of usual length.
LEASE_BYTES, SCHEDULED_BYTES, KEY_BYTES, SPAN_BYTES = 475, 300, 150, 310
GROUP_BYTES, GROUPED_MESSAGE_BYTES = 530, 26


class Lane:
    """The messages of one priority: their numbers and chunks, the line they wait in, and those that
    are scheduled, in order of number."""

    __slots__ = ("has_news", "is_awake", "line", "log", "priority", "scheduled")

    def __init__(self, priority: int, log: Log, line: Line | GroupedLine) -> None:
        self.priority = priority
        self.log = log
        self.line = line
        self.scheduled = Row()
        self.has_news = False  # messages came that no commit has collected yet
        self.is_awake = False  # it is one of the queue's `awake`


def _highest_first(lane: Lane) -> int:
    return -lane.priority


class Doomed:
    """Messages that are out of attempts and wait to be moved to the dead-letter queue."""

    __slots__ = ("at_ms", "lease", "reason", "span")

    def __init__(self, lease: int, span: Span, reason: str, at_ms: int) -> None:
        self.lease = lease
        self.span = span
        self.reason = reason
        self.at_ms = at_ms


class Totals:
    """What happened since the queue was created."""

    __slots__ = ("acked", "dead_lettered", "delivered", "expired", "nacked", "pushed", "timed_out")

    def __init__(self) -> None:
        self.pushed = 0
        self.delivered = 0
        self.acked = 0
        self.nacked = 0
        self.timed_out = 0
        self.expired = 0
        self.dead_lettered = 0


class Queue:
    __slots__ = (
        "aside",
        "aside_count",
        "awake",
        "busy",
        "changes",
        "claims",
        "deadlines",
        "deadlines_max",
        "depth",
        "doomed",
        "dropped_rows",
        "emptied",
        "events",
        "first_time",
        "in_flight",
        "incarnation",
        "lanes",
        "lanes_by_priority",
        "leases",
        "name",
        "new_rows",
        "news",
        "next_lease",
        "now_ms",
        "oldest_ms",
        "paused",
        "producers",
        "purged",
        "rate",
        "recent",
        "released",
        "restored",
        "rewritten",
        "row_numbers",
        "scheduled",
        "scheduled_count",
        "settings",
        "totals",
        "unflushed_due",
        "unsorted",
        "unswept",
    )

    def __init__(
        self,
        name: str,
        settings: QueueSettings,
        incarnation: int,
        row_numbers: Iterator[int],
        first_lease: int,
    ) -> None:
        self.name = name
        self.settings = settings
        self.incarnation = incarnation
        self.row_numbers = row_numbers
        self.next_lease = first_lease  # carries the boot epoch, so no number is used twice
        self.now_ms = 0
        self.paused = False
        self.lanes: list[Lane] = []  # highest priority first
        self.lanes_by_priority: dict[int, Lane] = {}
        # A queue may have 256 lanes: no step looks at all of them where few have something to do.
        self.awake: list[Lane] = []  # those that may have a message for a consumer, in that order
        self.news: list[Lane] = []  # those to which messages came since the last commit
        self.unsorted: dict[Lane, None] = {}  # those with groups still to be sorted
        self.oldest_ms: int | None = None  # no message on disk and in line came earlier, if known
        self.restored = Restored()
        self.depth = 0
        self.in_flight = 0
        self.scheduled_count = 0
        self.scheduled: list[tuple[int, int, Span]] = []  # a heap by due time, then number
        self.emptied = 0  # entries there whose messages were removed, at most
        self.leases: dict[int, list[Span]] = {}  # the spans of a lease are in order of number
        self.aside: dict[Chunk, list[Span]] = {}  # what cannot be read
        self.aside_count = 0
        # A heap of (deadline, lease, and where on it: first, end), some of them outdated.
        self.deadlines: list[tuple[int, int, int, int]] = []
        self.deadlines_max = 64  # how many there may be before it is swept
        self.unswept: list[tuple[int, int, int, int]] = []  # the rest of it, while that goes on
        self.first_time = History(1, 0)  # of all first deliveries of the same millisecond
        self.doomed: list[Doomed] = []
        self.busy: Busy | None = Busy(fifo=True) if settings.fifo else None  # None: no groups
        # Messages of a FIFO queue whose flight ended: they count until that is on disk.
        self.released: list[tuple[str | None, int]] = []
        self.rate = Rate()
        self.recent: Recent | None = None
        self.producers: Producers | None = None
        self.claims: dict[str, Consumer] = {}
        self.totals = Totals()
        self.changes: list[QueueChange] = []
        self.new_rows: list[tuple[int, Batch]] = []
        self.dropped_rows: list[int] = []
        self.rewritten: list[Chunk] = []  # copied forward since the last commit
        self.events: list[Event] | None = None
        self.purged: list[Any] = []  # what a purge has left, to be taken apart
        # (first, end, when all of them or each is due) of what has no row yet.
        self.unflushed_due: list[tuple[int, int, int | list[int]]] = []

    # -- Looking ------------------------------------------------------------------------------

    @property
    def ready(self) -> int:
        return self.depth - self.in_flight - self.scheduled_count - self.aside_count

    @property
    def resident_bytes(self) -> int:
        return sum(lane.log.resident_bytes for lane in self.lanes)

    @property
    def bookkeeping_bytes(self) -> int:
        """What is known of messages besides their payload: an estimate, by what each kind of entry
        takes."""
        size = len(self.leases) * LEASE_BYTES + len(self.scheduled) * SCHEDULED_BYTES
        if self.recent is not None:
            size += len(self.recent) * KEY_BYTES
        chunks = sum(map(len, [lane.log.chunks for lane in self.lanes]))
        spans = sum(map(len, [lane.line for lane in self.lanes if isinstance(lane.line, Line)]))
        size += chunks * CHUNK_BYTES + max(0, spans - chunks) * SPAN_BYTES
        if self.busy is not None:
            for lane in self.lanes:
                if isinstance(lane.line, GroupedLine):
                    size += lane.line.groups * GROUP_BYTES + lane.line.count * GROUPED_MESSAGE_BYTES
        return size

    def has_ready(self) -> bool:
        """Whether a pop would find a message (a rate limit aside)."""
        return not self.paused and self.next_lane() is not None

    @property
    def is_sorted(self) -> bool:
        """Whether everything that is on disk stands where consumers find it: `sort_groups`."""
        return not self.unsorted

    # -- Small steps that several rules share -------------------------------------------------

    def next_lane(self) -> Lane | None:
        """The lane of the highest priority that has a message for a consumer. Those that have none
        sleep until a message comes to them, comes back or is on disk, or a group is opened."""
        awake = self.awake
        while awake:
            lane = awake[0]
            if lane.line.count and lane.line.head(lane.log.settled) is not None:
                return lane
            self.sleep(lane)
        return None

    def sleep(self, lane: Lane) -> None:
        self.awake.remove(lane)
        lane.is_awake = False

    def wake(self, lane: Lane) -> None:
        if not lane.is_awake:
            lane.is_awake = True
            insort(self.awake, lane, key=_highest_first)

    def advance(self, now_ms: int) -> int:
        """The time of this step: never before an earlier one."""
        if now_ms > self.now_ms:
            self.now_ms = now_ms
        return self.now_ms

    def lane(self, priority: int) -> Lane:
        lane = self.lanes_by_priority.get(priority)
        if lane is None:
            line: Line | GroupedLine
            log = Log(first_seq(priority), restored=self.restored)
            if self.busy is None:
                line = Line()
            elif self.settings.fifo:
                line = FifoLine(self.busy, log)
            else:
                line = GroupedLine(self.busy, log)
            lane = self.lanes_by_priority[priority] = Lane(priority, log, line)
            insort(self.lanes, lane, key=_highest_first)
        return lane

    def lane_of(self, seq: int) -> Lane:
        return self.lanes_by_priority[seq >> SEQUENCE_BITS]

    def begin_groups(self) -> None:
        """The first message with a group came: the lines are kept by group from now on. What is on
        its way to another shard stays in its order: it is told there by its numbers."""
        if self.name.startswith(TRANSFER_PREFIX):
            return
        self.busy = Busy()
        for held in self.leases.values():
            for span in held:
                self.busy.add_in_flight(span)
        for lane in self.lanes:
            line = GroupedLine(self.busy, lane.log)
            for span in lane.line.spans():
                line.give_back(span)
            lane.line = line

    def set_paused(self, paused: bool) -> None:
        """A paused queue accepts messages and delivers none."""
        if self.paused != paused:
            self.paused = paused
            self.changes.append(PauseSet(paused))

    def schedule(self, span: Span, due_ms: int) -> None:
        """Put messages aside until their time comes."""
        self.scheduled_count += span.end - span.first
        span.state = State.SCHEDULED
        span.deadline_ms = due_ms
        heappush(self.scheduled, (due_ms, span.first, span))
        lane = self.lane_of(span.first)
        lane.scheduled.add(span)
        if self.busy is not None:
            assert isinstance(lane.line, GroupedLine)
            lane.line.hold(span)

    def unschedule(self, span: Span) -> None:
        """The time of messages has come: their entry is out of the heap. `enter` follows."""
        self.scheduled_count -= span.end - span.first
        lane = self.lane_of(span.first)
        lane.scheduled.remove(span)
        if self.busy is not None:
            assert isinstance(lane.line, GroupedLine)
            lane.line.unhold(span)

    def cut_scheduled(self, span: Span, low: int, high: int) -> None:
        """Take messages off the schedule. The entry in the heap stays for what is left of the
        span; if that is nothing it is passed over, here and by whoever looks through the heap."""
        end, lane = span.end, self.lane_of(low)
        if self.busy is not None:
            assert isinstance(lane.line, GroupedLine)
            lane.line.unhold(span.part(low, high))
        self.scheduled_count -= high - low
        if span.first < low:
            span.end = low
            if high < end:
                rest = span.part(high, end)
                heappush(self.scheduled, (span.deadline_ms, rest.first, rest))
                lane.scheduled.add(rest)
        elif high < end:
            span.first = high
        else:
            lane.scheduled.remove(span)
            span.end = span.first
            self.emptied += 1
            while self.scheduled and self.scheduled[0][2].first == self.scheduled[0][2].end:
                heappop(self.scheduled)
                self.emptied -= 1
        if self.emptied > 64 + len(self.scheduled) // 2:
            self.scheduled = [entry for entry in self.scheduled if entry[2].first < entry[2].end]
            heapify(self.scheduled)
            self.emptied = 0

    def enter(self, span: Span) -> None:
        """Put messages in line, at the place of their numbers."""
        span.state = State.READY
        span.deadline_ms = 0
        lane = self.lane_of(span.first)
        if self.oldest_ms is not None:
            self.oldest_ms = min(self.oldest_ms, span.chunk.came_ms(span.first))
        lane.line.give_back(span)
        self.wake(lane)

    def note_lease(self, span: Span, lease: int) -> None:
        """Messages go on a lease. The chunk notes that, so that they are found again."""
        chunk = span.chunk
        if chunk.leases is None:
            chunk.leases = {}
        leases = chunk.leases
        for piece in range(chunk.piece(span.first), chunk.piece(span.end - 1) + 1):
            known = leases.get(piece)
            if known is None:
                leases[piece] = [lease]
            elif known[-1] != lease:
                known.append(lease)
                if len(known) > PIECE_LEASES_MAX:  # most of them have ended, or hold others only
                    low = chunk.first + (piece << PIECE_BITS)
                    high = low + (1 << PIECE_BITS)
                    # This one may not be among the leases yet.
                    leases[piece] = [
                        each for each in known if each == lease or self.on_lease(each, low, high)
                    ]

    def on_lease(self, lease: int, first: int, end: int) -> list[Span]:
        """The spans of a lease that hold messages of a range."""
        spans = self.leases.get(lease)
        if spans is None:
            return []
        if len(spans) == 1:
            span = spans[0]
            return [span] if span.first < end and span.end > first else []
        found = []
        for at in range(max(0, bisect_right(spans, first, key=by_first) - 1), len(spans)):
            span = spans[at]
            if span.first >= end:
                break
            if span.end > first:
                found.append(span)
        return found

    def watch(self, lease: int, deadline_ms: int, first: int = 0, end: int = END) -> None:
        """At this deadline those messages of the lease in that range time out that still have it
        then."""
        heappush(self.deadlines, (deadline_ms, lease, first, end))
        if len(self.deadlines) > self.deadlines_max:
            self.sweep()

    def sweep(self) -> None:
        """Drop deadlines that are outdated, before they are most of the heap: acked leases leave
        nothing behind. With many in flight some are looked at with each deadline that comes, until
        all have been; the next time is after as many steps as this one took."""
        if self.in_flight <= SWEPT_AT_ONCE and not self.unswept:
            self._sweep_at_once()
            return
        if not self.unswept:
            self.unswept, self.deadlines = self.deadlines, []
            self.deadlines_max = 0  # so that this is called again
        unswept, deadlines = self.unswept, self.deadlines
        for _ in range(min(DEADLINES_SWEPT, len(unswept))):
            entry = unswept.pop()  # the last: a heap stays one without it
            if self._is_watched(*entry):
                heappush(deadlines, entry)
        if not unswept:
            self.deadlines_max = 64 + 4 * len(self.deadlines)

    def _sweep_at_once(self) -> None:
        deadlines = []
        spans = 0
        for lease, held in self.leases.items():
            spans += len(held)
            if len(held) == 1:  # as most often
                span = held[0]
                if span.state in TIMED:
                    deadlines.append((span.deadline_ms, lease, span.first, span.end))
                continue
            bounds: dict[int, tuple[int, int]] = {}
            for span in held:
                if span.state in TIMED:
                    first, _ = bounds.get(span.deadline_ms, (span.first, 0))
                    bounds[span.deadline_ms] = (first, span.end)
            deadlines += [(deadline_ms, lease, *each) for deadline_ms, each in bounds.items()]
        heapify(deadlines)
        self.deadlines = deadlines
        self.deadlines_max = 64 + 4 * spans

    def _is_watched(self, deadline_ms: int, lease: int, first: int, end: int) -> bool:
        """Whether messages of the lease in that range have this deadline. Of a range of many runs
        only the first are asked: if it is none of them, the entry stays until it is due."""
        spans = self.leases.get(lease)
        if spans is None:
            return False
        if len(spans) == 1:
            span = spans[0]
            return (
                span.deadline_ms == deadline_ms
                and first < span.end
                and span.first < end
                and span.state in TIMED
            )
        start = max(0, bisect_right(spans, first, key=by_first) - 1)
        for span in spans[start : start + DEADLINES_SWEPT]:
            if span.first >= end:
                return False
            if span.deadline_ms == deadline_ms and span.end > first and span.state in TIMED:
                return True
        return start + DEADLINES_SWEPT < len(spans)

    @property
    def next_deadline_ms(self) -> int | None:
        """The earliest deadline; it may be outdated."""
        if self.unswept:
            first = self.unswept[0]
            return min(first, self.deadlines[0])[0] if self.deadlines else first[0]
        return self.deadlines[0][0] if self.deadlines else None

    def take_deadline(self) -> tuple[int, int, int, int]:
        """Take the entry of the earliest deadline out."""
        if self.unswept and not (self.deadlines and self.deadlines[0] < self.unswept[0]):
            return heappop(self.unswept)
        return heappop(self.deadlines)

    def end_flight(self, span: Span) -> None:
        """Messages are no longer in flight. In a FIFO queue their group stays locked until that
        is on disk: were it opened before, a crash could deliver what follows them first."""
        count = span.end - span.first
        self.in_flight -= count
        if self.busy is None:
            return
        if self.settings.fifo:
            self.released.extend([(span.group, seq) for seq in range(span.first, span.end)])
        else:
            self.calm(span.group, count)

    def lock_until_durable(self, span: Span) -> None:
        """Messages that waited for a time are gone. In a FIFO queue those behind them waited too,
        and do so until that is on disk; then their group is opened."""
        if self.busy is not None and self.settings.fifo:
            self.busy.add_in_flight(span)
            self.released.extend([(span.group, seq) for seq in range(span.first, span.end)])

    def calm(self, group: str | None, count: int = 0) -> None:
        """Fewer messages of a group are in flight: `count` fewer, if that is not noted yet."""
        busy = self.busy
        assert busy is not None
        if count:
            busy.add(group, -count)
        if self.settings.fifo:
            for lane in self.lanes:  # there is one: FIFO queues have no priorities
                assert isinstance(lane.line, GroupedLine)
                lane.line.calm(group)
                self.wake(lane)
        elif group in busy.aside and not busy.noisy(group):
            for line in busy.aside.pop(group):
                line.calm(group)

    def remove(self, chunk: Chunk, count: int) -> None:
        """Messages of a chunk are gone; with the last one the chunk goes, and its rows."""
        self.depth -= count
        chunk.live -= count
        if chunk.live == 0:
            self.dropped_rows += self.lane_of(chunk.first).log.drop(chunk)
