"""The commands of Spark on one queue: claims, seals and repeatable reads. See `machine.claims`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from nexo.engine.actor import PartOf
from nexo.machine import claims
from nexo.vocabulary.errors import DataCorrupt, InvalidArgument
from nexo.vocabulary.limits import POP_BYTES_MAX
from nexo.vocabulary.settings import check_dead_letter
from nexo.vocabulary.states import State

if TYPE_CHECKING:
    from nexo.engine.memory import Pins
    from nexo.engine.queue_actor import QueueActor
    from nexo.machine.chunk import Chunk
    from nexo.machine.claims import Claim, Slice
    from nexo.machine.span import Span


BATCH_END = 2**63  # of a read that takes all that is left of a batch


class Claimant(msgspec.Struct, frozen=True):
    """A consumer of Spark with the batches that it holds."""

    consumer: str
    epoch: int
    acked_through: int
    batches: list[int]
    seen_ms: int


class Claims(PartOf["QueueActor"]):
    def __init__(self, actor: QueueActor) -> None:
        super().__init__(actor)
        self.waiting: set[asyncio.Event] = set()  # of claims that found nothing

    def claimants(self) -> list[Claimant]:
        """Everybody who has claimed a batch of this queue, and is not over."""
        now_ms = self._actor.now_ms()
        return [
            Claimant(name, each.epoch, each.acked_through, sorted(each.batches), each.seen_ms)
            for name, each in self._actor.queue.claims.items()
            if not each.is_over(now_ms)
        ]

    def open(self, consumer: str) -> asyncio.Future[int]:
        """Begin as the only driver of this consumer; the future has the epoch."""
        actor = self._actor
        return actor.changed(claims.open_claims(actor.queue, consumer, actor.now_ms()))

    async def claim(
        self,
        consumer: str,
        epoch: int,
        after: int,
        count: int,
        timeout_ms: int,
        bytes_max: int = POP_BYTES_MAX,
        wait_ms: int = 0,
    ) -> Claim:
        """The batch after `after`; the same one each time it is asked for. Waits up to `wait_ms`
        if there is nothing yet; that the batches before it are acked is on disk by then."""
        actor = self._actor
        until_ms = actor.now_ms() + wait_ms
        ready = asyncio.Event()
        is_told = False  # that what came before is acked is on disk
        self.waiting.add(ready)
        try:
            while True:
                ready.clear()
                now_ms = actor.now_ms()
                claim = claims.claim(
                    actor.queue, consumer, epoch, after, count, now_ms, timeout_ms, bytes_max
                )
                actor.contents.watch_unreadable()
                if not claim.number and await actor.groups_sorted():
                    continue
                if not claim.number and await actor.groups_opened():
                    continue  # by the ack of the batch before, for one
                if claim.number or not is_told:
                    await actor.changed(None)  # not each time: it would wake this very claim
                    is_told = True
                if claim.number or now_ms >= until_ms:
                    return claim
                await _either(ready, min(until_ms, self._token_ms(now_ms) or until_ms) - now_ms)
        finally:
            self.waiting.discard(ready)

    def _token_ms(self, now_ms: int) -> int | None:
        """When a rate limit lets the next message through, if that is what a claim waits for."""
        queue = self._actor.queue
        rate = queue.settings.max_receive_rate
        if rate is None or not queue.ready:
            return None
        token_ms = queue.rate.next_ms(rate, now_ms)
        return token_ms if token_ms > now_ms else None

    def wake(self) -> None:
        """Something is ready."""
        for each in self.waiting:
            each.set()

    def seal(self, consumer: str, epoch: int, number: int) -> asyncio.Future[Claim]:
        actor = self._actor
        return actor.changed(claims.seal(actor.queue, consumer, epoch, number, actor.now_ms()))

    def keep(self, consumer: str, epoch: int, timeout_ms: int) -> None:
        """The heartbeat; it waits for nothing."""
        actor = self._actor
        claims.keep_claims(actor.queue, consumer, epoch, actor.now_ms(), timeout_ms)
        actor.changed_lazily()

    def ack(self, consumer: str, epoch: int, through: int) -> asyncio.Future[int]:
        actor = self._actor
        now_ms = actor.now_ms()
        acked = claims.ack_claims(actor.queue, consumer, epoch, through, now_ms)
        actor.contents.watch_unreadable()
        return actor.changed(acked)

    def release(
        self, consumer: str, dead_letter: bool = False, forget: bool = False
    ) -> asyncio.Future[int]:
        """What a consumer holds is given back, or goes to the dead letters; with `forget` the
        consumer itself is gone too."""
        actor = self._actor
        if dead_letter:  # a queue whose messages never die by themselves may have no room for one
            check_dead_letter(actor.name, actor.queue.settings)
        end = claims.forget_claims if forget else claims.release
        return actor.changed(end(actor.queue, consumer, actor.now_ms(), dead_letter))

    async def read(
        self,
        consumer: str,
        epoch: int,
        number: int,
        start: int = 0,
        count: int = BATCH_END,
        bytes_max: int = POP_BYTES_MAX,
    ) -> Slice:
        """Messages of a claimed batch, from the one at `start` on; the same ones each time. Up to
        `count` of them and about `bytes_max` bytes, but at least one if there is any. What cannot
        be read of a sealed batch is passed over, which is on disk before it is told."""
        if start < 0 or count < 1:
            raise InvalidArgument("a read takes a start from 0 on and at least one message")
        actor = self._actor
        unreadable: set[Chunk] = set()
        with actor.contents.pins() as pins:
            while True:
                spans = claims.held_by(actor.queue, consumer, epoch, number)
                if not spans:
                    # A release counts once it is on disk: a query that goes on with an empty
                    # batch before that would ack, unread, what a crash brings back.
                    await actor.changed(None)
                found = claims.slice_of(spans, start, count, bytes_max)
                if not found.missing:
                    return found
                passed = [run for run in found.missing if run.chunk in unreadable]
                if passed:
                    claims.pass_over(actor.queue, consumer, number, passed)
                    await actor.changed(None)
                else:
                    unreadable |= await self._read_back(actor, found.missing, pins)

    async def _read_back(self, actor: QueueActor, runs: list[Span], pins: Pins) -> set[Chunk]:
        """Wait until the contents of all these are in memory, and keep them there; returns the
        chunks that cannot be read. In the order of the log, so that one call to the journal brings
        what the next ones of them need."""
        unreadable: set[Chunk] = set()
        for run in runs:
            chunk = run.chunk
            if chunk.content is None and chunk not in unreadable:
                await asyncio.sleep(0)  # a read that is quick would let nobody else have a turn
                try:
                    await actor.contents.read_back(chunk)
                except DataCorrupt:
                    if run.state is not State.SEALED:
                        raise
                    unreadable.add(chunk)
            pins.add(chunk)
        return unreadable


async def _either(ready: asyncio.Event, wait_ms: int) -> None:
    """Until something is ready, or so long."""
    try:
        async with asyncio.timeout(wait_ms / 1000):
            await ready.wait()
    except TimeoutError:
        return
