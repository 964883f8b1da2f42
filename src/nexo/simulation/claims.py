"""The witness of Spark's claims: a batch reads the same each time, and is nobody else's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nexo.machine.pop import Delivery, messages
from nexo.simulation.history import Violation
from nexo.simulation.records import Acked, Copy, Hold
from nexo.vocabulary.errors import LeaseLost, NexoError, ReadOnly
from nexo.vocabulary.limits import LEASE_BITS
from nexo.vocabulary.states import State

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Coroutine

    from nexo.simulation.witness import Witness

_FOR_EVER = 1 << 62


class BatchBook:
    """A numbered batch of a consumer."""

    def __init__(self, number: int, count: int, hold: Hold) -> None:
        self.number = number
        self.count = count
        self.hold = hold  # shared by its messages
        self.copies: list[Copy] | None = None  # None until it was read
        self.is_over = False  # acked or released, perhaps …
        self.is_doubtful = False  # … because nobody knows whether the release happened
        self.released_index = 0  # when a confirmed release was asked for


class ClaimWitness:
    """Of one consumer of one queue. Answers are as those of `Witness`."""

    def __init__(self, witness: Witness, queue: str, consumer: str) -> None:
        self._witness = witness
        self._ledger = witness.ledger
        self._history = witness.history
        self._queue = queue
        self._consumer = consumer
        self.batches: dict[int, BatchBook] = {}

    async def open(self) -> int | None:
        index = self._note("open")
        actor = self._witness.queue(self._queue)
        self._ledger.book_of(actor.queue).has_claims = True
        epoch: int | None = await self._confirmed(index, actor.claims.open(self._consumer))
        return epoch

    async def claim(self, epoch: int, after: int, count: int, timeout_ms: int) -> int | None:
        """The number of the batch, 0 if there was nothing; None if nobody knows."""
        index, now_ms = self._note("claim", after + 1), self._witness.now_ms()
        acked = self._begin_ack(after)
        known = self.batches.get(after + 1)
        held = known is not None and not known.is_over and self._is_held(known, now_ms)
        desk = self._witness.queue(self._queue).claims
        claim = await self._confirmed(
            index, desk.claim(self._consumer, epoch, after, count, timeout_ms)
        )
        if claim is None:
            return None
        self._end_ack(acked)
        if claim.number == 0:
            if held:
                self._broken("a claimed batch is kept", f"batch {after + 1} was not found again")
            return 0
        self._note("claimed", claim.number, f"{claim.count} messages")
        if known is not None and held:
            if known.count != claim.count:
                self._broken(
                    "a batch is the same each time",
                    f"batch {claim.number} had {known.count} messages, and has {claim.count}",
                )
        else:
            hold = Hold(self._ledger.epoch << LEASE_BITS, index, 0, now_ms + timeout_ms)
            known = self.batches[claim.number] = BatchBook(claim.number, claim.count, hold)
        if known.hold.deadlines[-1][2] != _FOR_EVER:
            known.hold.prolong(index, self._ledger.epoch, now_ms + timeout_ms)
        return int(claim.number)

    async def seal(self, epoch: int, number: int) -> bool | None:
        """False if the batch was lost before it was planned."""
        index, now_ms = self._note("seal", number), self._witness.now_ms()
        batch = self.batches[number]
        held = self._is_held(batch, now_ms)
        try:
            future = self._witness.queue(self._queue).claims.seal(self._consumer, epoch, number)
        except LeaseLost:
            self._note("lost", number)
            if held and not batch.is_over:
                self._broken("a claimed batch is kept", f"batch {number} was lost")
            return False
        batch.hold.prolong(index, self._ledger.epoch, _FOR_EVER)
        return True if await self._confirmed(index, future) is not None else None

    async def read(self, epoch: int, number: int) -> bool | None:
        """Read a batch and compare with what it was before."""
        batch, actor = self.batches[number], self._witness.queue(self._queue)
        held = self._is_held(batch, self._witness.now_ms())
        try:
            parts = (await actor.claims.read(self._consumer, epoch, number)).parts
        except LeaseLost:
            if held and not batch.is_over:
                self._broken("a claimed batch is kept", f"batch {number} cannot be read")
            return False
        except NexoError as error:
            self._note("unread", number, error.code)
            return None
        found = messages(actor.queue, Delivery(0, 0, State.SEALED, parts))
        labels = [self._ledger.letters[each.body].label for each in found]
        index = self._note("read", number, *labels)
        if batch.released_index and found:
            self._broken("a released batch is empty", f"batch {number} reads {labels}", *labels)
        if batch.is_doubtful and found:  # the release did not happen
            batch.is_over = batch.is_doubtful = False
            batch.hold.live = True
        if batch.is_over or (self._cleared(batch) and not found):
            return True
        if batch.copies is None:
            if len(found) != batch.count:
                self._broken(
                    "a batch is the same each time",
                    f"batch {number} was claimed with {batch.count} messages, reads {labels}",
                )
            taken = self._witness.deliveries.taken
            batch.copies = [taken(actor.queue, each, self._witness.now_ms()) for each in found]
        elif [copy.id for copy in batch.copies] != [each.id for each in found]:
            before = [copy.label for copy in batch.copies]
            self._broken(
                "a batch is the same each time",
                f"batch {number} read {before}, and reads {labels}",
                *before,
            )
        for copy in batch.copies:
            copy.hold, copy.seen, copy.last_seen = batch.hold, True, index
        return True

    def keep(self, epoch: int, timeout_ms: int) -> None:
        index, now_ms = self._note("keep"), self._witness.now_ms()
        self._witness.queue(self._queue).claims.keep(self._consumer, epoch, timeout_ms)
        for batch in self.batches.values():
            if batch.hold.deadlines[-1][2] != _FOR_EVER and self._is_held(batch, now_ms):
                batch.hold.prolong(index, self._ledger.epoch, now_ms + timeout_ms)

    async def ack(self, epoch: int, through: int) -> bool | None:
        index = self._note("ack through", through)
        acked = self._begin_ack(through)
        actor = self._witness.queue(self._queue)
        count = await self._confirmed(index, actor.claims.ack(self._consumer, epoch, through))
        if count is None:
            return None
        if count > sum(len(batch.copies or ()) for batch in acked):
            self._broken("an ack takes what was read", f"{count} messages through {through}")
        self._end_ack(acked)
        return True

    async def release(self, dead_letter: bool, forget: bool = False) -> bool | None:
        """An operator gives back what the consumer holds."""
        index = self._note("forget" if forget else "release", dead_letter)
        actor = self._witness.queue(self._queue)
        given = [batch for batch in self.batches.values() if not batch.is_over]
        for batch in given:
            batch.is_over, batch.is_doubtful, batch.hold.live = True, True, False
        if forget:
            future: asyncio.Future[Any] = actor.claims.release(self._consumer, forget=True)
        else:
            future = actor.claims.release(self._consumer, dead_letter)
        if await self._confirmed(index, future, forget) is None:
            return None
        for batch in given:
            batch.is_doubtful = False
            batch.released_index = 0 if forget else index
        return True

    # -- Bookkeeping --------------------------------------------------------------------------

    def _begin_ack(self, through: int) -> list[BatchBook]:
        due = [batch for number, batch in self.batches.items() if number <= through]
        for batch in due:
            for copy in batch.copies or () if batch.is_doubtful else ():
                if copy.hold is batch.hold and copy.acked is Acked.NO:
                    copy.acked, copy.acked_epoch = Acked.UNKNOWN, 0
        batches = [batch for batch in due if not batch.is_over]
        for batch in batches:
            for copy in batch.copies or ():
                if copy.hold is batch.hold and copy.acked is Acked.NO:
                    copy.acked, copy.acked_epoch = Acked.UNKNOWN, self._ledger.epoch
        return batches

    def _end_ack(self, batches: list[BatchBook]) -> None:
        for batch in batches:
            batch.is_over = True
            for copy in batch.copies or ():
                if copy.hold is batch.hold and copy.acked is Acked.UNKNOWN:
                    copy.acked = Acked.CONFIRMED

    def _is_held(self, batch: BatchBook, now_ms: int) -> bool:
        return now_ms < self._ledger.held_until(batch.hold) and not self._cleared(batch)

    def _cleared(self, batch: BatchBook) -> bool:
        book = self._ledger.book_of(self._witness.queue(self._queue).queue)
        return any(line > batch.hold.deadlines[0][0] for line in book.cleared)

    async def _confirmed(
        self,
        index: int,
        answer: asyncio.Future[Any] | Coroutine[Any, Any, Any],
        default: Any = None,
    ) -> Any:
        """The result of a call; None if nobody knows what became of it."""
        try:
            result = await answer
        except ReadOnly as error:
            self._note("unknown", error.code)
            return None
        self._ledger.confirmed(index)
        return default if result is None else result

    def _note(self, what: str, *details: Any) -> int:
        return self._history.add(what, self._queue, self._consumer, *details)

    def _broken(self, promise: str, found: str, *labels: str) -> None:
        raise Violation(
            promise, f"{self._queue}/{self._consumer}: {found}", self._consumer, *labels
        )
