"""Receives that may be asked for again: a client that lost the answer asks with the same id, and
gets the same messages with the same receipts, as long as nothing was said of any of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from nexo.engine.actor import PartOf
from nexo.machine import late_receipts
from nexo.machine.ack import extend
from nexo.vocabulary.errors import StaleReceipt
from nexo.vocabulary.limits import ATTEMPTS_REMEMBERED_MAX, ATTEMPTS_REMEMBERED_MS
from nexo.vocabulary.states import State

if TYPE_CHECKING:
    from nexo.engine.queue_actor import QueueActor
    from nexo.machine.pop import Delivery


class _Attempt(NamedTuple):
    until_ms: int
    delivery: Delivery
    deadline_ms: int  # of all its messages, unless somebody changed it


class ReceiveAttempts(PartOf["QueueActor"]):
    """Of one queue. It is not journaled: after a crash an attempt is a new one, and the messages
    come back when their time is over."""

    def __init__(self, actor: QueueActor) -> None:
        super().__init__(actor)
        self._known: dict[str, _Attempt] = {}

    def remember(self, attempt: str, delivery: Delivery) -> None:
        now_ms = self._actor.now_ms()
        while self._known:
            oldest = next(iter(self._known))
            if self._known[oldest].until_ms > now_ms and len(self._known) < ATTEMPTS_REMEMBERED_MAX:
                break
            del self._known[oldest]
        self._known.pop(attempt, None)
        until_ms = now_ms + ATTEMPTS_REMEMBERED_MS
        self._known[attempt] = _Attempt(until_ms, delivery, delivery.deadline_ms)

    def again(self, attempt: str, visibility_ms: int | None) -> Delivery | None:
        """What this attempt got before, its time begun anew; None if it is another receive. Raises
        `StaleReceipt` if something was said of its messages since."""
        known, actor, queue = self._known.get(attempt), self._actor, self._actor.queue
        now_ms = actor.now_ms()
        if known is None or known.until_ms <= now_ms:
            return None
        delivery, first = known.delivery, known.delivery.parts[0].first
        if not self._is_untouched(known):
            if late_receipts.has_timed_out(queue, delivery.lease, first):
                return None
            raise StaleReceipt(f"the messages of attempt {attempt!r} were touched since")
        if visibility_ms is None:
            visibility_ms = queue.settings.visibility_timeout_ms
        for part in delivery.parts:
            end = part.first + part.count
            extend(queue, delivery.lease, part.first, end, visibility_ms, now_ms)
        self._known[attempt] = known._replace(deadline_ms=queue.now_ms + visibility_ms)
        actor.changed_lazily()
        return delivery

    def _is_untouched(self, known: _Attempt) -> bool:
        """Whether all of it is still with its consumer, under the deadline that it was given."""
        spans = self._actor.spans_on(known.delivery.lease)
        if sum(span.end - span.first for span in spans) != known.delivery.count:
            return False
        return all(
            span.state is State.RECEIVED and span.deadline_ms == known.deadline_ms for span in spans
        )
