"""The actor's desk for late words: receipts of earlier deliveries, as SQS forgives them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nexo.machine import late_receipts

if TYPE_CHECKING:
    import asyncio

    from nexo.engine.queue_actor import QueueActor


class LateDesk:
    def __init__(self, actor: QueueActor) -> None:
        self._actor = actor

    def holds(self, seq: int) -> bool:
        """Whether the message is still in the queue."""
        return late_receipts.holds(self._actor.queue, seq)

    def lease_of(self, seq: int) -> int | None:
        """The lease on which a consumer holds the message now."""
        return late_receipts.lease_of(self._actor.queue, seq)

    def discard(self, seq: int) -> asyncio.Future[None] | None:
        """Remove the message wherever it is; None if it is gone already."""
        actor = self._actor
        if not late_receipts.discard(actor.queue, seq, actor.now_ms()):
            return None
        return actor.changed(None)

    def has_timed_out(self, lease: int, seq: int) -> bool:
        """Whether the message waits in line because this delivery of it timed out."""
        return late_receipts.has_timed_out(self._actor.queue, lease, seq)


def catch_up(actor: QueueActor) -> None:
    """Do what time has made due, even if the timer has not got to it: whoever asks now must find
    the queue as it is now."""
    queue, now_ms = actor.queue, actor.now_ms()
    deadline_ms, scheduled = queue.next_deadline_ms, queue.scheduled
    is_late = deadline_ms is not None and deadline_ms <= now_ms
    if is_late or (scheduled and scheduled[0][0] <= now_ms):
        actor.tick()


async def groups_opened(actor: QueueActor) -> bool:
    """Wait for the commit that opens the groups of a FIFO queue which came back; False at once if
    there are none, or the disk takes nothing."""
    queue = actor.queue
    if queue.busy is None or not queue.settings.fifo or not actor.is_writable:
        return False
    if queue.busy.total == queue.in_flight:  # else some landed, and that is not on disk yet
        return False
    await actor.changed(None)
    return True
