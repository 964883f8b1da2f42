"""Moves between queues: dead letters and redrive.

A move takes messages out of one queue and puts them into another in the same step, so the same
commit: a message is never in two places, nor in none, whatever crashes.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from nexo.machine import move as rules
from nexo.machine import unreadable
from nexo.machine.fail import spare
from nexo.machine.push import push_moved
from nexo.vocabulary import limits
from nexo.vocabulary.errors import (
    DataCorrupt,
    InvalidArgument,
    MessageTooLarge,
    NexoError,
    ReadOnly,
)
from nexo.vocabulary.limits import RECEIVE_RATE_MAX, REDRIVE_BURST_MS
from nexo.vocabulary.states import Cause

if TYPE_CHECKING:
    from collections.abc import Callable

    from nexo.engine.context import Context
    from nexo.engine.queue_actor import QueueActor
    from nexo.engine.transfers import Targets
    from nexo.machine.chunk import Chunk
    from nexo.machine.queue import Doomed, Queue
    from nexo.machine.span import Span
    from nexo.vocabulary.batch import Batch


def move(
    context: Context,
    source: QueueActor,
    target: QueueActor,
    lease: int,
    span: Span,
    batch: Batch,
    cause: Cause,
    reason: str = "",
) -> bool:
    """The move: a span leaves its queue and `batch`, which is made of it, enters another, in one
    commit. False if the span is not there any more, because a purge came first."""
    committer, now_ms = context.committer, context.clock.now_ms()
    committer.tie(source, target)
    if not rules.take_out(source.queue, lease, span, cause, reason, now_ms):
        return False
    push_moved(target.queue, batch, now_ms)
    committer.accept(batch.size)
    committer.enlist(source)
    committer.enlist(target)
    return True


class Mover:
    """Moves dead letters, of all queues."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._unfinished: set[QueueActor] = set()  # they are gone on with in the next turn

    def move_dead_letters(self, source: QueueActor) -> None:
        """Move what is out of attempts to the dead-letter queue, some at a time and in order. On a
        full disk it waits, and while that queue is not in service."""
        context, queue = self._context, source.queue
        if context.refusal is not None or source in self._unfinished:
            return
        left = limits.MOVE_MESSAGES
        kept: list[Doomed] = []  # what cannot be read now stays, and the others go past it
        done = 0
        for each in queue.doomed:
            if left <= 0 or done == limits.MOVE_RUNS:
                self._unfinished.add(source)
                asyncio.get_running_loop().call_soon(self._go_on, source)
                break
            target = context.queues.dead_letters_of(source)
            if target is None:
                spare(queue, each, context.clock.now_ms())
                context.committer.enlist(source)
                left -= each.span.end - each.span.first
                done += 1
                continue
            if not target.is_in_service:
                break
            lease, span = each.lease, each.span
            if span.chunk.content is None and not source.contents.is_unreadable(span.chunk):
                source.contents.fetch(span.chunk, source.move_dead_letters)
                break
            if span.chunk.content is None:
                kept.append(each)
            else:
                letters = rules.dead_letters(queue, each)
                cause, reason = Cause.DEAD_LETTERED, each.reason
                move(context, source, target, lease, span, letters, cause, reason)
                left -= span.end - span.first
            done += 1
        queue.doomed[:done] = kept

    def _go_on(self, source: QueueActor) -> None:
        self._unfinished.discard(source)
        if source.is_in_service:
            self._context.supervisor.guard(source, source.move_dead_letters)


class Progress(msgspec.Struct, frozen=True):
    moved: int
    total: int
    skipped: int
    finished: bool


class Chosen(msgspec.Struct, frozen=True):
    """Messages to move, by their sequence numbers in order; with bodies, each gets a new one."""

    seqs: list[int]
    bodies: list[bytes] | None = None


class Resumed(msgspec.Struct, frozen=True):
    """How far a redrive was when the broker stopped."""

    started_ms: int
    total: int
    moved: int


class Ending:
    """How a task in steps ends: by itself, by a failure, or because somebody cancelled it."""

    finished: asyncio.Task[int]
    _cancelled = False

    @property
    def failure(self) -> BaseException | None:
        """What stopped it."""
        ended = self.finished.done() and not self.finished.cancelled()
        return self.finished.exception() if ended else None

    @property
    def status(self) -> str:
        """In the words of SQS."""
        if not self.finished.done():
            return "CANCELLING" if self._cancelled else "RUNNING"
        if self.failure is not None:
            return "FAILED"
        return "CANCELLED" if self._cancelled or self.finished.cancelled() else "COMPLETED"

    def cancel(self) -> None:
        """Stop after the step under way; what was done stays done."""
        self._cancelled = True


class MoveTask(Ending):
    """A redrive under way. It moves what was in line when it began, each message to the queue it
    came from, or all to one target. Messages without such a queue stay where they are. What was
    chosen moves in one commit; what of it is not in line any more is passed over."""

    verb = "redrive"

    def __init__(
        self,
        context: Context,
        source: QueueActor,
        targets: Targets,
        rate: float | None,
        to: str | None = None,
        chosen: Chosen | None = None,
        resumed: Resumed | None = None,
    ) -> None:
        if rate is not None and not 0 < rate <= RECEIVE_RATE_MAX:
            raise InvalidArgument("rate must be a number of messages per second above 0")
        self._context = context
        self._source = source
        self._targets = targets
        self._rate = self.rate = rate
        self.to = to
        self.started_ms = context.clock.now_ms() if resumed is None else resumed.started_ms
        self._chosen = chosen
        self._total = source.queue.ready if chosen is None else len(chosen.seqs)
        if resumed is not None:
            self._total = resumed.total
        bodies = chosen.bodies if chosen is not None else None
        self._bodies = dict(zip(chosen.seqs, bodies, strict=True)) if chosen and bodies else {}
        self._moved = 0 if resumed is None else resumed.moved
        self.on_step: Callable[[int], None] | None = None  # told of what is moved, in its commit
        self._skipped: list[tuple[Queue, int]] = []
        self._skipped_count = 0
        self._cancelled = False
        self.finished: asyncio.Task[int] = asyncio.get_running_loop().create_task(self._run())
        # Why it ended is asked for later, or never.
        self.finished.add_done_callback(lambda task: task.cancelled() or task.exception())

    @property
    def source(self) -> QueueActor:
        return self._source

    def progress(self) -> Progress:
        return Progress(self._moved, self._total, self._skipped_count, self.finished.done())

    async def _run(self) -> int:
        committer, has_waited = self._context.committer, False
        try:
            if self._chosen is not None:
                picked = rules.pick_these(self._source.queue, self._chosen.seqs)
                self._moved = await self._move(picked) if picked else 0
                return self._moved
            while self._moved + self._skipped_count < self._total and not self._cancelled:
                step = min(limits.MOVE_MESSAGES, self._total - self._moved - self._skipped_count)
                if self._rate is not None:
                    step = min(step, max(1, int(self._rate * REDRIVE_BURST_MS / 1000)))
                picked = rules.pick(self._source.queue, step, limits.MOVE_RUNS)
                if not picked:
                    if await self._source.groups_sorted():
                        continue
                    if has_waited:
                        break
                    # What came in with the commit under way counts, and is not there before it.
                    has_waited = True
                    committer.enlist(self._source)
                    await committer.when_durable(None, self._source)
                    continue
                has_waited = False
                moved = await self._move(picked)
                self._moved += moved
                if self._rate is not None:
                    await asyncio.sleep(moved / self._rate)
        finally:
            for queue, lease in self._skipped:
                if queue is self._source.queue:  # else a reload has put them back already
                    rules.unpick(queue, lease)
            self._source.serve()
        return self._moved

    async def _move(self, picked: list[tuple[int, Span]]) -> int:
        """Move what was picked; if that fails it goes back to its place."""
        source, queue = self._source, self._source.queue
        left = list(picked)
        try:
            await self._context.committer.room()
            with source.contents.pins() as pins:
                while source.queue is queue and (chunk := _missing(queue, left)):
                    try:
                        await source.contents.read_back(chunk)
                    except DataCorrupt:
                        left = self._pass_over(chunk, left)
                    else:
                        pins.add(chunk)
                if self._context.transfers.is_sharded and source.queue is queue:
                    await self._targets.learn(_sources(queue, left))
            if self._context.refusal is not None:
                raise self._context.refusal.anew()
            if source.queue is not queue:  # what was picked is of a state that was given up
                raise ReadOnly("the broker reloaded its data during the move", "try again")
            self._context.committer.check(source)
            self._check_bodies(left)
            moved = 0
            while left:
                lease, span = left[0]
                if rules.is_picked(queue, lease, span):  # else a purge came first
                    moved += self._move_span(lease, span)
                left.pop(0)
        except (NexoError, asyncio.CancelledError):
            if source.queue is queue:
                for lease, _ in left:
                    rules.unpick(queue, lease)
            raise
        if self.on_step is not None:
            self.on_step(self._moved + moved)
        self._context.committer.enlist(source)
        await self._context.committer.when_durable(None, source)
        return moved

    def _pass_over(self, chunk: Chunk, picked: list[tuple[int, Span]]) -> list[tuple[int, Span]]:
        """What cannot be read stays in the queue, aside; the rest of what was picked moves."""
        queue, left = self._source.queue, []
        for lease, span in picked:
            if span.chunk is chunk:
                rules.unpick(queue, lease)
                self._skipped_count += span.end - span.first
            else:
                left.append((lease, span))
        unreadable.set_aside(queue, chunk)
        return left

    def _check_bodies(self, picked: list[tuple[int, Span]]) -> None:
        """Before anything moves: what a target does not take is not taken from the source."""
        for lease, span in picked if self._bodies else ():
            if not rules.is_picked(self._source.queue, lease, span):
                continue
            for seq, name in enumerate(rules.sources(span), span.first):
                target = self._targets.of(name)
                size = len(self._bodies[seq])
                if target is not None and size > self._targets.max_message_bytes(name, target):
                    raise MessageTooLarge(
                        f"a new body of {size} bytes is larger than queue {target.name!r} takes",
                        "nothing was moved: make it shorter, or raise max_message_bytes",
                    )

    def _move_span(self, lease: int, span: Span) -> int:
        """Split a span by where its messages go, and send each part there."""
        queue = self._source.queue
        names = rules.sources(span)
        base, moved = span.first, 0
        while True:
            name, stop = names[span.first - base], span.first + 1
            while stop < span.end and names[stop - base] == name:
                stop += 1
            last = stop == span.end
            target = self._targets.of(name)  # before anything is split: it may be refused
            own, part = rules.split(queue, lease, span, stop)
            if target is None or target is self._source:
                self._skipped.append((queue, own))
                self._skipped_count += part.end - part.first
            else:
                moved += self._send(own, part, target)
            if last:
                break
        return moved

    def _send(self, lease: int, part: Span, target: QueueActor) -> int:
        batch = rules.redriven(self._source.queue, part)
        if self._bodies:
            bodies = [self._bodies[seq] for seq in range(part.first, part.end)]
            batch = rules.with_bodies(batch, bodies)
        gone = move(self._context, self._source, target, lease, part, batch, Cause.REDRIVEN)
        assert gone, "what was picked is there until it departs"
        return batch.count


def _sources(queue: Queue, picked: list[tuple[int, Span]]) -> set[str | None]:
    """Where those came from that are there."""
    spans = [span for lease, span in picked if rules.is_picked(queue, lease, span)]
    return {name for span in spans for name in rules.sources(span)}


def _missing(queue: Queue, picked: list[tuple[int, Span]]) -> Chunk | None:
    """A chunk that has to be read back before its messages can move."""
    for lease, span in picked:
        if span.chunk.content is None and rules.is_picked(queue, lease, span):
            return span.chunk
    return None
