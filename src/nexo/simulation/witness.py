"""The witness: every call to a queue goes through here, and every answer into the ledger.

An answer is True (confirmed), False (refused: it did not happen) or None (nobody knows). A call
that the crash of the broker cuts off leaves what it asked for unknown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from nexo.simulation.deliveries import Deliveries
from nexo.simulation.history import Violation
from nexo.simulation.records import Acked, Status
from nexo.vocabulary.batch import Batch, batch_of
from nexo.vocabulary.errors import NexoError, ReadOnly, StaleReceipt

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from nexo.engine.engine import Engine
    from nexo.engine.queue_actor import QueueActor
    from nexo.engine.waiting_room import Waiter
    from nexo.machine.pop import Delivery
    from nexo.simulation.history import History
    from nexo.simulation.ledger import Ledger
    from nexo.simulation.records import Copy, Hold, Letter


class Taken(msgspec.Struct):
    """A delivery as its consumer holds it."""

    queue: str
    lease: int
    copies: list[Any]  # of Copy, in the order of the delivery
    seqs: list[int]
    visibility_ms: int
    is_received: bool

    def among(self, first: int, end: int) -> list[Copy]:
        return [c for c, seq in zip(self.copies, self.seqs, strict=True) if first <= seq < end]


class Witness:
    engine: Engine  # of the present boot
    now_ms: Callable[[], int]  # its clock

    def __init__(self, ledger: Ledger, history: History) -> None:
        self.ledger = ledger
        self.history = history
        self.deliveries = Deliveries(ledger)
        self._given: dict[Waiter, list[Taken]] = {}  # all that subscriptions were given

    def queue(self, name: str) -> QueueActor:
        return self.engine.queue(name)

    # -- Producers ----------------------------------------------------------------------------

    async def push(
        self, name: str, letters: list[Letter], producer: str = "", number: int = 0
    ) -> bool | None:
        ledger, now_ms = self.ledger, self.now_ms()
        labels = [letter.label for letter in letters]
        index = self.history.add("push", name, *labels, producer, number or "")
        try:
            actor = self.queue(name)
            incarnation = actor.queue.incarnation
            ledger.book_of(actor.queue)
            future: asyncio.Future[Any]
            if len(letters) == 1 and not producer and _is_plain(letters[0]):
                future = actor.push_one(letters[0].body, letters[0].priority)
            else:
                future = actor.push(batch_from(letters), producer, number)
        except NexoError as error:
            ledger.refused(letters)
            self.history.add("refused", name, *labels, error.code)
            return False
        for letter in letters:
            delay_ms = letter.delay_ms
            if delay_ms is None:
                delay_ms = actor.queue.settings.delay_ms
            if letter.status in (Status.UNSENT, Status.REFUSED):
                letter.due_ms = now_ms + delay_ms if delay_ms else 0
            else:  # the clock may have been set back since it was sent first
                letter.due_ms = min(letter.due_ms, now_ms + delay_ms)
        ledger.sent(letters, index, now_ms)
        try:
            accepted = await future
        except ReadOnly as error:
            self.history.add("unknown", name, *labels, error.code)
            return None
        except NexoError as error:  # it had to wait for the disk, and was refused then
            self.history.add("refused", name, *labels, error.code)
            ledger.taken_back(letters, index)
            return False
        ledger.confirmed(index)
        seqs = [accepted] if isinstance(accepted, int) else accepted.seqs()
        self.history.add("pushed", name, *zip(labels, seqs, strict=False))
        ledger.pushed(incarnation, letters, seqs, self.now_ms())
        return True

    # -- Deliveries ---------------------------------------------------------------------------

    async def pop(self, name: str, count: int, **options: Any) -> Taken | None:
        actor = self.queue(name)
        delivery = await actor.pop(count, **options)
        if not delivery.parts:
            return None
        return self.took(actor, delivery, options.get("visibility_ms"))

    def took(self, actor: QueueActor, delivery: Delivery, visibility_ms: int | None) -> Taken:
        """A delivery has reached its consumer."""
        messages = actor.messages(delivery)
        copies = self.deliveries.delivered(actor.queue, messages, self.now_ms())
        settings = actor.queue.settings
        return Taken(
            actor.name,
            delivery.lease,
            copies,
            [message.seq for message in messages],
            settings.visibility_timeout_ms if visibility_ms is None else visibility_ms,
            delivery.state.name == "RECEIVED",
        )

    def subscribe(
        self, name: str, prefetch: int, arrived: Callable[[Taken], None], **options: Any
    ) -> Waiter:
        actor = self.queue(name)
        visibility_ms = options.get("visibility_ms")

        def deliver(delivery: Delivery) -> None:
            if not self.history.is_closed:
                taken = self.took(actor, delivery, visibility_ms)
                given.append(taken)
                arrived(taken)

        def fail(error: NexoError) -> None:
            self.history.add("subscription", name, "ended:", error.code)

        self.history.add("subscribe", name, prefetch)
        given: list[Taken] = []
        waiter = actor.subscribe(prefetch, deliver, fail, **options)
        self._given[waiter] = given
        return waiter

    def unsubscribe(self, name: str, waiter: Waiter) -> None:
        """It gives back whatever it was given and did not settle."""
        index, now_ms = self.history.add("unsubscribe", name), self.now_ms()
        for each in self._given.pop(waiter):
            if each.lease in waiter.leases:
                for hold in self._returned(each, each.copies, index, now_ms, counted=False):
                    hold.is_leaving = True
        self.queue(name).unsubscribe(waiter)

    # -- What consumers say -------------------------------------------------------------------

    def received(self, taken: Taken, first: int, end: int) -> None:
        index, now_ms = self._note("received", taken, first, end), self.now_ms()
        try:
            applied = self.queue(taken.queue).received(taken.lease, first, end)
        except NexoError as error:
            self._check_stale(taken, first, end, now_ms, error)
            return
        taken.is_received = taken.is_received or (first, end) == _bounds(taken)
        for copy in self._applied(taken, first, end, applied, now_ms):
            hold = copy.hold_on(taken.queue, taken.lease)
            if hold is None or copy.acked is not Acked.NO:
                continue
            deadline_ms = now_ms + taken.visibility_ms
            if not hold.is_received:
                hold.prolong(index, self.ledger.epoch, deadline_ms)
            elif hold.epoch != self.ledger.epoch:  # a crash may have forgotten the first time
                hold.at_most_ms = max(hold.at_most_ms, deadline_ms)
            hold.is_received = True

    async def extend(self, taken: Taken, first: int, end: int, timeout_ms: int) -> bool | None:
        index, now_ms = self._note("extend", taken, first, end, timeout_ms), self.now_ms()
        held = self._held(taken, first, end, now_ms)
        try:
            future = self.queue(taken.queue).extend(taken.lease, first, end, timeout_ms)
        except NexoError as error:
            return self._check_stale(taken, first, end, now_ms, error)
        for copy in taken.among(first, end):
            hold = copy.hold_on(taken.queue, taken.lease)
            if hold is not None and copy.acked is Acked.NO:
                hold.is_received = True
                if copy in held:
                    hold.prolong(index, self.ledger.epoch, now_ms + timeout_ms)
                else:
                    hold.at_most_ms = max(hold.at_most_ms, now_ms + timeout_ms)
            elif hold is not None and copy.acked_epoch != self.ledger.epoch:
                # Its ack was lost in a crash or not, so this may have made the time shorter.
                deadline_ms = min(hold.deadlines[-1][2], now_ms + timeout_ms)
                hold.prolong(index, self.ledger.epoch, deadline_ms)
        answer = await self._answer(future, index, taken, first, end, now_ms, held)
        return answer is not None or None

    async def nack(
        self, taken: Taken, first: int, end: int, delay_ms: int | None, reason: str
    ) -> bool | None:
        index, now_ms = self._note("nack", taken, first, end, delay_ms), self.now_ms()
        held = self._held(taken, first, end, now_ms)
        returned = self._returned(taken, taken.among(first, end), index, now_ms + (delay_ms or 0))
        try:
            future = self.queue(taken.queue).nack(taken.lease, first, end, delay_ms, reason)
        except NexoError as error:
            self._not_returned(returned)
            return self._check_stale(taken, first, end, now_ms, error)
        answer = await self._answer(future, index, taken, first, end, now_ms, held)
        return answer is not None or None

    async def give_back(self, taken: Taken, first: int, end: int) -> bool | None:
        index, now_ms = self._note("give back", taken, first, end), self.now_ms()
        held = self._held(taken, first, end, now_ms)
        returned = self._returned(taken, taken.among(first, end), index, now_ms, counted=False)
        try:
            future = self.queue(taken.queue).give_back(taken.lease, first, end)
        except NexoError as error:
            self._not_returned(returned)
            return self._check_stale(taken, first, end, now_ms, error)
        answer = await self._answer(future, index, taken, first, end, now_ms, held)
        return answer is not None or None

    async def ack(self, taken: Taken, first: int, end: int) -> bool | None:
        index, now_ms = self._note("ack", taken, first, end), self.now_ms()
        held = self._held(taken, first, end, now_ms)
        try:
            future = self.queue(taken.queue).ack(taken.lease, first, end)
        except NexoError as error:
            return self._check_stale(taken, first, end, now_ms, error)
        asked = [c for c in taken.among(first, end) if c.acked is not Acked.CONFIRMED]
        before = [copy.acked for copy in asked]  # an earlier ack may turn out to have happened
        for copy in asked:
            copy.acked_commit = self.ledger.commits_begun + 1
            if copy in held:
                copy.acked, copy.acked_epoch = Acked.UNKNOWN, self.ledger.epoch
            elif self._may_be_held(copy, taken):
                # It may also have gone back to the line just before.
                copy.acked, copy.acked_epoch = Acked.UNKNOWN, 0
        applied = await self._answer(future, index, taken, first, end, now_ms, held)
        if applied is None:
            return None
        for copy, known in zip(asked, before, strict=True):
            if copy in applied:
                self._check_not_outdated(copy, taken)
            copy.acked = Acked.CONFIRMED if copy in applied else known
        self.history.add("acked", taken.queue, *[copy.label for copy in applied])
        return True

    # -- Bookkeeping --------------------------------------------------------------------------

    def _may_be_held(self, copy: Copy, taken: Taken) -> bool:
        """A delivery that a crash forgot makes room for the one before it."""
        if copy.hold_on(taken.queue, taken.lease) is not None:
            return True
        hold = copy.hold
        return hold is not None and not self.ledger.is_sure(hold.deadlines[0][0], hold.epoch)

    def _check_not_outdated(self, copy: Copy, taken: Taken) -> None:
        if not self._may_be_held(copy, taken):
            raise Violation(
                "the ack of an outdated delivery is refused",
                f"{copy.label} was acked on lease {taken.lease:#x}, and is on another one",
                copy.label,
            )

    def _note(self, what: str, taken: Taken, first: int, end: int, *more: Any) -> int:
        labels = [copy.label for copy in taken.among(first, end)]
        return self.history.add(what, taken.queue, f"lease={taken.lease:#x}", *labels, *more)

    def _held(self, taken: Taken, first: int, end: int, now_ms: int) -> list[Copy]:
        """Those that the engine must know as delivered to this consumer."""
        is_held = self.ledger.is_held
        return [c for c in taken.among(first, end) if is_held(c, taken.queue, taken.lease, now_ms)]

    async def _answer(
        self,
        future: asyncio.Future[Any],
        index: int,
        taken: Taken,
        first: int,
        end: int,
        now_ms: int,
        held: list[Copy] | None = None,
    ) -> list[Copy] | None:
        """What was applied; None if nobody knows."""
        try:
            ranges = await future
        except NexoError as error:
            self.history.add("unknown", taken.queue, f"lease={taken.lease:#x}", error.code)
            return None
        self.ledger.confirmed(index)
        return self._applied(taken, first, end, ranges, now_ms, held)

    def _applied(
        self,
        taken: Taken,
        first: int,
        end: int,
        ranges: list[int],
        now_ms: int,
        held: list[Copy] | None = None,
    ) -> list[Copy]:
        """The answer must name what the consumer held, and nothing that it did not ask for."""
        pairs = list(zip(ranges[::2], ranges[1::2], strict=True))
        seqs = {seq for low, high in pairs for seq in range(low, high)}
        asked = taken.among(first, end)
        if seqs - {seq for seq in taken.seqs if first <= seq < end}:
            raise Violation(
                "an answer names what was asked for",
                f"{ranges} of {first}..{end} on lease {taken.lease:#x}",
                *[copy.label for copy in asked],
            )
        by_seq = dict(zip(taken.seqs, taken.copies, strict=True))
        applied = [by_seq[seq] for seq in sorted(seqs)]
        for copy in held or ():
            if copy not in applied:
                raise Violation(
                    "a delivery is its consumer's until its deadline",
                    f"{copy.label} was left out of {ranges} on lease {taken.lease:#x}",
                    copy.label,
                )
        return applied

    def _check_stale(
        self, taken: Taken, first: int, end: int, now_ms: int, error: NexoError
    ) -> bool:
        self.history.add("refused", taken.queue, f"lease={taken.lease:#x}", error.code)
        held = self._held(taken, first, end, now_ms)
        if held and isinstance(error, StaleReceipt):
            raise Violation(
                "a delivery is its consumer's until its deadline",
                f"{held[0].label} on lease {taken.lease:#x} was called stale",
                held[0].label,
            )
        return False

    def _returned(
        self, taken: Taken, copies: list[Copy], index: int, not_before_ms: int, counted: bool = True
    ) -> list[Hold]:
        """Messages are about to go back; in the very same step somebody else may get them."""
        holds = []
        for copy in copies:
            hold = copy.hold_on(taken.queue, taken.lease)
            if hold is None or copy.acked is Acked.CONFIRMED:
                continue
            until_ms = self.ledger.held_until(hold)
            if self.now_ms() <= hold.at_most_ms:
                hold.live, hold.counted = False, counted
                hold.is_late = self.now_ms() >= until_ms
                hold.returned = (index, self.ledger.epoch, not_before_ms)
                holds.append(hold)
        return holds

    def _not_returned(self, holds: list[Hold]) -> None:
        for hold in holds:
            hold.live = hold.counted = True


def batch_from(letters: list[Letter]) -> Batch:
    """The columns of a push; what no letter has is absent."""
    batch = batch_of([letter.body for letter in letters])
    priorities = bytes(letter.priority for letter in letters)
    delays = [letter.delay_ms for letter in letters]
    return msgspec.structs.replace(
        batch,
        priority=priorities[0] if len(set(priorities)) == 1 else priorities,
        delay_ms=None if None in delays else delays,
        groups=_column([letter.group for letter in letters]),
        deduplication_ids=_column([letter.key for letter in letters]),
        attributes=_column([letter.attributes for letter in letters]),
    )


def _column(values: list[Any]) -> list[Any] | None:
    return None if all(value is None for value in values) else values


def _is_plain(letter: Letter) -> bool:
    columns = (letter.delay_ms, letter.group, letter.key, letter.attributes)
    return all(column is None for column in columns)


def _bounds(taken: Taken) -> tuple[int, int]:
    return min(taken.seqs), max(taken.seqs) + 1
