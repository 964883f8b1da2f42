"""Chosen messages: search, count by reason, show one with its life, discard, send one again.

Which are meant is said by ids, a reason (in which numbers and ids do not count), a text and the
queue that dead letters came from: those for which all of it holds. `redrives` takes the same.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta

from nexo.access.operations import Named
from nexo.access.permissions import Action
from nexo.doors.admin_http.messages import (
    BodyBytes,
    Encoding,
    ShownMessage,
    body_of,
    show_all,
    shown_message,
)
from nexo.doors.admin_http.operation import Operation
from nexo.doors.admin_http.request import AtQueue, Count, Moment, QueueName, moment
from nexo.engine import chosen, peek
from nexo.engine.hands import Changes
from nexo.engine.life import timeline
from nexo.vocabulary.errors import InvalidArgument, MessageNotFound
from nexo.vocabulary.identity import parse_message_id
from nexo.vocabulary.limits import (
    ADMIN_SHOWN_BYTES,
    CHOSEN_IDS_MAX,
    MESSAGE_ID_CHARS_MAX,
    REASON_CHARS_MAX,
    SEARCH_MESSAGES_MAX,
    SEARCH_TEXT_CHARS_MAX,
)

if TYPE_CHECKING:
    from nexo.doors.admin_http.operation import Call
    from nexo.vocabulary.events import Event

_QUEUE = "/api/v1/queues/{name}"
_ONE = f"{_QUEUE}/messages/{{id}}"

MessageId = Annotated[str, Meta(min_length=1, max_length=MESSAGE_ID_CHARS_MAX)]
Ids = Annotated[list[MessageId], Meta(min_length=1, max_length=CHOSEN_IDS_MAX)]
Reason = Annotated[
    str,
    Meta(max_length=REASON_CHARS_MAX, description="Failure reason; numbers and IDs are ignored."),
]
Text = Annotated[
    str,
    Meta(
        max_length=SEARCH_TEXT_CHARS_MAX,
        description="Text in the body, an attribute or the reason.",
    ),
]
After = Annotated[int, Meta(ge=0, le=2**62, description="Continue after this number: see `next`.")]


class Choice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which messages are meant: those for which all holds that is said. `source` is the queue
    that a dead letter came from."""

    ids: Ids | None = None
    reason: Reason | None = None
    text: Text = ""
    source: QueueName | None = None


class Search(Choice, frozen=True, forbid_unknown_fields=True):
    """`limit` 0 counts only; with `count` all that match are counted, also those not shown."""

    limit: Annotated[int, Meta(ge=0, le=SEARCH_MESSAGES_MAX)] = 100
    after: After | None = None
    count: bool = False
    body_bytes: BodyBytes = ADMIN_SHOWN_BYTES


class Found(msgspec.Struct, frozen=True):
    """Messages found in the searched part of the queue. Pass `next` as `after` to search the rest;
    it is null if that was all."""

    messages: list[ShownMessage]
    matched: Count
    looked_at: Count
    next: int | None


class ReasonsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    source: QueueName | None = None
    after: After | None = None


class ReasonGroup(msgspec.Struct, frozen=True):
    """Dead letters with the same reason, in which `#` stands for each number and ID: when the first
    and the last failed, the consumer of the last, and an example with the start of its body."""

    reason: str
    count: Count
    first_at: Moment
    last_at: Moment
    consumer: str
    sources: list[str]
    example: ShownMessage


class Reasons(msgspec.Struct, frozen=True):
    """Most frequent first, in the searched part of the queue."""

    reasons: list[ReasonGroup]
    looked_at: Count
    next: int | None


class AtMessage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: QueueName
    id: MessageId


class LifeEvent(msgspec.Struct, frozen=True):
    at: Moment
    kind: str
    queue: str
    attempts: Count
    consumer: str
    reason: str


class MessageLife(msgspec.Struct, frozen=True):
    """`message` is null if it is gone; `note` says what may be missing from the history `life`."""

    message: ShownMessage | None
    life: list[LifeEvent]
    note: str


class MessageQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    body_bytes: BodyBytes = ADMIN_SHOWN_BYTES


class Resend(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The changes: a new body, and attributes to set, or to remove if the value is null. `to`:
    target queue, by default the source of a dead letter, else the same queue."""

    body: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    encoding: Encoding | None = None
    attributes: dict[str, str | None] = {}
    to: QueueName | None = None


class Resent(msgspec.Struct, frozen=True):
    """The new message; its attribute `nexo.original_id` has the id of the one it replaced."""

    queue: str
    id: str
    original_id: str


def choice_of(given: Choice) -> chosen.Choice:
    ids = None if given.ids is None else tuple(given.ids)
    return chosen.Choice(ids, given.reason, given.text, given.source)


async def _search(call: Call) -> Found:
    wanted = call.body
    actor = call.engine.queue(call.path.name)
    whole = wanted.count or not wanted.limit
    found = await chosen.search(actor, choice_of(wanted), wanted.limit, wanted.after, whole)
    bodies = await show_all([each.body for each in found.messages], wanted.body_bytes)
    shown = [shown_message(*each) for each in zip(found.messages, bodies, strict=True)]
    return Found(shown, found.matched, found.looked_at, found.next)


async def _reasons(call: Call) -> Reasons:
    actor = call.engine.queue(call.path.name)
    told = await chosen.reasons(actor, chosen.Choice(source=call.query.source), call.query.after)
    groups = []
    for each in told.groups:
        (body,) = await show_all([each.example.body], ADMIN_SHOWN_BYTES)
        is_cut = each.example_bytes > len(each.example.body)
        body = body._replace(size=each.example_bytes, truncated=is_cut)
        groups.append(
            ReasonGroup(
                each.reason,
                each.count,
                moment(each.first_ms),
                moment(each.last_ms),
                each.consumer,
                list(each.sources),
                shown_message(each.example, body),
            )
        )
    return Reasons(groups, told.looked_at, told.next)


async def _message(call: Call) -> MessageLife:
    actor, wanted = call.engine.queue(call.path.name), call.path.id
    parse_message_id(wanted)
    try:
        found = await peek.find(actor, await chosen.find(actor, wanted))
    except MessageNotFound:
        found = None
    may_peek = partial(call.caller.may, Action.PEEK)
    life = await timeline(call.engine, call.path.name, wanted, found, may_peek)
    if found is None and not life.events:
        raise MessageNotFound(f"there is no message {wanted!r:.80} in queue {call.path.name!r}")
    shown = None
    if found is not None:
        (body,) = await show_all([found.body], call.query.body_bytes)
        shown = shown_message(found, body)
    return MessageLife(shown, [_event(each) for each in life.events], life.why)


def _event(told: Event) -> LifeEvent:
    return LifeEvent(
        moment(told.at_ms), str(told.kind), told.queue, told.attempts, told.consumer, told.reason
    )


async def _resend(call: Call) -> Resent:
    wanted = call.body
    is_same = isinstance(wanted.body, msgspec.UnsetType)
    if is_same and wanted.encoding is not None:
        raise InvalidArgument("encoding was given without a body", "give both, or neither")
    body = None if is_same else body_of(wanted.body, wanted.encoding)
    changes = Changes(body, wanted.attributes)
    hands = call.engine.hands
    queue, fresh = await hands.resend(
        call.path.name, call.path.id, changes, wanted.to, call.caller.check_push
    )
    return Resent(queue, fresh, call.path.id)


def _named_resend(call: Call) -> Named:
    name, to = call.path.name, call.body.to
    sources = call.engine.hands.targets_of(name) if to is None else ()
    return Named(queue=name, target=to, sources=sources)


CHOSEN = (
    Operation(
        "search",
        "POST",
        f"{_QUEUE}/search",
        "Find messages by IDs, reason or text, without taking them",
        _search,
        Found,
        parameters=AtQueue,
        body=Search,
        refusals=(404,),
    ),
    Operation(
        "reasons",
        "GET",
        f"{_QUEUE}/reasons",
        "Dead letters by reason",
        _reasons,
        Reasons,
        parameters=AtQueue,
        query=ReasonsQuery,
        refusals=(404,),
    ),
    Operation(
        "message",
        "GET",
        _ONE,
        "One message and its history",
        _message,
        MessageLife,
        parameters=AtMessage,
        query=MessageQuery,
        refusals=(404,),
    ),
    Operation(
        "resend",
        "POST",
        f"{_ONE}/resend",
        "Send a changed copy of a message and delete the original",
        _resend,
        Resent,
        status=201,
        parameters=AtMessage,
        body=Resend,
        refusals=(404, 409),
        named=_named_resend,
    ),
)
