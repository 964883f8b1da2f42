"""The messages of a topic: read them, publish some."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta

from nexo.doors.admin_http import needs
from nexo.doors.admin_http.bodies import Encoding, Shown, body_of, show_all
from nexo.doors.admin_http.messages import BodyBytes
from nexo.doors.admin_http.operation import Operation
from nexo.doors.admin_http.values import AtTopic, Count, Limit, Moment, moment
from nexo.vocabulary.attributes import decode_attributes, encode_attributes
from nexo.vocabulary.batch import Batch, batch_of
from nexo.vocabulary.limits import (
    ADMIN_ANSWER_BYTES_MAX,
    ADMIN_PUSH_MESSAGES_MAX,
    ADMIN_SHOWN_BYTES,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nexo.doors.admin_http.operation import Call
    from nexo.engine.types import Part

_PATH = "/api/v1/topics/{name}/messages"


class ReadQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    offset: Annotated[
        int,
        Meta(ge=0, le=2**53, description="Where to begin; below what is kept it is the oldest."),
    ] = 0
    limit: Limit = 100
    body_bytes: BodyBytes = ADMIN_SHOWN_BYTES


class ShownEvent(msgspec.Struct, frozen=True):
    """A message of a topic. `body` is a string, or with the encoding `json` what the body says;
    if it is `truncated`, only the beginning of its `size` bytes is shown."""

    offset: Count
    published_at: Moment
    body: msgspec.Raw
    encoding: Encoding
    size: Count
    truncated: bool
    attributes: dict[str, str]


class ReadEvents(msgspec.Struct, frozen=True):
    """`next` is the offset to go on at; behind the last message it is that of the one to come."""

    messages: list[ShownEvent]
    next: Count


class NewEvent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`body`: a string is text, anything else is JSON; `encoding` says otherwise."""

    body: msgspec.Raw
    encoding: Encoding | None = None
    attributes: dict[str, str] = {}


class NewEvents(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """They are accepted or refused together."""

    messages: Annotated[list[NewEvent], Meta(min_length=1, max_length=ADMIN_PUSH_MESSAGES_MAX)]


class Published(msgspec.Struct, frozen=True):
    offsets: list[int]


async def _read(call: Call) -> ReadEvents:
    wanted = call.query
    actor = call.engine.topic(call.path.name)
    reading = await actor.read(wanted.offset, wanted.limit, bytes_max=ADMIN_ANSWER_BYTES_MAX)
    bodies = [body for part in reading.parts for body in part.batch().bodies()]
    told = iter(await show_all(bodies, wanted.body_bytes))
    messages = [each for part in reading.parts for each in _shown_part(part, told)]
    return ReadEvents(messages, reading.next)


def _shown_part(part: Part, told: Iterator[Shown]) -> Iterator[ShownEvent]:
    batch = part.batch()
    attributes = batch.attributes
    for index, body in zip(range(part.count), told, strict=False):
        yield ShownEvent(
            offset=part.first + index,
            published_at=moment(part.created_ms if batch.created is None else batch.created[index]),
            body=body.body,
            encoding=body.encoding,
            size=body.size,
            truncated=body.truncated,
            attributes=decode_attributes(
                attributes[index] if isinstance(attributes, list) else attributes
            ),
        )


async def _publish(call: Call) -> Published:
    batch = _batch(call.body.messages)
    first, end = await call.engine.topic(call.path.name).publish(batch)
    return Published(list(range(first, end)))


def _batch(messages: list[NewEvent]) -> Batch:
    batch = batch_of([body_of(each.body, each.encoding) for each in messages])
    if not any(each.attributes for each in messages):
        return batch
    attributes = [
        encode_attributes(each.attributes) if each.attributes else None for each in messages
    ]
    return msgspec.structs.replace(batch, attributes=attributes)


TOPIC_MESSAGES = (
    Operation(
        "read",
        "GET",
        _PATH,
        "Messages of a topic from an offset on; nothing is removed",
        _read,
        needs.READ_TOPIC,
        ReadEvents,
        parameters=AtTopic,
        query=ReadQuery,
        refusals=(404,),
    ),
    Operation(
        "publish",
        "POST",
        _PATH,
        "Publish one message or several; the answer comes when they are on disk",
        _publish,
        needs.on(needs.PUSH),
        Published,
        status=201,
        parameters=AtTopic,
        body=NewEvents,
        refusals=(404,),
    ),
)
