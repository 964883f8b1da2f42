"""An event: a message as a reader of a topic sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from nexo.client.content import Content
from nexo.client.values import time_of
from nexo.vocabulary.attributes import decode_attributes
from nexo.wire.columns import decode_parts
from nexo.wire.frame import ProtocolError

if TYPE_CHECKING:
    from datetime import datetime

    from nexo.wire.columns import WirePart
    from nexo.wire.frame import Frame

_read_next = msgspec.msgpack.Decoder(int).decode


class Event(Content):
    __slots__ = ("_at", "_part", "_topic")

    def __init__(self, topic: str, part: WirePart, at: int) -> None:
        self._topic = topic
        self._part = part
        self._at = at

    @property
    def topic(self) -> str:
        return self._topic

    @property
    def offset(self) -> int:
        """Its position in the topic, counted from 0."""
        return self._part.first + self._at

    @property
    def body(self) -> bytes:
        return self._part.batch.body(self._at)

    @property
    def published_at(self) -> datetime:
        created = self._part.batch.created
        return time_of(self._part.created_ms if created is None else created[self._at])

    @property
    def attributes(self) -> dict[str, str]:
        column = self._part.batch.attributes
        return decode_attributes(column[self._at] if isinstance(column, list) else column)

    def __repr__(self) -> str:
        return f"<Event {self.offset} of {self.topic!r}: {self.body!r:.60}>"


def read_events(topic: str, answer: Frame) -> tuple[list[Event], int]:
    """The events of a READ's answer, and the offset to go on at."""
    try:
        following = _read_next(answer.head)
    except msgspec.DecodeError as error:
        raise ProtocolError(f"an answer that cannot be read: {error}") from None
    events = [
        Event(topic, part, at)
        for part in decode_parts(answer.body)
        for at in range(part.batch.count)
    ]
    return events, following
