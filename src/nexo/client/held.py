"""A message that this client holds: a view of one row of a delivery's columns.

What both twins' messages share: everything that can be asked of one. What can be done with it is
in `blocking.message` and `aio.message`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nexo.client.content import Content, DeadLetter
from nexo.client.receipts import AckOne, SettleAlone, SettleMany
from nexo.client.values import time_of
from nexo.vocabulary.attributes import decode_attributes
from nexo.vocabulary.identity import message_id, priority_of
from nexo.vocabulary.limits import DELAY_MS_MAX, REASON_CHARS_MAX, TIMEOUT_MS_MAX
from nexo.vocabulary.spoken import milliseconds
from nexo.vocabulary.states import State
from nexo.wire import commands
from nexo.wire.frame import Kind

if TYPE_CHECKING:
    from datetime import datetime

    from nexo.client.delivery import Delivery
    from nexo.wire.columns import WirePart


class HeldMessage(Content):
    __slots__ = ("_at", "_delivery", "_part")

    def __init__(self, delivery: Delivery, part: WirePart, at: int) -> None:
        self._delivery = delivery
        self._part = part
        self._at = at

    @property
    def id(self) -> str:
        """The message keeps it for life, also when it moves to another queue."""
        origin = self._part.batch.origins and self._part.batch.origins[self._at]
        return origin.id if origin else message_id(self._delivery.incarnation, self._seq)

    @property
    def body(self) -> bytes:
        return self._part.batch.body(self._at)

    @property
    def queue(self) -> str:
        return self._delivery.queue

    @property
    def priority(self) -> int:
        return priority_of(self._seq)

    @property
    def attempts(self) -> int:
        """Deliveries of this message, this one included: 1 on the first."""
        return self._part.attempts

    @property
    def created_at(self) -> datetime:
        part = self._part
        origin = part.batch.origins and part.batch.origins[self._at]
        if origin:
            return time_of(origin.created_ms)
        created = part.batch.created
        return time_of(part.created_ms if created is None else created[self._at])

    @property
    def visible_at(self) -> datetime:
        """When it comes back to the queue if nothing is heard of it."""
        return time_of(self._delivery.deadline_of(self._seq))

    @property
    def delayed_until(self) -> datetime | None:
        """None: a message that was delivered waits for nothing. See `peek`."""
        return None

    @property
    def state(self) -> State:
        received = self._delivery.auto_received or self._delivery.state == State.RECEIVED
        return State.RECEIVED if received else State.SENT

    @property
    def attributes(self) -> dict[str, str]:
        column = self._part.batch.attributes
        return decode_attributes(column[self._at] if isinstance(column, list) else column)

    @property
    def group_id(self) -> str | None:
        column = self._part.batch.groups
        return column[self._at] if isinstance(column, list) else column

    @property
    def deduplication_id(self) -> str | None:
        column = self._part.batch.deduplication_ids
        return column[self._at] if column else None

    @property
    def dead_letter(self) -> DeadLetter | None:
        """Why it is here, if this is a dead-letter queue."""
        origin = self._part.batch.origins and self._part.batch.origins[self._at]
        return DeadLetter(origin.dead_letter) if origin and origin.dead_letter else None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} of {self.queue!r}: {self.body!r:.60}>"

    @property
    def _seq(self) -> int:
        return self._part.first + self._at

    @property
    def _finished(self) -> bool:
        return self._delivery.is_finished(self._seq)

    def _acking(self) -> AckOne:
        return AckOne(self._delivery, self._part.first + self._at)

    def _settling(self, kind: Kind) -> SettleMany:
        delivery, seq = self._delivery, self._part.first + self._at
        lease = delivery.lease
        return SettleMany(kind, delivery.queue, [(lease, seq, seq + 1)], {lease: delivery})

    def _nacking(self, delay: float | None, reason: str) -> SettleAlone:
        delay_ms = None if delay is None else milliseconds(delay, "delay", DELAY_MS_MAX)
        delivery, seq = self._delivery, self._seq
        ranges = [(delivery.lease, seq, seq + 1)]
        nack = commands.Nack(delivery.queue, ranges, delay_ms, reason[:REASON_CHARS_MAX])
        return SettleAlone(
            Kind.NACK, delivery.queue, ranges, {delivery.lease: delivery}, commands.pack(nack)
        )

    def _extending(self, seconds: float) -> SettleAlone:
        timeout_ms = milliseconds(seconds, "seconds", TIMEOUT_MS_MAX)
        delivery, seq = self._delivery, self._seq
        ranges = [(delivery.lease, seq, seq + 1)]
        extend = commands.Extend(delivery.queue, ranges, timeout_ms)
        return SettleAlone(
            Kind.EXTEND, delivery.queue, ranges, {delivery.lease: delivery}, commands.pack(extend)
        )

    def _extended(self, now_ms: int, seconds: float) -> None:
        """The broker has said yes."""
        self._delivery.move_deadline(self._seq, self._seq + 1, now_ms + round(seconds * 1000))


def reason_of(error: BaseException) -> str:
    """An exception as the reason of a nack."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
