"""The dispatcher of a queue: it gives what is ready to those in the waiting room, in turn, and
takes back what a consumer leaves."""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from nexo.engine.actor import PartOf
from nexo.engine.committer import call_back
from nexo.engine.outcome import outcome_of, report
from nexo.machine.fail import give_back_lease
from nexo.machine.pop import pop
from nexo.vocabulary import limits
from nexo.vocabulary.errors import NotReady
from nexo.vocabulary.fields import check_allowed
from nexo.vocabulary.limits import LAZY_COMMIT_MS, SERVE_STEP_PARTS, TIMEOUT_MS_MAX

if TYPE_CHECKING:
    from nexo.engine.context import Context
    from nexo.engine.queue_actor import QueueActor
    from nexo.engine.waiting_room import Waiter
    from nexo.machine.pop import Delivery


class Dispatcher(PartOf["QueueActor"]):
    __slots__ = ("_context", "_gives_back_later", "_is_serving", "_leaving", "_serves_later")

    def __init__(self, context: Context, actor: QueueActor) -> None:
        super().__init__(actor)
        self._context = context
        self._is_serving = False
        self._serves_later = False
        self._leaving: deque[list[int]] | None = None  # what those hold who have left
        self._gives_back_later = False

    def serve(self) -> None:
        """Deliver what is ready. Called from within, it leaves that to whoever is at it."""
        actor = self._actor
        if self._is_serving or not actor.is_in_service:
            return
        self._is_serving = True
        self._context.supervisor.guard(actor, self._serve)
        self._is_serving = False

    def take(
        self,
        count: int,
        bytes_max: int,
        consumer: str,
        visibility_ms: int | None,
        one_ack: bool,
    ) -> Delivery | None:
        """What is ready, at once, for one who need not wait since nobody else does. None: it has to
        wait for something."""
        actor = self._actor
        if self._is_serving or len(actor.room) or not actor.is_in_service:
            return None
        if visibility_ms is not None:  # here: what the rules refuse would be a failure of the actor
            check_allowed("visibility_ms", visibility_ms, 0, TIMEOUT_MS_MAX)
        if actor.claims.waiting:
            actor.claims.wake()
        wanted = partial(
            pop,
            bytes_max=bytes_max,
            consumer=consumer,
            visibility_ms=visibility_ms,
            one_ack=one_ack,
        )
        delivery, failure = outcome_of(wanted, actor.queue, count, actor.now_ms())
        if failure is not None:
            self._context.supervisor.actor_failed(actor, failure)
            return None
        if not delivery.parts:
            return None
        actor.delivered(delivery)
        return cast("Delivery", delivery)

    def _serve(self) -> None:
        actor = self._actor
        queue, room = actor.queue, actor.room
        parts = 0
        while len(room) and queue.ready and actor.is_in_service:
            if parts >= SERVE_STEP_PARTS:
                self._serve_later()
                return
            if len(queue.changes) > limits.UNWRITTEN_CHANGES_MAX and actor.is_writable:
                self._context.committer.enlist(actor)  # when it is on disk, the actor serves again
                return
            turn = room.next(queue.ready)
            if turn is None:
                return
            waiter, count = turn
            delivery = pop(
                queue,
                count,
                actor.now_ms(),
                bytes_max=waiter.bytes_max,
                consumer=waiter.consumer,
                visibility_ms=waiter.visibility_ms,
                one_ack=waiter.one_ack,
            )
            if not delivery.parts:
                if delivery.missing is not None:
                    actor.contents.fetch(delivery.missing, actor.serve)
                actor.watch_rate()
                return
            room.served(waiter, delivery.count)
            if waiter.standing:
                waiter.hold(delivery.lease, queue.leases)
            actor.delivered(delivery)
            parts += len(delivery.parts)
            _, failure = outcome_of(waiter.deliver, delivery)
            if failure is not None:
                self._give_up(waiter, delivery, failure)

    def _serve_later(self) -> None:
        """Others get their turn of the event loop before it goes on."""
        if not self._serves_later:
            self._serves_later = True
            asyncio.get_running_loop().call_soon(self._serve_now, self._actor)

    def _serve_now(self, actor: QueueActor) -> None:
        self._serves_later = False
        actor.serve()

    def _give_up(self, waiter: Waiter, delivery: Delivery, error: Exception) -> None:
        """A consumer could not take its messages: they go to the others, and it leaves."""
        label = self._actor.label
        report(f"a consumer of {label} could not be served", error)
        self._actor.room.leave(waiter)
        waiter.leases.add(delivery.lease)
        self.give_back_all(waiter)
        told = NotReady("the delivery failed", "subscribe again")
        _, failure = outcome_of(waiter.fail, told)
        if failure is not None:
            report(f"a consumer of {label} could not be told", failure)

    def give_back_unseen(self, delivery: Delivery) -> None:
        """Nobody will see it: it goes back as if never delivered."""
        give_back_lease(self._actor.queue, delivery.lease, self._actor.now_ms())
        self._context.committer.enlist_lazily(self._actor)
        self._actor.serve()

    def give_back_all(self, waiter: Waiter) -> None:
        """A consumer has left: what it holds goes back, in order, some of it now and the rest in
        the next turns of the event loop. If many leave at once they take turns."""
        leases = sorted(waiter.leases & self._actor.queue.leases.keys(), reverse=True)
        waiter.leases.clear()
        if leases:
            if self._leaving is None:  # there are many queues, and few who leave
                self._leaving = deque()
            self._leaving.append(leases)
        if not self._gives_back_later:
            self._give_back_some()

    def _give_back_some(self) -> None:
        """Of those who left first; the last of their leases go first."""
        actor, leaving, committer = self._actor, self._leaving, self._context.committer
        if not actor.is_in_service or not leaving:
            self._leaving = None
            return
        if len(actor.queue.changes) > limits.UNWRITTEN_CHANGES_MAX:
            self._gives_back_later = True
            committer.enlist(actor)
            call_back(committer.when_durable(None, actor), self._give_back_soon)
            return
        now_ms, left = actor.now_ms(), limits.GIVE_BACK_STEP_SPANS
        while leaving and left > 0:
            leases = leaving[0]
            returned = give_back_lease(actor.queue, leases[-1], now_ms, left)
            if returned < left:
                leases.pop()
            if not leases:
                leaving.popleft()
            left -= max(1, returned)
        if leaving:
            self._give_back_soon()
        committer.enlist_lazily(actor)
        actor.serve()

    def _give_back_soon(self, _: Any = None, error: BaseException | None = None) -> None:
        """In the next turn; also if the state was lost: what is on disk of a lease goes back. A
        journal that takes nothing says so at once, each time: then after a while."""
        self._gives_back_later = True
        loop = asyncio.get_running_loop()
        if error is None:
            loop.call_soon(self._give_back_more, self._actor)
        else:
            loop.call_later(LAZY_COMMIT_MS / 1000, self._give_back_more, self._actor)

    def _give_back_more(self, actor: QueueActor) -> None:
        self._gives_back_later = False
        self._context.supervisor.guard(actor, self._give_back_some)
