"""Binding from a start in the past: what a topic has kept goes into a queue.

Nothing is copied: the queue holds the rows of the topic. The contents are looked at one by one,
to choose by attributes and to know the groups; then everything arrives in one step, which is the
step that binds.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, NamedTuple

from nexo.machine.chunk import Growing
from nexo.machine.events import add_pushed
from nexo.machine.log import Piece
from nexo.machine.push import place
from nexo.vocabulary import limits
from nexo.vocabulary.attributes import matches
from nexo.vocabulary.batch import size_of
from nexo.vocabulary.changes import Published, Pushed
from nexo.vocabulary.filter_policy import Looked, Policy, compiled

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nexo.machine.chunk import Chunk, Content
    from nexo.machine.queue import Queue
    from nexo.machine.topic import Topic
    from nexo.vocabulary.changes import Bound

    Filter = dict[str, str] | Policy | None
    Verdicts = dict[tuple[Policy, bytes | None], bool]


class Run(NamedTuple):
    """Messages of a chunk side by side that a binding wants, and what has to be known of them."""

    start: int
    stop: int
    payload_bytes: int
    groups: str | list[str | None] | None
    created_first_ms: int
    created_last_ms: int


def filter_of(bound: Bound) -> Filter:
    """What a binding asks for: attributes, or the filter policy of an SNS subscription."""
    if bound.sns is None:
        return bound.where
    return compiled(bound.sns.filter_policy, bound.sns.filter_scope)


def wanted_runs(
    content: Content, start: int, where: Filter, looks: Looks | None = None
) -> list[tuple[int, int]]:
    """Which messages from `start` on a binding wants: where each run begins and ends. With the
    same `looks`, several filters share what they had to read of the messages."""
    count = content.count
    if where is None:
        return [(start, count)] if start < count else []
    column = content.attributes
    if isinstance(where, Policy):
        looks = Looks(content) if looks is None else looks
        chosen = [looks.wants(where, index) for index in range(start, count)]
    elif isinstance(column, list):
        chosen = [matches(where, column[index]) for index in range(start, count)]
    else:
        return [(start, count)] if start < count and matches(where, column) else []
    runs: list[tuple[int, int]] = []
    for index, is_wanted in enumerate(chosen, start):
        if is_wanted:
            if runs and runs[-1][1] == index:
                runs[-1] = (runs[-1][0], index + 1)
            else:
                runs.append((index, index + 1))
    return runs


class Looks:
    """The messages of a batch as filter policies see them, each read once. `verdicts` are known
    already: of a policy, and of the body or the attributes that it looks at."""

    def __init__(self, content: Content, verdicts: Verdicts | None = None) -> None:
        self._content = content
        self._verdicts = {} if verdicts is None else verdicts
        self._looked: dict[int, Looked] = {}
        self.work = 0  # what judging took, in the units of `Looked`

    def wants(self, policy: Policy, index: int) -> bool:
        verdict = self._verdicts.get((policy, self._seen_by(policy, index)))
        return policy.wants(self._at(index)) if verdict is None else verdict

    def judge(self, policies: list[Policy], room: int) -> Iterator[None]:
        """Come to a verdict of every message by every policy, in steps of bounded work; the first
        one has this much room."""
        for index in range(self._content.count):
            for policy in policies:
                key = (policy, self._seen_by(policy, index))
                if key not in self._verdicts:
                    looked = self._at(index)
                    before = looked.work
                    self._verdicts[key] = policy.wants(looked)
                    self.work += looked.work - before
                self.work += 1
                if self.work > room:
                    yield
                    room = self.work + limits.FILTERED_STEP_WORK
            self._looked.pop(index, None)

    def _at(self, index: int) -> Looked:
        looked = self._looked.get(index)
        if looked is None:
            looked = self._looked[index] = Looked(self._body(index), self._attributes(index))
        return looked

    def _seen_by(self, policy: Policy, index: int) -> bytes | None:
        return self._body(index) if policy.is_on_body else self._attributes(index)

    def _body(self, index: int) -> bytes:
        content, offsets = self._content, self._content.offsets
        return bytes(content.payload[offsets[index] : offsets[index + 1]])

    def _attributes(self, index: int) -> bytes | None:
        column = self._content.attributes
        return column[index] if isinstance(column, list) else column


def runs_of(chunk: Chunk, offset: int, where: Filter) -> list[Run]:
    """What a binding wants of a chunk from an offset on; its content is in memory."""
    content = chunk.content
    assert content is not None
    runs = []
    for start, stop in wanted_runs(content, max(0, offset - chunk.first), where):
        groups, created = content.groups, content.created
        runs.append(
            Run(
                start=start,
                stop=stop,
                payload_bytes=size_of(content, start, stop),
                groups=groups[start:stop] if isinstance(groups, list) else groups,
                created_first_ms=created[start] if created else chunk.created_first_ms,
                created_last_ms=created[stop - 1] if created else chunk.created_last_ms,
            )
        )
    return runs


def pieces_of(chunk: Chunk, runs: list[Run]) -> Iterator[Piece]:
    """Runs as another owner takes them, each with the rows that it lies in."""
    rows, ends = list(chunk.rows), chunk.row_ends
    for run in runs:
        if ends is None:
            yield _piece(chunk, run, rows, chunk.row_start + run.start)
        else:
            first, last = bisect_right(ends, run.start), bisect_left(ends, run.stop)
            row_start = run.start - (ends[first - 1] if first else 0)
            yield _piece(chunk, run, rows[first : last + 1], row_start)


def _piece(chunk: Chunk, run: Run, rows: list[int], row_start: int) -> Piece:
    """A run with the content if that is in memory."""
    content, batch = chunk.content, None
    if isinstance(content, Growing):
        batch = content.cut(run.start, run.stop)
    elif content is not None:
        batch = content.slice(run.start, run.stop)
    return Piece(
        rows=rows,
        row_start=row_start,
        messages=run.stop - run.start,
        payload_bytes=run.payload_bytes,
        groups=run.groups,
        created_first_ms=run.created_first_ms,
        created_last_ms=run.created_last_ms,
        content=batch,
    )


def push_kept(queue: Queue, piece: Piece, now_ms: int) -> None:
    """Messages that a topic had kept arrive. As in `push_shared`, nothing may refuse them."""
    now_ms = queue.advance(now_ms)
    if piece.groups is not None and queue.busy is None:
        queue.begin_groups()
    chunk = queue.lane(0).log.adopt(piece)
    chunk.arrived_ms = now_ms
    due_ms = now_ms + queue.settings.delay_ms if queue.settings.delay_ms else 0
    place(queue, chunk, chunk.first, chunk.end, due_ms)
    if queue.events is not None:
        add_pushed(queue, chunk.first, chunk.end, now_ms, piece.created_first_ms)
    queue.changes.append(
        Pushed(
            row=piece.rows[0],
            row_start=piece.row_start,
            chunk=chunk.first,
            first=chunk.first,
            end=chunk.end,
            created_first_ms=piece.created_first_ms,
            created_last_ms=piece.created_last_ms,
            due_ms=due_ms,
            groups=piece.groups,
            payload_bytes=piece.payload_bytes,
            more_rows=tuple(piece.rows[1:]),
            arrived_ms=now_ms,
        )
    )


def archive_kept(topic: Topic, piece: Piece, now_ms: int) -> None:
    """The same for the archive of that queue, which counts from when they came to it."""
    now_ms = topic.advance(now_ms)
    chunk = topic.log.adopt(piece)
    topic.kept_bytes += chunk.payload_bytes
    chunk.created_first_ms = chunk.created_last_ms = chunk.arrived_ms = now_ms
    topic.changes.append(
        Published(
            row=piece.rows[0],
            row_start=piece.row_start,
            chunk=chunk.first,
            first=chunk.first,
            end=chunk.end,
            created_first_ms=now_ms,
            created_last_ms=now_ms,
            payload_bytes=piece.payload_bytes,
            more_rows=tuple(piece.rows[1:]),
            arrived_ms=now_ms,
        )
    )
