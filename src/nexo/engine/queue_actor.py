"""The actor of one queue: every command it understands is a method here.

A command runs the rules at once; what has to be on disk before it is true (pushes, acks, nacks,
claims) gives a future that is answered by the commit. Deliveries wait for nothing. After each
step the actor serves whoever waits and sets its timer.
"""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from typing import TYPE_CHECKING, Any

from nexo.engine.actor import Actor
from nexo.engine.claim_desk import ClaimDesk
from nexo.engine.committer import QUEUE_RANK
from nexo.engine.events import tell_or_not
from nexo.engine.late_desk import LateDesk, catch_up, groups_opened
from nexo.engine.receive_attempts import ReceiveAttempts
from nexo.engine.recorder import Recorder
from nexo.engine.shelf import Shelf, look
from nexo.engine.supervisor import outcome_of, report
from nexo.engine.waiting import PendingPop, Waiter, WaitingRoom
from nexo.machine import ack as acks
from nexo.machine import compact, peek, purge, settle, unreadable
from nexo.machine.bind import push_kept
from nexo.machine.deadlines import next_ms, run_due
from nexo.machine.fail import give_back, give_back_lease, nack
from nexo.machine.log import Place
from nexo.machine.pop import messages, pop
from nexo.machine.push import Accepted, flush, push, push_one, push_shared
from nexo.machine.snapshot import QueueSnapshot
from nexo.vocabulary.errors import DataCorrupt, NexoError, NotReady
from nexo.vocabulary.limits import (
    COPY_LOOK_CHUNKS,
    COPY_STEP_CHUNKS,
    DUE_STEP_SPANS,
    GIVE_BACK_STEP_SPANS,
    POP_BYTES_MAX,
    PURGED_STEP_THINGS,
    SERVE_STEP_PARTS,
    UNREADABLE_RETRY_MS,
    UNWRITTEN_CHANGES_MAX,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from nexo.engine.committer import Draft
    from nexo.engine.context import Context
    from nexo.machine.chunk import Chunk
    from nexo.machine.log import Log, Piece
    from nexo.machine.pop import Delivery
    from nexo.machine.queue import Queue
    from nexo.machine.settle import Mark
    from nexo.vocabulary.batch import Batch
    from nexo.vocabulary.message import Message
    from nexo.vocabulary.settings import QueueSettings


class QueueActor(Actor):
    rank = QUEUE_RANK

    def __init__(self, context: Context, owner: int, queue: Queue) -> None:
        super().__init__(context, owner)
        self.queue = queue
        self.room = WaitingRoom()
        self.now_ms = context.clock.now_ms
        self._shelf = Shelf(context.memory, self, self._set_aside)
        self._retry: asyncio.TimerHandle | None = None  # of what could not be read
        self._copying: asyncio.Task[None] | None = None
        self.pins = self._shelf.pins
        self._recorder = Recorder(context.recorders, owner, self)
        self._is_serving = False
        self._serves_later = False
        self.claims = ClaimDesk(self)
        self.late = LateDesk(self)
        self.attempts = ReceiveAttempts(self)

    @property
    def name(self) -> str:
        return self.queue.name

    @property
    def label(self) -> str:
        return f"queue {self.name!r}"

    @property
    def incarnation(self) -> int:
        return self.queue.incarnation

    @property
    def settings(self) -> QueueSettings:
        return self.queue.settings

    @property
    def is_writable(self) -> bool:
        return self._context.refusal is None

    # -- Producers ----------------------------------------------------------------------------

    def push(self, batch: Batch, producer: str = "", number: int = 0) -> asyncio.Future[Accepted]:
        """Messages come in; the future has their numbers once they are on disk."""
        if self._context.refusal is not None:
            raise self._context.refusal.anew()
        if self._committer.congested:
            return self._committer.after_room(lambda: self._push(batch, producer, number))
        return self._push(batch, producer, number)

    def _push(self, batch: Batch, producer: str, number: int) -> asyncio.Future[Accepted]:
        self._check_open()
        accepted = push(self.queue, batch, self.now_ms(), producer, number)
        return self._committer.admit(self, batch.size, accepted)

    def push_one(self, body: bytes, priority: int = 0) -> asyncio.Future[int]:
        """The same for one message that is nothing but a body."""
        if self._context.refusal is not None:
            raise self._context.refusal.anew()
        if self._committer.congested:
            return self._committer.after_room(lambda: self._push_one(body, priority))
        return self._push_one(body, priority)

    def _push_one(self, body: bytes, priority: int) -> asyncio.Future[int]:
        self._check_open()
        seq = push_one(self.queue, body, self.now_ms(), priority)
        return self._committer.admit(self, len(body), seq)

    def _check_open(self) -> None:
        if self._gone is not None:
            raise self._gone.anew()
        if self._context.out_of_service:
            self._context.check_fed(self)

    def arrive(self, batch: Batch, place: Place) -> None:
        """Messages of a bound topic, in the commit that the topic is part of."""
        push_shared(self.queue, batch, place, self.now_ms())
        self._context.archive(self, batch, place)
        self._committer.enlist(self)

    def arrive_kept(self, piece: Piece) -> None:
        """Messages that a topic had kept, in the commit that binds the queue to it."""
        push_kept(self.queue, piece, self.now_ms())
        self._context.archive_kept(self, piece)
        self._committer.enlist(self)

    # -- Consumers ----------------------------------------------------------------------------

    async def pop(
        self,
        count: int = 1,
        *,
        wait_ms: int = 0,
        bytes_max: int = POP_BYTES_MAX,
        consumer: str = "",
        visibility_ms: int | None = None,
        one_ack: bool = False,
    ) -> Delivery:
        """Up to `count` messages; waits up to `wait_ms` for the first one."""
        wanted: dict[str, Any] = {
            "bytes_max": bytes_max,
            "consumer": consumer,
            "visibility_ms": visibility_ms,
            "one_ack": one_ack,
        }
        catch_up(self)
        if one_ack:  # an SQS client that just gave something back expects to find it
            await groups_opened(self)
        while True:
            if self._gone is not None:
                raise self._gone.anew()
            delivery = pop(self.queue, count, self.now_ms(), **wanted)
            if delivery.parts:
                self._delivered(delivery)
                return delivery
            if delivery.missing is not None:
                await self.read_back(delivery.missing)
            elif not await groups_opened(self):
                break
        if wait_ms <= 0:
            return delivery
        pending = PendingPop(self._return_unseen)
        waiter = Waiter(count, pending.deliver, pending.fail, standing=False, **wanted)
        self.room.enter(waiter)
        self._watch_rate()
        try:
            return await pending.wait(wait_ms) or delivery
        finally:
            self.room.leave(waiter)

    def subscribe(
        self,
        prefetch: int,
        deliver: Callable[[Delivery], None],
        fail: Callable[[NexoError], None],
        *,
        consumer: str = "",
        visibility_ms: int | None = None,
        one_ack: bool = False,
    ) -> Waiter:
        """Deliver to this consumer for ever, as long as it has room: `grant` gives it more. It
        ends only with the queue, and `fail` is told."""
        waiter = Waiter(
            prefetch,
            deliver,
            fail,
            standing=True,
            consumer=consumer,
            visibility_ms=visibility_ms,
            one_ack=one_ack,
        )
        self.room.enter(waiter)
        asyncio.get_running_loop().call_soon(self.serve)
        return waiter

    def grant(self, waiter: Waiter, more: int) -> None:
        """A subscription has room for that many more."""
        self.room.grant(waiter, more)
        self.serve()

    def unsubscribe(self, waiter: Waiter) -> None:
        """Leave, and give back at once what was not acked."""
        self.room.leave(waiter)
        if self._gone is not None:
            return
        self._give_back_all(waiter)

    def received(self, lease: int, first: int, end: int) -> list[int]:
        """The reception ack; it waits for nothing."""
        self.check_in_service()
        applied = acks.received(self.queue, lease, first, end, self.now_ms())
        self.changed_lazily()
        return applied

    def ack(self, lease: int, first: int, end: int) -> asyncio.Future[list[int]]:
        """The processing ack; the future has the ranges that were acked."""
        self.check_in_service()
        return self.acked(acks.ack(self.queue, lease, first, end, self.now_ms()))

    def acked(self, result: Any) -> asyncio.Future[Any]:
        """Acks concern nobody else until they are on disk."""
        self._committer.enlist(self)
        return self._committer.when_durable(result, self)

    def nack(
        self, lease: int, first: int, end: int, delay_ms: int | None = None, reason: str = ""
    ) -> asyncio.Future[list[int]]:
        self.check_in_service()
        applied = nack(self.queue, lease, first, end, self.now_ms(), delay_ms, reason)
        return self.changed(applied)

    def give_back(self, lease: int, first: int, end: int) -> asyncio.Future[list[int]]:
        """Back in line as if never delivered."""
        self.check_in_service()
        return self.changed(give_back(self.queue, lease, first, end, self.now_ms()))

    def extend(self, lease: int, first: int, end: int, timeout_ms: int) -> asyncio.Future[Any]:
        self.check_in_service()
        return self.changed(acks.extend(self.queue, lease, first, end, timeout_ms, self.now_ms()))

    def messages(self, delivery: Delivery) -> list[Message]:
        """The messages of a delivery one by one."""
        return messages(self.queue, delivery)

    # -- Operators ----------------------------------------------------------------------------

    def purge(self) -> asyncio.Future[int]:
        self.check_in_service()
        self.flush()
        return self.changed(self.clear_out())

    def clear_out(self) -> int:
        """Everything is gone. What it took is given back some at a time."""
        count = purge.purge(self.queue, self.now_ms())
        self._wear()
        return count

    def _wear(self) -> None:
        if purge.take_apart(self.queue, PURGED_STEP_THINGS):
            asyncio.get_running_loop().call_soon(self._wear)

    def set_paused(self, paused: bool) -> asyncio.Future[None]:
        self.queue.set_paused(paused)
        return self.changed(None)

    @property
    def in_flight(self) -> int:
        return self.queue.in_flight

    def info(self) -> peek.Info:
        return peek.info(self.queue, self.now_ms())

    async def peek(self, limit: int = 10) -> list[Message]:
        """The first messages, whatever their state; nothing is taken."""
        return await look(self, limit)

    # -- The engine's side --------------------------------------------------------------------

    @property
    def resident_bytes(self) -> int:
        return self.queue.resident_bytes

    @property
    def bookkeeping_bytes(self) -> int:
        return self.queue.bookkeeping_bytes

    def logs(self) -> Iterable[Log]:
        return (lane.log for lane in reversed(self.queue.lanes))

    def flush(self) -> None:
        """Give rows to what came in since the last commit; the archive shares them."""
        for flushed in flush(self.queue):
            self._context.archive(self, flushed.batch, Place(flushed.row))

    def collect(self, draft: Draft) -> Mark:
        queue = self.queue
        collected = settle.collect(queue)
        draft.rows += collected.rows
        draft.dropped_rows += collected.dropped_rows
        if self._recorder.write(draft, collected.changes, lambda: QueueSnapshot(queue)):
            asyncio.get_running_loop().call_soon(self._begin_copying)
        # Not before: what cannot be written must not take the archive along.
        for flushed in collected.flushed:
            self._context.archive(self, flushed.batch, Place(flushed.row))
        if queue.events and self._context.on_events is not None:
            events, queue.events = queue.events, []
            self._context.on_events(events, False)
        return collected.mark

    def settle(self, mark: Mark) -> None:
        settle.settle(self.queue, mark)
        self._timer.at(next_ms(self.queue))
        self.serve()
        self._context.memory.note(self)

    def tick(self) -> None:
        """The timer: do what time has made due."""
        if self._gone is None:
            self._context.guard(self, self._tick)

    def _tick(self) -> None:
        now_ms = self.now_ms()
        must_wait = len(self.queue.changes) > UNWRITTEN_CHANGES_MAX
        is_more = must_wait or run_due(self.queue, now_ms, DUE_STEP_SPANS)
        if self.queue.doomed:
            self._context.on_doomed(self)
        if must_wait:
            self._committer.enlist(self)
        elif self.queue.changes:
            self._committer.enlist_lazily(self)
        self.serve()
        due_ms = next_ms(self.queue)
        if due_ms is not None and not must_wait:  # else `settle` goes on with it
            # In a later turn of the event loop, if it is now.
            self._timer.at(now_ms if is_more else max(due_ms, now_ms + 1))

    def serve(self) -> None:
        """Deliver to those who wait, in turn, what is ready. Called from within, it leaves that to
        whoever is at it."""
        if self.claims.waiting and self.queue.ready:
            self.claims.wake()
        if self._is_serving or self._gone is not None:
            return
        if len(self.room) and self.queue.ready:
            self._is_serving = True
            self._context.guard(self, self._serve)
            self._is_serving = False

    def _serve(self) -> None:
        queue, room = self.queue, self.room
        parts = 0
        while len(room) and queue.ready and self._gone is None:
            if parts >= SERVE_STEP_PARTS:
                self._serve_later()
                return
            turn = room.next(queue.ready)
            if turn is None:
                return
            waiter, count = turn
            delivery = pop(
                queue,
                count,
                self.now_ms(),
                bytes_max=waiter.bytes_max,
                consumer=waiter.consumer,
                visibility_ms=waiter.visibility_ms,
                one_ack=waiter.one_ack,
            )
            if not delivery.parts:
                if delivery.missing is not None:
                    self.fetch(delivery.missing, self.serve)
                self._watch_rate()
                return
            room.served(waiter, delivery.count)
            if waiter.standing:
                waiter.hold(delivery.lease, queue.leases)
            self._delivered(delivery)
            parts += len(delivery.parts)
            _, failure = outcome_of(waiter.deliver, delivery)
            if failure is not None:
                self._give_up(waiter, delivery, failure)

    def _serve_later(self) -> None:
        """Others get their turn of the event loop before it goes on."""
        if not self._serves_later:
            self._serves_later = True
            asyncio.get_running_loop().call_soon(self._serve_now)

    def _serve_now(self) -> None:
        self._serves_later = False
        self.serve()

    def _give_up(self, waiter: Waiter, delivery: Delivery, error: Exception) -> None:
        """A consumer could not take its messages: they go to the others, and it leaves."""
        report(f"a consumer of {self.label} could not be served", error)
        self.room.leave(waiter)
        waiter.leases.add(delivery.lease)
        self._give_back_all(waiter)
        told = NotReady("the delivery failed", "subscribe again")
        _, failure = outcome_of(waiter.fail, told)
        if failure is not None:
            report(f"a consumer of {self.label} could not be told", failure)

    def adopt(self, queue: Queue) -> None:
        """The state was loaded anew from the journal; consumers stay."""
        self.queue = queue
        gone = self._renew()
        if gone is not None:
            self.room.close(gone)
            return
        self.room.reopen()
        for waiter in self.room.subscriptions:
            waiter.leases &= queue.leases.keys()
        self.begin()

    def begin(self) -> None:
        """Take up work after a start, or with other settings."""
        tell_or_not(self.queue, self._context.on_events)
        self._context.memory.count(self)
        self._timer.cancel()
        self._timer.at(self.now_ms())

    def reopen(self) -> None:
        """In service again, with what was loaded last."""
        self.adopt(self.queue)

    def close(self, gone: NexoError) -> None:
        """No more of it: tell those who wait, and those who come later."""
        self._end(gone)
        if self._retry is not None:
            self._retry.cancel()
        if self._copying is not None:
            self._copying.cancel()
        self.room.close(gone)

    def changed(self, result: Any) -> asyncio.Future[Any]:
        """Something changed that may concern others: dead letters, waiting consumers, time."""
        if self.queue.doomed:
            self._context.guard(self, partial(self._context.on_doomed, self))
        self.check_in_service()
        self._committer.enlist(self)
        durable = self._committer.when_durable(result, self)
        self._timer.at(next_ms(self.queue))
        self.serve()
        return durable

    def _delivered(self, delivery: Delivery) -> None:
        self._timer.at(delivery.deadline_ms)
        self._committer.enlist_lazily(self)

    def _return_unseen(self, delivery: Delivery) -> None:
        give_back_lease(self.queue, delivery.lease, self.now_ms())
        self._committer.enlist_lazily(self)
        self.serve()

    def _give_back_all(self, waiter: Waiter) -> None:
        """A consumer has left: what it holds goes back, in order, some of it now and the rest in
        the next turns of the event loop."""
        leaving = sorted(waiter.leases & self.queue.leases.keys(), reverse=True)
        waiter.leases.clear()
        self._give_back_some(leaving)

    def _give_back_some(self, leaving: list[int]) -> None:
        """The last of these leases go first."""
        if self._gone is not None:
            return
        now_ms, left = self.now_ms(), GIVE_BACK_STEP_SPANS
        while leaving and left > 0:
            returned = give_back_lease(self.queue, leaving[-1], now_ms, left)
            if returned < left:
                leaving.pop()
            left -= max(1, returned)
        if leaving:
            loop = asyncio.get_running_loop()
            loop.call_soon(self._context.guard, self, partial(self._give_back_some, leaving))
        self._committer.enlist_lazily(self)
        self.serve()

    def _watch_rate(self) -> None:
        """With a rate limit, what is ready may have to wait for its token."""
        rate, now_ms = self.queue.settings.max_receive_rate, self.now_ms()
        if rate is not None and len(self.room) and self.queue.ready:
            token_ms = self.queue.rate.next_ms(rate, now_ms)
            if token_ms > now_ms:  # else it waits for something that no timer brings
                self._timer.at(token_ms)

    def changed_lazily(self) -> None:
        """Something changed that may wait for the next commit: deadlines, at most."""
        self._timer.at(self.queue.next_deadline_ms)
        self._committer.enlist_lazily(self)

    async def read_back(self, chunk: Chunk) -> None:
        """Wait until the content of a chunk is in memory. If it cannot be read, its messages in
        line are set aside, and whoever asked looks again; raises if that was about others."""
        was_aside = chunk in self.queue.aside
        try:
            await self._shelf.read_back(self.queue.lane_of(chunk.first).log, chunk)
        except DataCorrupt:
            is_aside = chunk in self.queue.aside and not was_aside  # another has met it meanwhile
            if not self._set_aside(chunk) and not is_aside:
                raise

    def is_unreadable(self, chunk: Chunk) -> bool:
        return self._context.memory.is_unreadable(chunk)

    def _set_aside(self, chunk: Chunk) -> int:
        """The journal cannot give these messages: the queue goes past them, and tries again."""
        count = unreadable.set_aside(self.queue, chunk)
        self.watch_unreadable(True)
        return count

    def watch_unreadable(self, is_known: bool = False) -> None:
        """Try again, in a while, what could not be read."""
        if (is_known or self.queue.aside) and self._retry is None and self._gone is None:
            loop = asyncio.get_running_loop()
            self._retry = loop.call_later(UNREADABLE_RETRY_MS / 1000, self._try_unreadable)

    def _try_unreadable(self) -> None:
        """What could not be read may be readable now: the file may have been mended."""
        self._retry = None
        doomed = [each.span.chunk for each in self.queue.doomed]
        for chunk in {*self.queue.aside, *filter(self.is_unreadable, doomed)}:
            self.fetch(chunk, partial(self._read_after_all, chunk))

    def _read_after_all(self, chunk: Chunk) -> None:
        if chunk.content is not None:
            unreadable.bring_back(self.queue, chunk)
            if self.queue.doomed:
                self._context.on_doomed(self)
            self.serve()

    def fetch(self, chunk: Chunk, then: Callable[[], None]) -> None:
        """Read the content of a chunk back and call `then`."""
        log = self.queue.lane_of(chunk.first).log
        self._shelf.fetch(log, chunk, partial(self._context.guard, self, then))

    def _begin_copying(self) -> None:
        """After a snapshot: live messages must not pin the bytes of dead ones."""
        if self._copying is None and self._gone is None:
            self._copying = asyncio.get_running_loop().create_task(self._copy_forward())
            self._copying.add_done_callback(self._copied)

    def _copied(self, copying: asyncio.Task[None]) -> None:
        self._copying = None
        if not copying.cancelled():
            self._context.guard(self, copying.result)

    async def _copy_forward(self) -> None:
        """A bounded part in each turn of the event loop."""
        queue, sparse = self.queue, []
        for lane in queue.lanes:
            for at, first in enumerate(list(lane.log.chunks)):
                if at % COPY_LOOK_CHUNKS == COPY_LOOK_CHUNKS - 1:
                    await asyncio.sleep(0)
                chunk = lane.log.chunks.get(first)
                if chunk is not None and compact.is_sparse(lane, chunk):
                    sparse.append((lane, chunk))
        for start in range(0, len(sparse), COPY_STEP_CHUNKS):
            with self.pins() as pins:
                for _, chunk in sparse[start : start + COPY_STEP_CHUNKS]:
                    if not await self._is_at_hand(chunk, queue):
                        continue
                    pins.add(chunk)
                if self.queue is not queue or self._context.refusal is not None:
                    return
                some = sparse[start : start + COPY_STEP_CHUNKS]
                known = [(lane, chunk) for lane, chunk in some if chunk.content is not None]
                chunks = [chunk for lane, chunk in known if compact.is_sparse(lane, chunk)]
                if chunks:
                    compact.copy_forward(queue, *chunks)
                    self._committer.enlist(self)
            await asyncio.sleep(0)

    async def _is_at_hand(self, chunk: Chunk, queue: Queue) -> bool:
        """Read a chunk back, if it is still there and can be read."""
        is_there = self.queue is queue and queue.lane_of(chunk.first).log.chunks.get(chunk.first)
        if is_there and chunk.content is None and not self.is_unreadable(chunk):
            with contextlib.suppress(NexoError):  # the next snapshot tries again
                await self.read_back(chunk)
        return chunk.content is not None
