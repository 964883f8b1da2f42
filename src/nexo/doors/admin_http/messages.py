"""The messages of queues and topics: look at them, push and publish some.

The broker never looks inside a body; only here, where people do, it is shown in JSON as what it
seems to be, and the encoding says which:

    text     a string: the body as UTF-8
    json     an object or array, as it was pushed
    base64   a string: any other bytes
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import codecs
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta

from nexo.doors.admin_http.operation import Operation
from nexo.doors.admin_http.request import (
    AtQueue,
    AtTopic,
    Count,
    Limit,
    Moment,
    moment,
    moment_or_none,
)
from nexo.vocabulary.attributes import decode_attributes, encode_attributes
from nexo.vocabulary.batch import Batch, DeadLetter, batch_of
from nexo.vocabulary.errors import InvalidArgument
from nexo.vocabulary.identity import message_id
from nexo.vocabulary.limits import (
    ADMIN_ANSWER_BYTES_MAX,
    ADMIN_MESSAGE_BYTES,
    ADMIN_PUSH_MESSAGES_MAX,
    ADMIN_SHOWN_BYTES,
    ADMIN_TURN_BYTES,
    DEDUPLICATION_ID_CHARS_MAX,
    DELAY_MS_MAX,
    GROUP_ID_CHARS_MAX,
    MESSAGE_BYTES_CEILING,
    PEEK_MESSAGES_MAX,
    PRIORITY_MAX,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from nexo.doors.admin_http.operation import Call
    from nexo.engine.types import Part
    from nexo.vocabulary.message import Message
    from nexo.vocabulary.settings import QueueSettings

_OF_QUEUE = "/api/v1/queues/{name}/messages"
_OF_TOPIC = "/api/v1/topics/{name}/messages"

Encoding = Literal["text", "json", "base64"]
_JSON_BEGINS = (b"{", b"[")
_utf8 = codecs.getincrementaldecoder("utf-8")

BodyBytes = Annotated[
    int,
    Meta(
        ge=1,
        le=MESSAGE_BYTES_CEILING,
        description="Longer bodies are cut to this size, and shown as text or base64.",
    ),
]


class Shown(NamedTuple):
    """`body` is JSON already; `size` is that of the whole in bytes."""

    body: msgspec.Raw
    encoding: Encoding
    size: int
    truncated: bool


def body_of(given: msgspec.Raw, encoding: Encoding | None) -> bytes:
    """The bytes that are meant. Without an encoding a string is text, anything else JSON."""
    raw = bytes(given)
    try:
        value = msgspec.json.decode(raw)  # what is passed on as it is must be JSON to the end
    except msgspec.DecodeError as error:
        raise InvalidArgument(f"a body is not JSON: {error}") from None
    except RecursionError:
        raise InvalidArgument("a body is nested too deep") from None
    if encoding == "json" or (encoding is None and not isinstance(value, str)):
        return raw
    if not isinstance(value, str):
        raise InvalidArgument(
            f"with encoding {encoding} the body must be a string",
            "for other values use encoding json",
        )
    if encoding != "base64":
        return value.encode()
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidArgument(f"a body is not base64: {error}") from None


async def show_all(bodies: list[bytes], bytes_max: int) -> list[Shown]:
    """Each body, or as many bytes of its beginning, up to what one answer may hold. Looking into
    bodies takes time: others get their turn in between."""
    told, left, looked_at = [], ADMIN_ANSWER_BYTES_MAX, 0
    for body in bodies:
        told.append(shown(body, min(bytes_max, left)))
        size = min(len(body), bytes_max)
        left = max(0, left - size)
        looked_at += size + ADMIN_MESSAGE_BYTES
        if looked_at > ADMIN_TURN_BYTES:
            looked_at = 0
            await asyncio.sleep(0)
    return told


def shown(body: bytes, bytes_max: int) -> Shown:
    """The body, or as many bytes of its beginning."""
    size, truncated = len(body), len(body) > bytes_max
    if body.startswith(_JSON_BEGINS) and not truncated and _is_json(body):
        return Shown(msgspec.Raw(body), "json", size, truncated)
    begin = body[:bytes_max]
    try:
        # A character that is cut in two is left out, and does not make a text anything else.
        text = _utf8().decode(begin, final=not truncated)
    except UnicodeDecodeError:
        return Shown(_raw(base64.b64encode(begin).decode()), "base64", size, truncated)
    return Shown(_raw(text), "text", size, truncated)


def _is_json(body: bytes) -> bool:
    try:
        body.decode()
        msgspec.json.decode(body)
    except (UnicodeDecodeError, msgspec.DecodeError, RecursionError):
        return False
    return True


def _raw(text: str) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(text))


# -- Of queues ------------------------------------------------------------------------------------


class PeekQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    limit: Annotated[
        int, Meta(ge=1, le=PEEK_MESSAGES_MAX, description="Maximum number of messages.")
    ] = 10
    body_bytes: BodyBytes = ADMIN_SHOWN_BYTES


class ShownDeadLetter(msgspec.Struct, frozen=True):
    """Why a message is in a dead-letter queue."""

    reason: str
    source: str
    attempts: Count
    first_failed_at: Moment
    last_failed_at: Moment
    consumer: str


class ShownMessage(msgspec.Struct, frozen=True):
    """`body` is a string, or with the encoding `json` what the body says. `size` is that of the
    whole body in bytes; if it is `truncated`, only its beginning is shown."""

    id: str
    state: str
    body: msgspec.Raw
    encoding: Encoding
    size: Count
    truncated: bool
    priority: Count
    attempts: Count
    created_at: Moment
    visible_at: Moment | None
    delayed_until: Moment | None
    group_id: str | None
    deduplication_id: str | None
    attributes: dict[str, str]
    dead_letter: ShownDeadLetter | None


class Peeked(msgspec.Struct, frozen=True):
    messages: list[ShownMessage]


class NewMessage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`body`: a string is text, anything else is JSON; `encoding` says otherwise. `delay` is in
    seconds; null: the queue's."""

    body: msgspec.Raw
    encoding: Encoding | None = None
    priority: Annotated[int, Meta(ge=0, le=PRIORITY_MAX)] = 0
    delay: Annotated[float, Meta(ge=0, le=DELAY_MS_MAX / 1000)] | None = None
    attributes: dict[str, str] = {}
    group_id: Annotated[str, Meta(min_length=1, max_length=GROUP_ID_CHARS_MAX)] | None = None
    deduplication_id: (
        Annotated[str, Meta(min_length=1, max_length=DEDUPLICATION_ID_CHARS_MAX)] | None
    ) = None


class NewMessages(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """They are accepted or refused together."""

    messages: Annotated[list[NewMessage], Meta(min_length=1, max_length=ADMIN_PUSH_MESSAGES_MAX)]


class Pushed(msgspec.Struct, frozen=True):
    """In their order; a duplicate has the id of the message that it repeats."""

    ids: list[str]
    duplicates: Count


async def _peek(call: Call) -> Peeked:
    found = await call.engine.queue(call.path.name).peek(call.query.limit)
    bodies = await show_all([each.body for each in found], call.query.body_bytes)
    return Peeked([shown_message(*each) for each in zip(found, bodies, strict=True)])


def shown_message(message: Message, body: Shown) -> ShownMessage:
    letter = message.dead_letter
    return ShownMessage(
        id=message.id,
        state=message.state.name.lower(),
        body=body.body,
        encoding=body.encoding,
        size=body.size,
        truncated=body.truncated,
        priority=message.priority,
        attempts=message.attempts,
        created_at=moment(message.created_ms),
        visible_at=moment_or_none(message.visible_ms),
        delayed_until=moment_or_none(message.delayed_until_ms),
        group_id=message.group_id,
        deduplication_id=message.deduplication_id,
        attributes=decode_attributes(message.attributes),
        dead_letter=None if letter is None else _shown_letter(letter),
    )


def _shown_letter(letter: DeadLetter) -> ShownDeadLetter:
    return ShownDeadLetter(
        letter.reason,
        letter.source,
        letter.attempts,
        moment(letter.first_failed_ms),
        moment(letter.last_failed_ms),
        letter.consumer,
    )


async def _push(call: Call) -> Pushed:
    actor = call.engine.queue(call.path.name)
    accepted = await actor.push(_message_batch(call.body.messages, actor.settings))
    incarnation = actor.incarnation
    return Pushed([message_id(incarnation, seq) for seq in accepted.seqs()], accepted.duplicates)


def _message_batch(messages: list[NewMessage], settings: QueueSettings) -> Batch:
    """The messages as columns; a column that nobody needs is left out."""
    batch = _plain_batch(messages)
    columns: dict[str, Any] = {}
    if any(each.priority for each in messages):
        columns["priority"] = bytes(each.priority for each in messages)
    if any(each.delay is not None for each in messages):
        columns["delay_ms"] = [
            settings.delay_ms if each.delay is None else round(each.delay * 1000)
            for each in messages
        ]
    if any(each.group_id is not None for each in messages):
        columns["groups"] = [each.group_id for each in messages]
    if any(each.deduplication_id is not None for each in messages):
        columns["deduplication_ids"] = [each.deduplication_id for each in messages]
    return msgspec.structs.replace(batch, **columns) if columns else batch


# -- Of topics ------------------------------------------------------------------------------------


class ReadQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    offset: Annotated[
        int,
        Meta(
            ge=0,
            le=2**53,
            description="First offset to read; if it was deleted, the oldest message.",
        ),
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
    """`next` is the offset to continue at; at the end it is the offset of the next message."""

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
    batch = _plain_batch(call.body.messages)
    first, end = await call.engine.topic(call.path.name).publish(batch)
    return Published(list(range(first, end)))


def _plain_batch(messages: Sequence[NewMessage | NewEvent]) -> Batch:
    """The bodies as columns, with the attributes if there are any."""
    batch = batch_of([body_of(each.body, each.encoding) for each in messages])
    if not any(each.attributes for each in messages):
        return batch
    attributes = [
        encode_attributes(each.attributes) if each.attributes else None for each in messages
    ]
    return msgspec.structs.replace(batch, attributes=attributes)


QUEUE_MESSAGES = (
    Operation(
        "peek",
        "GET",
        _OF_QUEUE,
        "The first messages in any state, without taking them",
        _peek,
        Peeked,
        parameters=AtQueue,
        query=PeekQuery,
        refusals=(404,),
    ),
    Operation(
        "push",
        "POST",
        _OF_QUEUE,
        "Push one or more messages; answers when they are on disk",
        _push,
        Pushed,
        status=201,
        parameters=AtQueue,
        body=NewMessages,
        refusals=(404,),
    ),
)

TOPIC_MESSAGES = (
    Operation(
        "read",
        "GET",
        _OF_TOPIC,
        "Read messages of a topic from an offset",
        _read,
        ReadEvents,
        parameters=AtTopic,
        query=ReadQuery,
        refusals=(404,),
    ),
    Operation(
        "publish",
        "POST",
        _OF_TOPIC,
        "Publish one or more messages; answers when they are on disk",
        _publish,
        Published,
        status=201,
        parameters=AtTopic,
        body=NewEvents,
        refusals=(404,),
    ),
)
