"""The messages of a queue: look at them, push some."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from nexo.doors.admin_http import needs
from nexo.doors.admin_http.bodies import Encoding, Shown, body_of, show_all
from nexo.doors.admin_http.operation import Operation
from nexo.doors.admin_http.values import AtQueue, Count, Moment, moment, moment_or_none
from nexo.vocabulary.attributes import decode_attributes, encode_attributes
from nexo.vocabulary.batch import Batch, DeadLetter, batch_of
from nexo.vocabulary.identity import message_id
from nexo.vocabulary.limits import (
    ADMIN_PUSH_MESSAGES_MAX,
    ADMIN_SHOWN_BYTES,
    DEDUPLICATION_ID_CHARS_MAX,
    DELAY_MS_MAX,
    GROUP_ID_CHARS_MAX,
    MESSAGE_BYTES_CEILING,
    PEEK_MESSAGES_MAX,
    PRIORITY_MAX,
)

if TYPE_CHECKING:
    from nexo.doors.admin_http.operation import Call
    from nexo.vocabulary.message import Message
    from nexo.vocabulary.settings import QueueSettings

_PATH = "/api/v1/queues/{name}/messages"

BodyBytes = Annotated[
    int,
    Meta(
        ge=1,
        le=MESSAGE_BYTES_CEILING,
        description="Of longer bodies only the beginning is shown, as text or base64.",
    ),
]


class PeekQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    limit: Annotated[int, Meta(ge=1, le=PEEK_MESSAGES_MAX, description="How many, at most.")] = 10
    body_bytes: BodyBytes = ADMIN_SHOWN_BYTES


class ShownDeadLetter(msgspec.Struct, frozen=True):
    """Why a message is in a dead-letter queue."""

    reason: str
    source: str
    attempts: Count
    first_failed_at: Moment
    last_failed_at: Moment


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
    return Peeked([_shown(*each) for each in zip(found, bodies, strict=True)])


def _shown(message: Message, body: Shown) -> ShownMessage:
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
    )


async def _push(call: Call) -> Pushed:
    actor = call.engine.queue(call.path.name)
    accepted = await actor.push(_batch(call.body.messages, actor.queue.settings))
    incarnation = actor.queue.incarnation
    return Pushed([message_id(incarnation, seq) for seq in accepted.seqs()], accepted.duplicates)


def _batch(messages: list[NewMessage], settings: QueueSettings) -> Batch:
    """The messages as columns; a column that nobody needs is left out."""
    batch = batch_of([body_of(each.body, each.encoding) for each in messages])
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
    if any(each.attributes for each in messages):
        columns["attributes"] = [
            encode_attributes(each.attributes) if each.attributes else None for each in messages
        ]
    return msgspec.structs.replace(batch, **columns) if columns else batch


MESSAGES = (
    Operation(
        "peek",
        "GET",
        _PATH,
        "The first messages, whatever their state; nothing is taken",
        _peek,
        needs.on(needs.PEEK),
        Peeked,
        parameters=AtQueue,
        query=PeekQuery,
        refusals=(404,),
    ),
    Operation(
        "push",
        "POST",
        _PATH,
        "Push one message or several; the answer comes when they are on disk",
        _push,
        needs.on(needs.PUSH),
        Pushed,
        status=201,
        parameters=AtQueue,
        body=NewMessages,
        refusals=(404,),
    ),
)
