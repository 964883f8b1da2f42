"""The actor of one queue: every command it understands is a method here.

A command runs the rules at once; what has to be on disk before it is true (pushes, acks, nacks,
claims) gives a future that is answered by the commit. Deliveries wait for nothing. After each
step the actor serves whoever waits and sets its timer.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from nexo.engine import receipts
from nexo.engine.actor import Actor
from nexo.engine.claims import Claims
from nexo.engine.committer import QUEUE_RANK
from nexo.engine.contents import QueueContents
from nexo.engine.copy_forward import CopyForward
from nexo.engine.dispatcher import Dispatcher
from nexo.engine.events import tell_or_not
from nexo.engine.peek import first_messages
from nexo.engine.receive_attempts import ReceiveAttempts
from nexo.engine.recorder import Recorder
from nexo.engine.views import Views
from nexo.engine.waiting_room import PendingPop, Waiter, WaitingRoom
from nexo.machine import ack as acks
from nexo.machine import discard, late_receipts, life, peek, purge, settle
from nexo.machine.bind import push_kept
from nexo.machine.deadlines import next_ms, run_due
from nexo.machine.fail import give_back, nack
from nexo.machine.log import Place
from nexo.machine.pop import messages, pop
from nexo.machine.push import Accepted, flush, push, push_one, push_shared
from nexo.machine.snapshot import QueueSnapshot
from nexo.vocabulary import limits
from nexo.vocabulary.limits import POP_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from nexo.engine.committer import Draft
    from nexo.engine.context import Context
    from nexo.engine.receipts import Ranges, Refused
    from nexo.machine.log import Log, Piece
    from nexo.machine.pop import Delivery
    from nexo.machine.push import Accepted
    from nexo.machine.queue import Queue
    from nexo.machine.settle import Mark
    from nexo.machine.span import Span
    from nexo.vocabulary.batch import Batch
    from nexo.vocabulary.errors import NexoError
    from nexo.vocabulary.message import Message
    from nexo.vocabulary.settings import QueueSettings


class QueueActor(Actor):
    rank = QUEUE_RANK

    def __init__(self, context: Context, owner: int, queue: Queue) -> None:
        super().__init__(context, owner)
        self.queue = queue
        self.room = WaitingRoom()
        self.now_ms = context.clock.now_ms
        self.contents = QueueContents(context, self)
        self._dispatcher = Dispatcher(context, self)
        self._copy_forward = CopyForward(context, self)
        self._recorder = Recorder(context.recorders, owner, self)
        self.claims = Claims(self)
        self.views = Views(self)
        self.receive_attempts = ReceiveAttempts(self)
        self._sorts_later = False

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

    def push(
        self, batch: Batch, producer: str = "", number: int = 0, checksum: int = 0
    ) -> asyncio.Future[Accepted]:
        """Messages come in; the future has their numbers once they are on disk."""
        if self._context.refusal is not None:
            raise self._context.refusal.anew()
        if self._committer.congested:
            return self._committer.after_room(lambda: self._push(batch, producer, number, checksum))
        return self._push(batch, producer, number, checksum)

    def _push(
        self, batch: Batch, producer: str, number: int, checksum: int
    ) -> asyncio.Future[Accepted]:
        self._check_open()
        accepted = push(self.queue, batch, self.now_ms(), producer, number, checksum)
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
            self._context.topics.check_fed([self])

    def arrive(self, batch: Batch, place: Place, now_ms: int) -> None:
        """Messages of a bound topic, in the commit that the topic is part of."""
        push_shared(self.queue, batch, place, now_ms)
        if self.queue.settings.archive:
            self._context.topics.archive(self, batch, place)
        self._committer.enlist(self)

    def arrive_kept(self, piece: Piece) -> None:
        """Messages that a topic had kept, in the commit that binds the queue to it."""
        push_kept(self.queue, piece, self.now_ms())
        self._context.topics.archive_kept(self, piece)
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
        self.catch_up(self.now_ms())
        if one_ack:  # an SQS client that just gave something back expects to find it
            await self.groups_opened()
        while True:
            self.check_in_service()
            delivery = pop(self.queue, count, self.now_ms(), **wanted)
            if delivery.parts:
                self.delivered(delivery)
                return delivery
            if delivery.missing is not None:
                await self.contents.read_back(delivery.missing)
            elif not (await self.groups_sorted() or await self.groups_opened()):
                break
        if wait_ms <= 0:
            return delivery
        pending = PendingPop(self._dispatcher.give_back_unseen)
        waiter = Waiter(count, pending.deliver, pending.fail, standing=False, **wanted)
        self.room.enter(waiter)
        self.watch_rate()
        try:
            return await pending.wait(wait_ms) or delivery
        finally:
            self.room.leave(waiter)

    def pop_at_once(
        self, count: int, bytes_max: int, consumer: str, visibility_ms: int | None, one_ack: bool
    ) -> Delivery | None:
        """What is ready now, if nobody waits for it; None: `pop` has to wait for something."""
        return self._dispatcher.take(count, bytes_max, consumer, visibility_ms, one_ack)

    def receive_at_once(self, count: int, visibility_ms: int | None = None) -> Delivery | None:
        """What a pop with one ack finds without waiting for anything; None if there is something
        that it has to wait for, as `pop` does."""
        now_ms = self.now_ms()
        self.catch_up(now_ms)
        self.check_in_service()
        queue = self.queue
        if queue.busy is not None and self._groups_are_opening():
            return None
        delivery = pop(queue, count, now_ms, visibility_ms=visibility_ms, one_ack=True)
        if delivery.parts:
            self.delivered(delivery)
        elif delivery.missing is not None or not queue.is_sorted:
            return None
        return delivery

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
        if self._gone is None:
            self._dispatcher.give_back_all(waiter)

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

    # -- Consumers, of many deliveries at once: each range is taken for itself -----------------

    def ack_ranges(self, ranges: Ranges) -> asyncio.Future[Refused]:
        """Processing acks; the future has what was refused, once the rest is on disk."""
        return self.acked(receipts.refused_of(ranges, acks.ack, self.queue, self.now_ms()))

    def received_ranges(self, ranges: Ranges) -> Refused:
        """Reception acks; they wait for nothing."""
        refused = receipts.refused_of(ranges, acks.received, self.queue, self.now_ms())
        self.changed_lazily()
        return refused

    def nack_ranges(
        self, ranges: Ranges, delay_ms: int | None, reason: str
    ) -> asyncio.Future[Refused]:
        more = self.now_ms(), delay_ms, reason
        return self.changed(receipts.refused_of(ranges, nack, self.queue, *more))

    def extend_ranges(self, ranges: Ranges, timeout_ms: int) -> asyncio.Future[Refused]:
        more = timeout_ms, self.now_ms()
        return self.changed(receipts.refused_of(ranges, acks.extend, self.queue, *more))

    def give_back_ranges(self, ranges: Ranges) -> asyncio.Future[Refused]:
        return self.changed(receipts.refused_of(ranges, give_back, self.queue, self.now_ms()))

    def take_back(self, lease: int) -> None:
        """Nobody will say anything of a delivery: it goes back, unless its reception was acked."""
        spans = self.spans_on(lease)
        unseen = [(lease, span.first, span.end) for span in spans if span.state in life.RECEIVABLE]
        if unseen:
            returned = self.give_back_ranges(unseen)
            returned.add_done_callback(lambda done: done.cancelled() or done.exception())

    # -- Consumers with receipts of earlier deliveries, as SQS forgives them -------------------

    def holds(self, seq: int) -> bool:
        """Whether the message is still in the queue."""
        return late_receipts.holds(self.queue, seq)

    def lease_of(self, seq: int) -> int | None:
        """The lease on which a consumer holds the message now."""
        return late_receipts.lease_of(self.queue, seq)

    def has_timed_out(self, lease: int, seq: int) -> bool:
        """Whether the message waits in line because this delivery of it timed out."""
        return late_receipts.has_timed_out(self.queue, lease, seq)

    def discard(self, seq: int) -> asyncio.Future[None] | None:
        """Remove the message wherever it is; None if it is gone already."""
        if not late_receipts.discard(self.queue, seq, self.now_ms()):
            return None
        return self.changed(None)

    # -- What is there ------------------------------------------------------------------------

    def spans_on(self, lease: int) -> list[Span]:
        """What is left on a lease."""
        return self.queue.leases.get(lease, [])

    def delivered_ms(self, lease: int, seq: int) -> int | None:
        """When a delivery of a message began; None if it is no longer on this lease."""
        return late_receipts.delivered_ms(self.queue, lease, seq)

    def messages(self, delivery: Delivery) -> list[Message]:
        """The messages of a delivery one by one."""
        return messages(self.queue, delivery)

    # -- Operators ----------------------------------------------------------------------------

    def purge(self) -> asyncio.Future[int]:
        self.check_in_service()
        if purge.prepare(self.queue, limits.PURGED_STEP_THINGS):
            return asyncio.ensure_future(self._purge_much())
        self.flush()
        return self.changed(self.clear_out())

    async def _purge_much(self) -> int:
        await self.prepare_clear_out()
        self.check_in_service()
        self.flush()
        count: int = await self.changed(self.clear_out())
        return count

    async def prepare_clear_out(self) -> None:
        """Look at what is there some at a time, so that `clear_out` is quick."""
        queue = self.queue
        while True:
            if queue is not self.queue or not purge.prepare(queue, limits.PURGED_STEP_THINGS):
                return
            await asyncio.sleep(0)

    def clear_out(self) -> int:
        """Everything is gone. What it took is given back some at a time."""
        count = purge.purge(self.queue, self.now_ms())
        self._wear()
        return count

    def _wear(self) -> None:
        if purge.take_apart(self.queue, limits.PURGED_STEP_THINGS):
            asyncio.get_running_loop().call_soon(self._wear)

    def discard_these(self, seqs: list[int]) -> asyncio.Future[int]:
        """Remove chosen messages, wherever they are; how many there were."""
        self.check_in_service()
        return self.changed(discard.discard(self.queue, seqs, self.now_ms()))

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
        return await first_messages(self, limit)

    def catch_up(self, now_ms: int) -> None:
        """Do what time has made due, even if the timer has not got to it: whoever asks now must
        find the queue as it is now."""
        queue = self.queue
        deadline_ms, scheduled = queue.next_deadline_ms, queue.scheduled
        is_late = deadline_ms is not None and deadline_ms <= now_ms
        if is_late or (scheduled and scheduled[0][0] <= now_ms):
            self.tick()

    async def groups_opened(self) -> bool:
        """Wait for the commit that opens the groups of a FIFO queue which came back; False at once
        if there are none, or the disk takes nothing."""
        if not self._groups_are_opening():
            return False
        await self.changed(None)
        return True

    async def groups_sorted(self) -> bool:
        """Whoever found nothing tries again when more of what came in is sorted by group; False at
        once if all of it is."""
        if self.queue.is_sorted or self._gone is not None:
            return False
        self._sort_later()
        await asyncio.sleep(0)
        return True

    def _groups_are_opening(self) -> bool:
        queue = self.queue
        if queue.busy is None or not queue.settings.fifo or not self.is_writable:
            return False
        return queue.busy.total != queue.in_flight  # some landed, and that is not on disk yet

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
            self._context.topics.archive(self, flushed.batch, Place(flushed.row))

    def collect(self, draft: Draft) -> Mark:
        queue = self.queue
        collected = settle.collect(queue)
        draft.rows += collected.rows
        draft.dropped_rows += collected.dropped_rows
        if self._recorder.write(draft, collected.changes, lambda: QueueSnapshot(queue)):
            asyncio.get_running_loop().call_soon(self._begin_copying)
        # Not before: what cannot be written must not take the archive along.
        for flushed in collected.flushed:
            self._context.topics.archive(self, flushed.batch, Place(flushed.row))
        if queue.events:
            events, queue.events = queue.events, []
            self._context.topics.publish_events(events, late=False)
        return collected.mark

    def _begin_copying(self) -> None:
        self._copy_forward.begin()

    def settle(self, mark: Mark) -> None:
        settle.settle(self.queue, mark)
        if not self.queue.is_sorted:
            self._sort_later()
        if self._gone is None:  # else the memory of what is deleted would be counted, and kept
            self._timer.at(next_ms(self.queue))
            self.serve()
            self._context.memory.note(self)

    def _sort_later(self) -> None:
        """Others get their turn of the event loop before it goes on."""
        if not self._sorts_later:
            self._sorts_later = True
            asyncio.get_running_loop().call_soon(self._sort)

    def _sort(self) -> None:
        self._sorts_later = False
        if self._gone is None:
            self._context.supervisor.guard(self, self._sort_some)

    def _sort_some(self) -> None:
        if settle.sort_groups(self.queue):
            self._sort_later()
        self.serve()

    def tick(self) -> None:
        """The timer: do what time has made due."""
        if self._gone is None:
            self._context.supervisor.guard(self, self._tick)

    def _tick(self) -> None:
        now_ms = self.now_ms()
        must_wait = len(self.queue.changes) > limits.UNWRITTEN_CHANGES_MAX
        is_more = must_wait or run_due(self.queue, now_ms, limits.DUE_STEP_SPANS)
        if self.queue.doomed:
            self.move_dead_letters()
        if must_wait:
            self._committer.enlist(self)
        elif self.queue.changes:
            self._committer.enlist_lazily(self)
        self.serve()
        due_ms = next_ms(self.queue)
        if due_ms is not None and not must_wait:  # else `settle` goes on with it
            # In a later turn of the event loop, if it is now.
            self._timer.at(now_ms if is_more else max(due_ms, now_ms + 1))

    def move_dead_letters(self) -> None:
        """What ran out of attempts goes to the dead-letter queue."""
        self._context.mover.move_dead_letters(self)

    def serve(self) -> None:
        """Deliver what is ready to those who wait: to claims, and to the waiting room."""
        if self.queue.ready and self._gone is None:
            if self.claims.waiting:
                self.claims.wake()
            if len(self.room):
                self._dispatcher.serve()

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
        tell_or_not(self.queue, self._context.topics)
        self._context.memory.count(self)
        self._timer.cancel()
        self._timer.at(self.now_ms())

    def reopen(self) -> None:
        """In service again, with what was loaded last."""
        self.adopt(self.queue)

    def close(self, gone: NexoError) -> None:
        """No more of it: tell those who wait, and those who come later."""
        self._end(gone)
        self.contents.close()
        self._copy_forward.close()
        self.room.close(gone)

    def changed(self, result: Any) -> asyncio.Future[Any]:
        """Something changed that may concern others: dead letters, waiting consumers, time."""
        if self.queue.doomed:
            self._context.supervisor.guard(self, self.move_dead_letters)
        self.check_in_service()
        self._committer.enlist(self)
        durable = self._committer.when_durable(result, self)
        self._timer.at(next_ms(self.queue))
        self.serve()
        return durable

    def delivered(self, delivery: Delivery) -> None:
        """What time may bring back, and what may be written later."""
        self._timer.at(delivery.deadline_ms)
        self._committer.enlist_lazily(self)

    def watch_rate(self) -> None:
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
