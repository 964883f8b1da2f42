"""The commands of Spark on one queue: claims, seals and repeatable reads. See `machine.claims`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nexo.machine import claims
from nexo.machine.pop import part_of
from nexo.vocabulary.limits import POP_BYTES_MAX

if TYPE_CHECKING:
    import asyncio

    from nexo.engine.queue_actor import QueueActor
    from nexo.machine.claims import Claim
    from nexo.machine.pop import Part


class ClaimDesk:
    def __init__(self, actor: QueueActor) -> None:
        self._actor = actor

    def open(self, consumer: str) -> asyncio.Future[int]:
        """Begin as the only driver of this consumer; the future has the epoch."""
        return self._actor.changed(claims.open_claims(self._actor.queue, consumer))

    async def claim(
        self,
        consumer: str,
        epoch: int,
        after: int,
        count: int,
        timeout_ms: int,
        bytes_max: int = POP_BYTES_MAX,
    ) -> Claim:
        """The batch after `after`; the same one each time it is asked for."""
        actor = self._actor
        while True:
            now_ms = actor.now_ms()
            claim = claims.claim(
                actor.queue, consumer, epoch, after, count, now_ms, timeout_ms, bytes_max
            )
            if claim.missing is None:
                await actor.changed(None)
                return claim
            await actor.read_back(claim.missing)

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
        return actor.changed(claims.ack_claims(actor.queue, consumer, epoch, through, now_ms))

    def release(self, consumer: str, dead_letter: bool = False) -> asyncio.Future[int]:
        actor = self._actor
        return actor.changed(claims.release(actor.queue, consumer, actor.now_ms(), dead_letter))

    def forget(self, consumer: str) -> asyncio.Future[None]:
        actor = self._actor
        claims.forget_claims(actor.queue, consumer, actor.now_ms())
        return actor.changed(None)

    async def read(self, consumer: str, epoch: int, number: int) -> list[Part]:
        """The messages of a claimed batch; the same ones each time."""
        actor = self._actor
        with actor.pins() as pins:
            while True:
                spans = claims.held_by(actor.queue, consumer, epoch, number)
                missing = [span.chunk for span in spans if span.chunk.content is None]
                if not spans:
                    # A release counts once it is on disk: a query that goes on with an empty
                    # batch before that would ack, unread, what a crash brings back.
                    await actor.changed(None)
                if not missing:
                    return [part_of(span) for span in spans]
                await actor.read_back(missing[0])
                pins.add(missing[0])
