"""An event: a message as a reader of a topic sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from nexo.client.content import Content
from nexo.client.values import time_of
from nexo.vocabulary.attributes import decode_attributes
from nexo.wire import commands
from nexo.wire.columns import WirePart, decode_parts
from nexo.wire.frame import ProtocolError

if TYPE_CHECKING:
    from datetime import datetime

    from nexo.wire.frame import Frame

_read_next = msgspec.msgpack.Decoder(int).decode


class Event(msgspec.Struct, Content, frozen=True, gc=False, eq=False):
    """A struct, because readers of a million a second make as many of them."""

    _topic: str
    _part: WirePart
    _at: int

    @property
    def topic(self) -> str:
        return self._topic

    @property
    def offset(self) -> int:
        """Its position in the topic, counted from 0."""
        return self._part.first + self._at

    @property
    def body(self) -> bytes:
        batch, at = self._part.batch, self._at
        offsets = batch.offsets
        return batch.payload[offsets[at] : offsets[at + 1]]

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
    return _events(topic, answer.body), following


def read_followed(answer: Frame) -> tuple[list[Event], dict[str, int]]:
    """The same of a FOLLOW's answer, with an offset for each topic that had any."""
    followed: commands.Followed = commands.unpack(answer.head, commands.Followed)
    events: list[Event] = []
    at = 0
    for each in followed.topics:
        events += _events(each.topic, answer.body[at : at + each.body_bytes])
        at += each.body_bytes
    return events, {each.topic: each.next for each in followed.topics}


def _events(topic: str, body: memoryview) -> list[Event]:
    return [Event(topic, part, at) for part in decode_parts(body) for at in range(part.batch.count)]
