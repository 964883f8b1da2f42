"""A message that was only looked at: it has a state, and nothing can be done with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nexo.client.content import Content, DeadLetter
from nexo.client.figures import decoder
from nexo.client.values import time_of
from nexo.vocabulary.attributes import decode_attributes
from nexo.vocabulary.message import Message

if TYPE_CHECKING:
    from datetime import datetime

    from nexo.vocabulary.states import State

_read_messages = decoder(list[Message])


class PeekedMessage(Content):
    __slots__ = ("_queue", "_seen")

    def __init__(self, queue: str, seen: Message) -> None:
        self._queue = queue
        self._seen = seen

    @property
    def id(self) -> str:
        return self._seen.id

    @property
    def body(self) -> bytes:
        return self._seen.body

    @property
    def queue(self) -> str:
        return self._queue

    @property
    def state(self) -> State:
        """Ready, scheduled, or in flight in one of its ways."""
        return self._seen.state

    @property
    def priority(self) -> int:
        return self._seen.priority

    @property
    def attempts(self) -> int:
        """Deliveries so far."""
        return self._seen.attempts

    @property
    def created_at(self) -> datetime:
        return time_of(self._seen.created_ms)

    @property
    def visible_at(self) -> datetime | None:
        """When a message in flight comes back if nothing is heard of it; None while it is in
        line."""
        return time_of(self._seen.visible_ms) if self._seen.visible_ms else None

    @property
    def delayed_until(self) -> datetime | None:
        """Until when a scheduled message waits; None if it does not."""
        return time_of(self._seen.delayed_until_ms) if self._seen.delayed_until_ms else None

    @property
    def attributes(self) -> dict[str, str]:
        return decode_attributes(self._seen.attributes)

    @property
    def group_id(self) -> str | None:
        return self._seen.group_id

    @property
    def deduplication_id(self) -> str | None:
        return self._seen.deduplication_id

    @property
    def dead_letter(self) -> DeadLetter | None:
        return DeadLetter(self._seen.dead_letter) if self._seen.dead_letter else None

    def __repr__(self) -> str:
        return f"<PeekedMessage {self.id} of {self.queue!r}, {self.state.name}: {self.body!r:.60}>"


def read_peeked(queue: str, body: memoryview) -> list[PeekedMessage]:
    return [PeekedMessage(queue, seen) for seen in _read_messages(body)]
