"""The state of one queue. The rules that change it are one file each: `push`, `pop`, `settle`,
`ack`, `fail`, `expire`, `claims`, `clear`, `depart`.

Every message is in exactly one place: in a lane's line (ready), in `scheduled`, in `leases`, or in
`aside` while the disk cannot give it.
Everything a rule does is added to `changes` (for the journal) and, if wanted, to `events`.
Times never go back: `advance` keeps the latest one seen.
"""

from __future__ import annotations

from heapq import heapify, heappush
from typing import TYPE_CHECKING

from nexo.machine.fifo import FifoLine
from nexo.machine.groups import Busy, GroupedLine
from nexo.machine.line import Line
from nexo.machine.log import Log
from nexo.machine.rate import Rate
from nexo.machine.span import History
from nexo.vocabulary.identity import first_seq
from nexo.vocabulary.limits import SEQUENCE_BITS
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


class Lane:
    """The messages of one priority: their numbers and chunks, and the line they wait in."""

    __slots__ = ("line", "log", "priority")

    def __init__(self, priority: int, line: Line | GroupedLine) -> None:
        self.priority = priority
        self.log = Log(first_seq(priority))
        self.line = line


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

    __slots__ = ("acked", "dead_lettered", "delivered", "expired", "nacked", "pushed")

    def __init__(self) -> None:
        self.pushed = 0
        self.delivered = 0
        self.acked = 0
        self.nacked = 0
        self.expired = 0
        self.dead_lettered = 0


class Queue:
    __slots__ = (
        "aside",
        "aside_count",
        "busy",
        "changes",
        "claims",
        "deadlines",
        "depth",
        "doomed",
        "dropped_rows",
        "events",
        "first_time",
        "in_flight",
        "incarnation",
        "kept_deadlines",
        "lanes",
        "lanes_by_priority",
        "leases",
        "name",
        "new_rows",
        "next_lease",
        "now_ms",
        "paused",
        "producers",
        "rate",
        "recent",
        "released",
        "rewritten",
        "row_numbers",
        "scheduled",
        "scheduled_count",
        "settings",
        "totals",
        "unflushed_due",
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
        self.depth = 0
        self.in_flight = 0
        self.scheduled_count = 0
        self.scheduled: list[tuple[int, int, Span]] = []  # a heap by due time, then number
        self.leases: dict[int, Span | list[Span]] = {}
        self.aside: dict[Chunk, list[Span]] = {}  # what cannot be read
        self.aside_count = 0
        self.deadlines: list[tuple[int, int]] = []  # a heap of (deadline, lease), some outdated
        self.kept_deadlines = 0  # how many were left when they were last swept
        self.first_time = History(1, 0)  # of all first deliveries of the same millisecond
        self.doomed: list[Doomed] = []
        self.busy: Busy | None = Busy(fifo=True) if settings.fifo else None  # None: no groups
        # What landed in a FIFO queue and counts as in flight until that is on disk.
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
        self.unflushed_due: list[tuple[int, int, int]] = []  # (first, end, due) without a row yet

    # -- Looking ------------------------------------------------------------------------------

    @property
    def ready(self) -> int:
        return self.depth - self.in_flight - self.scheduled_count - self.aside_count

    @property
    def resident_bytes(self) -> int:
        return sum(lane.log.resident_bytes for lane in self.lanes)

    def has_ready(self) -> bool:
        """Whether a pop would find a message (a rate limit aside)."""
        if self.paused:
            return False
        return any(lane.line.count and lane.line.head(lane.log.settled) for lane in self.lanes)

    # -- Small steps that several rules share -------------------------------------------------

    def advance(self, now_ms: int) -> int:
        """The time of this step: never before an earlier one."""
        if now_ms > self.now_ms:
            self.now_ms = now_ms
        return self.now_ms

    def lane(self, priority: int) -> Lane:
        lane = self.lanes_by_priority.get(priority)
        if lane is None:
            line: Line | GroupedLine
            if self.busy is None:
                line = Line()
            else:
                line = FifoLine(self.busy) if self.settings.fifo else GroupedLine(self.busy)
            lane = self.lanes_by_priority[priority] = Lane(priority, line)
            self.lanes.append(lane)
            self.lanes.sort(key=lambda each: -each.priority)
        return lane

    def lane_of(self, seq: int) -> Lane:
        return self.lanes_by_priority[seq >> SEQUENCE_BITS]

    def begin_groups(self) -> None:
        """The first message with a group came: the lines are kept by group from now on."""
        self.busy = Busy()
        for held in self.leases.values():
            for span in held if isinstance(held, list) else (held,):
                self.busy.depart(span)
        for lane in self.lanes:
            line = GroupedLine(self.busy)
            for span in lane.line.spans():
                line.give_back(span)
            lane.line = line

    def schedule(self, span: Span, due_ms: int) -> None:
        """Put messages aside until their time comes."""
        self.scheduled_count += span.end - span.first
        span.state = State.SCHEDULED
        heappush(self.scheduled, (due_ms, span.first, span))
        if self.busy is not None:
            line = self.lane_of(span.first).line
            assert isinstance(line, GroupedLine)
            line.hold(span)

    def enter(self, span: Span) -> None:
        """Put messages in line, at the place of their numbers."""
        span.state = State.READY
        self.lane_of(span.first).line.give_back(span)

    def watch(self, lease: int, deadline_ms: int) -> None:
        """Expire the lease at that time. Outdated entries are skipped there, and swept out here
        before they are most of the heap, so that acked leases leave nothing behind."""
        deadlines = self.deadlines
        heappush(deadlines, (deadline_ms, lease))
        # The second condition: one lease may have a deadline a message, and all of them current.
        if len(deadlines) > 64 + 4 * len(self.leases) and len(deadlines) > 2 * self.kept_deadlines:
            current = {
                (span.deadline_ms, lease)
                for lease, held in self.leases.items()
                for span in (held if isinstance(held, list) else (held,))
            }
            self.deadlines = list(current.intersection(deadlines))
            heapify(self.deadlines)
            self.kept_deadlines = len(self.deadlines)

    def land(self, span: Span) -> None:
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

    def calm(self, group: str | None, count: int = 0) -> None:
        """Fewer messages of a group are in flight: `count` fewer, if that is not noted yet."""
        assert self.busy is not None
        if count:
            self.busy.add(group, -count)
        for lane in self.lanes:
            assert isinstance(lane.line, GroupedLine)
            lane.line.calm(group)

    def bury(self, chunk: Chunk, count: int) -> None:
        """Messages of a chunk are gone; with the last one the chunk goes, and its rows."""
        self.depth -= count
        chunk.live -= count
        if chunk.live == 0:
            self.dropped_rows += self.lane_of(chunk.first).log.drop(chunk)
